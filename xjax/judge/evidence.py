"""The sums that a slice's metrics are made of, and what is missing of them."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.contract import (
  CORRECT,
  GOLD,
  GOLD_LABELS,
  LABELS,
  OF_A_USER,
  DocumentMetric,
  LabelMetric,
  Measure,
  Needs,
  PerLabel,
  Protocol,
)
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.label_sums import LabelTable, in_bins, named_sums
from xjax.judge.metrics.ranking import Weights
from xjax.judge.metrics.sums import DocumentBlock, Form, Sums, document_terms
from xjax.judge.slice import SeenLabels, Slice

_NO_GOLD = 'no document has a gold label here'
_MARGINS = 'the scores are margins, not probabilities'
_LEAST_TRAIN = 3  # fewer make the constant of the formula negative


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
  """All that the metrics of one slice depend on.

  Attributes:
    part: the slice.
    seen: those of its labels that are counted.
    weights: what these count, on the device.
    form: of the sums.
    metrics: those of labels.
    cuts: what ends the name of F1 -> its threshold; None: scores have none.
    bins: frequency bin -> bool [L], its labels; of all labels alone.
    outside: name of a metric -> float64 [N, J], of the lists alone.
    absent: why there are no propensity terms; empty: there are.
  """

  part: Slice
  seen: SeenLabels
  weights: Weights
  form: Form
  metrics: tuple[LabelMetric, ...]
  cuts: Mapping[str, float | None]
  bins: Mapping[str, np.ndarray]
  outside: Mapping[str, np.ndarray]
  absent: str

  @classmethod
  def of(
    cls,
    part: Slice,
    criteria: Criteria,
    protocols: Sequence[Protocol],
    cuts: Mapping[str, float | None],
    n_train: int,
  ) -> 'Evidence':
    """Prepares what the criteria ask for.

    Args:
      part: the slice.
      criteria: what to judge by.
      protocols: those of the criteria that have this slice.
      cuts: what ends the name of F1 -> its threshold.
      n_train: training documents; 0: not known.
    """
    weights, absent = _weights(part, criteria, n_train)
    bins = _bins(part) if n_train else {}
    thresholds = [cut for cut in cuts.values() if cut is not None]
    ks = tuple(sorted(criteria.ks))
    every = dict.fromkeys(
      measure.metric
      for protocol in protocols
      for measure in criteria.table(protocol, tuple(cuts), tuple(bins)).values()
    )
    lacking = _lacking(weights, criteria)
    outside = {
      metric.name: metric.from_lists(part.lists.ids, ks, criteria.vectors_LD)
      for metric in every
      if metric.needs is Needs.SIMILARITY and metric.needs not in lacking
    }
    by_label = tuple(m for m in every if isinstance(m, LabelMetric))
    for metric in by_label:
      _believe(metric)
    # Counting labels takes as long as all else: not for nothing.
    seen = SeenLabels.of(part) if by_label else SeenLabels.every(part)
    with exact():
      # Once: they are as many as labels, and every block needs them.
      weights = jax.device_put(seen.weights(weights))
    return cls(
      part=part,
      seen=seen,
      weights=weights,
      form=Form(
        ks=ks,
        metrics=tuple(
          metric
          for metric in every
          if isinstance(metric, DocumentMetric) and metric.needs not in lacking
        ),
        n_labels=seen.n_places if by_label else 0,
        n_thresholds=len(thresholds) if by_label else 0,
      ),
      metrics=by_label,
      cuts=cuts,
      bins=bins,
      outside=outside,
      absent=absent,
    )

  @property
  def thresholds(self) -> dict[str, float]:
    """What ends the name of F1 -> its threshold, where scores have one."""
    return {n: cut for n, cut in self.cuts.items() if cut is not None}

  @property
  def sets(self) -> tuple[str, ...]:
    """What ends the names of the sums of each set of decisions."""
    if not self.form.n_labels:
      return ()
    return *(f'@{k}' for k in self.form.ks), *self.thresholds

  @functools.cached_property
  def table(self) -> LabelTable:
    """The labels of the slice that are counted, and their bins."""
    return self.seen.table(LabelTable.of(self.part.mask, self.bins))

  @functools.cached_property
  def _taken(self) -> Sums:
    state = Sums.empty(self.form)
    thresholds = tuple(self.thresholds.values())
    for _, documents in self._blocks():
      state = state.update(documents, self.weights, thresholds)
    return state

  def _blocks(self) -> Iterator[tuple[np.ndarray, DocumentBlock]]:
    for rows, documents in self.part.blocks():
      fill = len(documents.mask_B) - len(rows)
      outside = {
        name: np.pad(values[rows], ((0, fill), (0, 0)))
        for name, values in self.outside.items()
      }
      yield rows, self.seen.documents(documents).replace(outside=outside)

  def terms(self) -> np.ndarray:
    """float64 [M, N], the document terms of form.terms."""
    return self.documents()[0]

  def documents(self) -> tuple[np.ndarray, np.ndarray]:
    """The terms, and bool [M, N], False where a list is too short for one."""
    shape = len(self.form.terms), len(self.part)
    values, known = np.zeros(shape), np.zeros(shape, bool)
    with exact():
      for rows, documents in self._blocks():
        values_MB, known_MB = _terms(documents, self.weights, self.form)
        values[:, rows] = np.asarray(values_MB)[:, : len(rows)]
        known[:, rows] = np.asarray(known_MB)[:, : len(rows)]
    return values, known

  @functools.cached_property
  def fixed(self) -> dict[str, int]:
    """Sums that do not change with the documents: how many labels there are."""
    counts = {f'{LABELS}[{n}]': int(m.sum()) for n, m in self.bins.items()}
    return {LABELS: self.part.n_labels, **counts}

  @functools.cached_property
  def _label_sums(self) -> dict[str, dict[str, float]]:
    """Set of decisions -> name -> sum over labels."""
    counts, n_ks = self._taken.counts, len(self.form.ks)
    correct_QL, predicted_QL = (
      _cumulated(np.asarray(each), n_ks)
      for each in (counts.correct_QL, counts.predicted_QL)
    )
    rest = tuple(self.bins), self.table, len(self.part), self.metrics
    return {
      name: named_sums(correct_L, predicted_L, counts.gold_L, name, *rest)
      for name, correct_L, predicted_L in zip(
        self.sets, correct_QL, predicted_QL, strict=True
      )
    }

  @functools.cached_property
  def sums(self) -> dict[str, float]:
    """Name -> sum, over documents and over labels."""
    gold_L = np.asarray(self._taken.counts.gold_L)
    sums = {**self._taken.terms(), **self.fixed}
    sums |= {GOLD: int(gold_L.sum()), GOLD_LABELS: int((gold_L > 0).sum())}
    for of_set in self._label_sums.values():
      sums |= of_set
    return sums

  @property
  def _of_correct(self) -> set[str]:
    """The sums over labels that need not know what is wrong."""
    metrics = [metric for metric in self.metrics if metric.ignores_wrong]
    return {CORRECT, *(name for metric in metrics for name in metric.sums())}

  @functools.cached_property
  def short(self) -> dict[str, tuple[int, str]]:
    """Sum -> documents whose list is too short to know it, and the reason."""
    n_docs, n_all, depth = (
      self.part.n_with_gold,
      len(self.part),
      self.part.depth,
    )
    too_short = f'need a list deeper than the {depth} labels saved'
    found = {
      name: (n, f'{n:,} of {n_docs:,} documents {too_short}')
      for name, n in self._taken.unknown().items()
    }
    taken = self._taken
    counts = zip(
      self.sets, taken.short_Q.tolist(), taken.unfound_Q.tolist(), strict=True
    )
    for decisions, n_short, n_unfound in counts:
      reason = (
        f'may have more labels above the threshold than the {depth} saved'
        if decisions in self.cuts
        else too_short
      )
      of_correct = {f'{name}{decisions}' for name in self._of_correct}
      for name in self._label_sums[decisions]:
        # What is correct may be known where what is predicted is not.
        n = n_unfound if name in of_correct else n_short
        if n:
          found[name] = n, f'{n:,} of {n_all:,} documents {reason}'
    return found

  def asks_for(self, measure: Measure) -> bool:
    """Whether this metric was asked for: False where it takes more to."""
    known = all(name in self.sums for name in measure.sums)
    return known or measure.metric.needs not in OF_A_USER

  def missing(self, measure: Measure) -> str:
    """Why there is no value; empty where there is one."""
    if not self.part.n_with_gold:
      return _NO_GOLD
    if any(name not in self.sums for name in measure.sums):
      weighed = measure.metric.needs is Needs.PROPENSITIES
      return self.absent if weighed else _MARGINS
    short = [self.short[name] for name in measure.sums if name in self.short]
    return max(short)[1] if short else ''


def _cumulated(counts_QL: np.ndarray, n_ks: int) -> np.ndarray:
  """Places 1 to k, of what each cut-off adds to the one before."""
  counts_QL = counts_QL.copy()
  np.cumsum(counts_QL[:n_ks], axis=0, out=counts_QL[:n_ks])
  return counts_QL


def _weights(
  part: Slice, criteria: Criteria, n_train: int
) -> tuple[Weights, str]:
  """What labels count, and why there are no inverse propensities."""
  weights_L, absent = criteria.weights_L, ''
  if weights_L is None and n_train < _LEAST_TRAIN:
    absent = (
      f'propensities need at least {_LEAST_TRAIN} training documents'
      if n_train
      else 'propensities need the training labels'
    )
  elif weights_L is None:
    weights_L = propensity_weights(
      part.train_counts, n_train, *criteria.propensity
    )
  return Weights(weights_L, criteria.ranks_LK), absent


def _bins(part: Slice) -> dict[str, np.ndarray]:
  """The frequency bins that have labels; of all labels, not of a slice."""
  bins = in_bins(part.train_counts) if part.mask.all() else {}
  return {name: mask for name, mask in bins.items() if mask.any()}


def _lacking(weights: Weights, criteria: Criteria) -> set[Needs]:
  """What metrics may need and is not given."""
  given = {
    Needs.PROPENSITIES: weights.labels_L,
    Needs.RANK_WEIGHTS: weights.ranks_LK,
    Needs.SIMILARITY: criteria.vectors_LD,
  }
  return {need for need, what in given.items() if what is None}


@functools.cache
def _believe(metric: LabelMetric) -> None:
  """Refuses a metric that a label without any decision or gold adds to.

  Such labels are left out of the sums, where there are very many.

  Raises:
    ConfigError: naming the metric.
  """
  with exact():
    zero_L, n_docs = jnp.zeros(1), jnp.ones(())
    none = PerLabel(zero_L, zero_L, zero_L, n_docs)
    values = [function(none) for function in metric.sums().values()]
    if any(float(value_L[0]) for value_L in values):
      raise ConfigError(
        f'{type(metric).__qualname__}: {metric.name} must add 0 for a label '
        'that is neither predicted nor gold'
      )


@partial(jax.jit, static_argnames='form')
def _terms(
  documents: DocumentBlock, weights: Weights, form: Form
) -> tuple[jax.Array, jax.Array]:
  return document_terms(documents, weights, form)
