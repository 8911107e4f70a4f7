"""The sums that a slice's metrics are made of, and what is missing of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
import dataclasses
import functools
from functools import partial

import jax
import numpy as np

from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.diversity import intra_list_diversity
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.label_sums import (
  GOLD,
  GOLD_LABELS,
  LABELS,
  OF_CORRECT,
  LabelForm,
  LabelTable,
  in_bins,
  named_sums,
)
from xjax.judge.metrics.measures import Measure
from xjax.judge.metrics.protocols import Protocol
from xjax.judge.metrics.ranking import (
  KINDS as RANKING_KINDS,
  PROPENSITY_KINDS,
  R_PRECISION,
)
from xjax.judge.metrics.sums import (
  DOCUMENTS,
  WITH_GOLD,
  Documents,
  Form,
  Sums,
  Weights,
  document_terms,
  is_term,
)
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
    label_form: which label metrics there are beside F1.
    cuts: what ends the name of F1 -> its threshold; None: scores have none.
    bins: frequency bin -> bool [L], its labels; of all labels alone.
    given: document terms computed from the lists alone, float64 [N].
    absent: why there are no propensity terms; empty: there are.
  """

  part: Slice
  seen: SeenLabels
  weights: Weights
  form: Form
  label_form: LabelForm
  cuts: Mapping[str, float | None]
  bins: Mapping[str, np.ndarray]
  given: Mapping[str, np.ndarray]
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
    wanted = {
      name
      for protocol in protocols
      for measure in criteria.table(protocol, tuple(cuts), tuple(bins)).values()
      for name in measure.sums
    }
    given = _diversity(part, criteria, wanted)
    terms = _document_terms(criteria.ks, weights, given)
    # Counting labels takes as long as all else: not for nothing.
    by_label = not all(map(is_term, wanted))
    seen = SeenLabels.of(part) if by_label else SeenLabels.every(part)
    with exact():
      # Once: they are as many as labels, and every block needs them.
      weights = jax.device_put(seen.weights(weights))
    return cls(
      part=part,
      seen=seen,
      weights=weights,
      form=Form(
        ks=tuple(sorted(criteria.ks)),
        terms=tuple(name for name in terms if name in wanted),
        n_labels=seen.n_places if by_label else 0,
        n_thresholds=len(thresholds) if by_label else 0,
      ),
      label_form=criteria.form,
      cuts=cuts,
      bins=bins,
      given=given,
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

  def _blocks(self) -> Iterator[tuple[np.ndarray, Documents]]:
    for rows, documents in self.part.blocks():
      fill = len(documents.mask_B) - len(rows)
      given = {
        name: np.pad(values[rows], (0, fill))
        for name, values in self.given.items()
      }
      yield rows, self.seen.documents(documents).replace(given=given)

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
    rest = tuple(self.bins), self.table, len(self.part), self.label_form
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
      for name in self._label_sums[decisions]:
        # What is correct may be known where what is predicted is not.
        n = n_unfound if name.startswith(OF_CORRECT) else n_short
        if n:
          found[name] = n, f'{n:,} of {n_all:,} documents {reason}'
    return found

  def asks_for(self, measure: Measure) -> bool:
    """Whether this metric was asked for: False where it takes more to."""
    return not measure.over.startswith(('ILD', 'weighted')) or all(
      name in self.sums for name in measure.sums
    )

  def missing(self, measure: Measure) -> str:
    """Why there is no value; empty where there is one."""
    if not self.part.n_with_gold:
      return _NO_GOLD
    if any(name not in self.sums for name in measure.sums):
      return self.absent if measure.over.startswith(_WEIGHED) else _MARGINS
    short = [self.short[name] for name in measure.sums if name in self.short]
    return max(short)[1] if short else ''


_WEIGHED = ('w-', 'PSR')


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


def _diversity(
  part: Slice, criteria: Criteria, wanted: Collection[str]
) -> dict[str, np.ndarray]:
  """The terms of intra-list diversity, where they are wanted and can be."""
  ks = [k for k in criteria.ks if f'ILD@{k}' in wanted]
  if criteria.vectors_LD is None or not ks:
    return {}
  found = intra_list_diversity(part.lists.ids, ks, criteria.vectors_LD)
  return {f'ILD@{k}': values_N for k, values_N in found.items()}


def _document_terms(
  ks: Sequence[int], weights: Weights, given: Mapping[str, np.ndarray]
) -> list[str]:
  """The terms that can be taken."""
  kinds = list(RANKING_KINDS)
  kinds += [] if weights.labels_L is None else PROPENSITY_KINDS
  kinds += [] if weights.ranks_LK is None else ['weighted']
  at_ks = [f'{kind}@{k}' for kind in kinds for k in ks]
  return [DOCUMENTS, WITH_GOLD, R_PRECISION, *at_ks, *given]


@partial(jax.jit, static_argnames='form')
def _terms(
  documents: Documents, weights: Weights, form: Form
) -> tuple[jax.Array, jax.Array]:
  return document_terms(documents, weights, form)
