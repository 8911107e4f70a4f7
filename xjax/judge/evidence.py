"""Computes the sums that a slice's metrics need, and finds unknown sums."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.hierarchical import HierarchicalMetric, PathDecisions
from xjax.judge.metrics.label_sums import LabelTable, in_bins, named_sums
from xjax.judge.metrics.metric import (
  CORRECT,
  GOLD,
  GOLD_LABELS,
  LABELS,
  OPTIONAL,
  DocumentMetric,
  LabelMetric,
  Measure,
  Metric,
  Needs,
  PerLabel,
  Protocol,
)
from xjax.judge.metrics.ranking import Weights
from xjax.judge.metrics.sums import DocumentBlock, Form, Sums, document_terms
from xjax.judge.slice import SeenLabels, Slice

_NO_GOLD = 'no document has a gold label here'
_MARGINS = 'the scores are margins, not probabilities'
_ABOVE = 'may have more labels above the threshold than the {} saved'
_FLAT = 'no label has a parent; --labels=FILE adds parents from a file'
# With fewer than 3 training documents, the constant C of the propensity formula
# is negative.
_LEAST_TRAIN = 3


@dataclasses.dataclass(frozen=True, eq=False)
class SliceStatistics:
  """Holds everything that the metrics of one slice depend on."""

  part: Slice
  # Numpy for a small slice, else jax.numpy, which compiles programs.
  xp: types.ModuleType
  seen: SeenLabels  # the labels of the slice that are counted
  weights: Weights  # of the counted labels; on the device unless xp is numpy
  form: Form
  metrics: tuple[LabelMetric, ...]
  cuts: Mapping[str, float | None]  # suffix of an F1 metric -> threshold
  # Frequency bin -> bool [L]; only for the slice of all labels.
  bins: Mapping[str, np.ndarray]
  # Metric that the host computes -> float64 [N, J], by cut-off.
  outside: Mapping[str, np.ndarray]
  absent: str  # why there are no propensities; '' if there are
  hierarchy: Hierarchy | None  # None if no label has a parent
  by_path: tuple[HierarchicalMetric, ...]
  # Those that have labels; only the slice of all labels has any.
  levels: tuple[int, ...]

  @classmethod
  def of(
    cls,
    part: Slice,
    criteria: Criteria,
    protocols: Sequence[Protocol],
    cuts: Mapping[str, float | None],
    n_train: int,
  ) -> 'SliceStatistics':
    """Prepares the evidence for the requested metrics.

    Under all protocols, the slice must have exactly these labels.
    """
    weights, absent = _weights(part, criteria, n_train)
    bins = _bins(part) if n_train else {}
    n_thresholds = sum(cut is not None for cut in cuts.values())
    ks = tuple(sorted(criteria.ks))
    hierarchy = criteria.hierarchy or part.hierarchy
    levels = _levels(part, hierarchy)
    metrics = _metrics(criteria, protocols, (tuple(cuts), tuple(bins), levels))
    missing = _missing_needs(weights, criteria)
    outside = {
      metric.name: metric.from_lists(part.lists.ids, ks, criteria.vectors_LD)
      for metric in metrics
      if metric.needs is Needs.SIMILARITY and metric.needs not in missing
    }
    by_label = tuple(m for m in metrics if isinstance(m, LabelMetric))
    for metric in by_label:
      _check_adds_zero(metric)
    # Counting labels takes as long as all other work, so labels are counted
    # only if a metric needs the counts.
    seen = SeenLabels.of(part) if by_label else SeenLabels.all_labels(part)
    weights, xp = seen.weights(weights), np
    if not part.is_small:
      with exact():
        # Every block of documents needs the weights of all labels. To copy them
        # only once, they are put on the device here.
        weights, xp = jax.device_put(weights), jnp
    return cls(
      part=part,
      xp=xp,
      seen=seen,
      weights=weights,
      form=Form(
        ks=ks,
        metrics=tuple(
          metric
          for metric in metrics
          if isinstance(metric, DocumentMetric) and metric.needs not in missing
        ),
        n_labels=seen.n_places if by_label else 0,
        n_thresholds=n_thresholds if by_label else 0,
      ),
      metrics=by_label,
      cuts=cuts,
      bins=bins,
      outside=outside,
      absent=absent,
      hierarchy=hierarchy,
      by_path=_by_path(metrics, hierarchy, criteria),
      levels=levels,
    )

  @property
  def thresholds(self) -> dict[str, float]:
    """Returns the thresholds that are not None, by suffix of the F1 metric."""
    return {n: cut for n, cut in self.cuts.items() if cut is not None}

  @property
  def sets(self) -> tuple[str, ...]:
    """Returns the suffix of each set of decisions; thresholds come last."""
    if not self.form.n_labels:
      return ()
    return *(f'@{k}' for k in self.form.ks), *self.thresholds

  @functools.cached_property
  def table(self) -> LabelTable:
    return self.seen.table(LabelTable.of(self.part.mask, self.bins))

  @functools.cached_property
  def _state(self) -> Sums:
    """Returns the sums over all documents, and the counts per label."""
    state = Sums.empty(self.form, self.xp)
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
      yield (
        rows,
        dataclasses.replace(self.seen.documents(documents), outside=outside),
      )

  def terms(self) -> np.ndarray:
    """Returns what each document adds to each of M sums; see `documents`."""
    return self.documents()[0]

  def documents(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns what documents add to each sum of form.terms, float64 [M, N].

    The second array, bool [M, N], is False where a list is too short.
    """
    shape = len(self.form.terms), len(self.part)
    values, known = np.zeros(shape), np.zeros(shape, bool)
    terms = document_terms if self.xp is np else _terms
    with exact():
      for rows, documents in self._blocks():
        values_MB, known_MB = terms(documents, self.weights, self.form)
        values[:, rows] = np.asarray(values_MB)[:, : len(rows)]
        known[:, rows] = np.asarray(known_MB)[:, : len(rows)]
    return values, known

  @functools.cached_property
  def fixed(self) -> dict[str, int]:
    """Returns the number of labels in the slice and in each bin."""
    counts = {f'{LABELS}[{n}]': int(m.sum()) for n, m in self.bins.items()}
    return {LABELS: self.part.n_labels, **counts}

  @functools.cached_property
  def _label_sums(self) -> dict[str, dict[str, float]]:
    counts, n_ks = self._state.counts, len(self.form.ks)
    correct_QL, predicted_QL = (
      _cumulate_cut_offs(np.asarray(counts_QL), n_ks)
      for counts_QL in (counts.correct_QL, counts.predicted_QL)
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
    """Returns all sums over documents and over labels, by name."""
    gold_L = np.asarray(self._state.counts.gold_L)
    sums = {**self._state.terms(), **self.fixed}
    sums |= {GOLD: int(gold_L.sum()), GOLD_LABELS: int((gold_L > 0).sum())}
    for set_sums in self._label_sums.values():
      sums |= set_sums
    rows = self.path_terms
    return sums | {name: float(row_N.sum()) for name, row_N in rows.items()}

  @functools.cached_property
  def path_terms(self) -> dict[str, np.ndarray]:
    """Returns what each document adds to hierarchical sums, by name."""
    part, hierarchy = self.part, self.hierarchy
    if hierarchy is None or not self.by_path:
      return {}
    lists, terms = (part.lists.ids, part.lists.scores), {}
    for end, threshold in self.thresholds.items():
      decisions = PathDecisions.above(
        *lists, threshold, part.gold, hierarchy, part.listable, part.left_out
      )
      for metric in self.by_path:
        for name, function in metric.sums().items():
          if f'{name}{end}' not in terms:  # another metric has the same sum
            terms[f'{name}{end}'] = function(decisions)
    return terms

  @property
  def level_counts(self) -> dict[str, int]:
    """Returns the numbers of labels and of gold labels at each level."""
    counts, part = {}, self.part
    for level in self.levels:
      labels_L = self.hierarchy.levels[: len(part.mask)] == level
      n_gold = int(labels_L[part.gold.values].sum())
      counts[f'n_labels[level={level}]'] = int((labels_L & part.mask).sum())
      counts[f'n_gold[level={level}]'] = n_gold
    return counts

  @property
  def _correct_only(self) -> set[str]:
    """Returns the names of label sums that ignore wrong decisions."""
    metrics = [metric for metric in self.metrics if metric.ignores_wrong]
    return {CORRECT, *(name for metric in metrics for name in metric.sums())}

  @functools.cached_property
  def short(self) -> dict[str, tuple[int, str]]:
    """Returns (number of documents with too short lists, reason) by sum."""
    part = self.part
    n_docs, n_all, depth = part.n_with_gold, len(part), part.depth
    too_short = f'need a list deeper than the {depth} labels saved'
    state = self._state
    short = {
      name: (n, f'{n:,} of {n_docs:,} documents {too_short}')
      for name, n in state.unknown().items()
    }
    counts = zip(
      self.sets, state.short_Q.tolist(), state.uncertain_Q.tolist(), strict=True
    )
    for end, n_short, n_uncertain in counts:
      reason = _ABOVE.format(depth) if end in self.cuts else too_short
      correct_only = {f'{name}{end}' for name in self._correct_only}
      for name in self._label_sums[end]:
        # All correct decisions can be known even if some wrong decisions are
        # unknown.
        n = n_uncertain if name in correct_only else n_short
        if n:
          short[name] = n, f'{n:,} of {n_all:,} documents {reason}'
    for end, threshold in self.thresholds.items() if self.path_terms else ():
      # A wrong label may have ancestors that are gold, so every sum needs all
      # labels above the threshold.
      if n := self.part.n_short_above(threshold):
        reason = f'{n:,} of {n_all:,} documents {_ABOVE.format(depth)}'
        names = (name for metric in self.by_path for name in metric.sums())
        short |= {f'{name}{end}': (n, reason) for name in names}
    return short

  def is_requested(self, measure: Measure) -> bool:
    """Returns whether a metric was requested.

    A metric that needs a file is requested by supplying the file, and one that
    needs a hierarchy if there is one, or by name.
    """
    if all(name in self.sums for name in measure.sums):
      return True
    metric = measure.metric
    return metric.needs not in OPTIONAL or metric in self.by_path

  def missing(self, measure: Measure) -> str:
    """Returns why a metric has no value, or '' if it has a value."""
    if not self.part.n_with_gold:
      return _NO_GOLD
    if any(name not in self.sums for name in measure.sums):
      need = measure.metric.needs
      if need is Needs.HIERARCHY and self.hierarchy is None:
        return _FLAT
      return self.absent if need is Needs.PROPENSITIES else _MARGINS
    short = [self.short[name] for name in measure.sums if name in self.short]
    return max(short)[1] if short else ''

  def not_a_number(self, measure: Measure) -> str:
    """Returns why the value of a metric is NaN."""
    metric = type(measure.metric).__qualname__
    if any(math.isnan(self.sums[name]) for name in measure.under):
      return f'{metric}.under returned NaN'
    if math.isnan(self.sums[measure.over]):
      return f'{metric}.over returned NaN'
    is_zero = not any(self.sums[name] for name in measure.under)
    return 'the denominator is 0' if is_zero else f'{metric}.value is NaN'


def _cumulate_cut_offs(counts_QL: np.ndarray, n_ks: int) -> np.ndarray:
  """Adds the counts of all smaller cut-offs to the counts of each cut-off."""
  counts_QL = counts_QL.copy()
  np.cumsum(counts_QL[:n_ks], axis=0, out=counts_QL[:n_ks])
  return counts_QL


def _weights(
  part: Slice, criteria: Criteria, n_train: int
) -> tuple[Weights, str]:
  """Returns the weights of labels, and why there are no propensities, or ''."""
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
  if not part.is_all:
    return {}
  bins = in_bins(part.train_counts).items()
  inside = {name: mask & part.mask for name, mask in bins}
  return {name: mask for name, mask in inside.items() if mask.any()}


def _levels(part: Slice, hierarchy: Hierarchy | None) -> tuple[int, ...]:
  """Returns the levels that have labels; () if the slice lacks labels."""
  if hierarchy is None or not part.is_all:
    return ()
  levels_L = hierarchy.levels[: len(part.mask)]
  return tuple(np.unique(levels_L[part.mask]).tolist())


def _metrics(
  criteria: Criteria, protocols: Sequence[Protocol], points: tuple
) -> tuple[Metric, ...]:
  """Returns each metric once; `points`: arguments of Criteria.table."""
  tables = (criteria.table(protocol, *points) for protocol in protocols)
  measures = (measure for table in tables for measure in table.values())
  return tuple(dict.fromkeys(measure.metric for measure in measures))


def _by_path(
  metrics: Iterable[Metric], hierarchy: Hierarchy | None, criteria: Criteria
) -> tuple[HierarchicalMetric, ...]:
  named = set(criteria.kinds)
  return tuple(
    metric
    for metric in metrics
    if isinstance(metric, HierarchicalMetric)
    and (hierarchy or named & set(metric.kinds()))
  )


def _missing_needs(weights: Weights, criteria: Criteria) -> set[Needs]:
  """Returns the needs of metrics that neither argument satisfies."""
  inputs = {
    Needs.PROPENSITIES: weights.labels_L,
    Needs.RANK_WEIGHTS: weights.ranks_LK,
    Needs.SIMILARITY: criteria.vectors_LD,
  }
  return {need for need, array in inputs.items() if array is None}


@functools.cache
def _check_adds_zero(metric: LabelMetric) -> None:
  """Checks that a label adds 0 to a metric's sums if all its counts are 0.

  Labels that are neither predicted nor gold may be left out of the sums.
  """
  with exact():
    zero_L, n_docs = np.zeros(1), np.ones(())
    none = PerLabel(zero_L, zero_L, zero_L, n_docs)
    values = [function(none) for function in metric.sums().values()]
    if any(float(value_L[0]) for value_L in values):
      raise ConfigError(
        f'{type(metric).__qualname__}: {metric.name} must add 0 for a label '
        'that is neither predicted nor gold'
      )


_terms = jax.jit(document_terms, static_argnames='form')
