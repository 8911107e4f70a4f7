"""Computes the sums that a slice's metrics need, and finds unknown sums."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools

from jaxtyping import Bool, Float, Int, Num
import numpy as np

from xjax.core.types import PAD, Ragged, offsets_of
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.hierarchical import HierarchicalMetric, PathDecisions
from xjax.judge.metrics.label_metrics import f_beta
from xjax.judge.metrics.label_sums import check_adds_zero, in_bins, label_sums
from xjax.judge.metrics.metric import (
  CORRECT,
  DOCUMENTS,
  GOLD,
  GOLD_LABELS,
  LABELS,
  OPTIONAL,
  PREDICTED,
  UP_TO_LARGEST,
  WITH_GOLD,
  DocumentMetric,
  LabelCounts,
  LabelMetric,
  Measure,
  Metric,
  Needs,
  Protocol,
)
from xjax.judge.metrics.ranked_lists import RankedLists
from xjax.judge.slice import Slice

_NO_GOLD = 'no document has a gold label here'
_MARGINS = 'the scores are margins, not probabilities'
_MORE = 'may have more labels at or above the threshold than the {} saved'
_FLAT = 'no label has a parent; --labels=FILE adds parents from a file'
# With fewer than 3 training documents, the constant C of the propensity formula
# is negative.
_LEAST_TRAIN = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Decisions:
  """Holds the labels that are assigned to each document."""

  predicted: Ragged
  hits: Bool[np.ndarray, ' decisions']  # whether each predicted label is gold

  @property
  def correct(self) -> Ragged:
    return self.predicted.keep(self.hits)


@dataclasses.dataclass(frozen=True, eq=False)
class SliceStatistics:
  """Holds everything that the metrics of one slice depend on."""

  part: Slice
  ks: tuple[int, ...]  # ascending
  # Protocol -> metric -> how its value is computed.
  tables: Mapping[str, Mapping[str, Measure]]
  by_document: tuple[DocumentMetric, ...]
  by_label: tuple[LabelMetric, ...]
  by_path: tuple[HierarchicalMetric, ...]
  cuts: Mapping[str, float | None]  # suffix of an F1 metric -> threshold
  # Frequency bin -> bool [L]; only for the slice of all labels.
  bins: Mapping[str, np.ndarray]
  weights_L: np.ndarray | None  # float64, inverse propensities
  ranks_LK: np.ndarray | None  # see Criteria
  # Metric of similarity -> float64 [N, J], by cut-off.
  outside: Mapping[str, np.ndarray]
  absent: str  # why there are no propensities; '' if there are
  hierarchy: Hierarchy | None  # None if no label has a parent
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
    """Prepares the statistics for the requested metrics.

    Under all protocols, the slice must have exactly these labels.
    """
    weights_L, absent = _weights(part, criteria, n_train)
    bins = _bins(part) if n_train else {}
    ks = tuple(sorted(criteria.ks))
    hierarchy = criteria.hierarchy or part.hierarchy
    levels = _levels(part, hierarchy)
    points = tuple(cuts), tuple(bins), levels
    tables = {p.name: criteria.table(p, *points) for p in protocols}
    metrics = dict.fromkeys(
      measure.metric for table in tables.values() for measure in table.values()
    )
    supplied = {
      Needs.PROPENSITIES: weights_L,
      Needs.RANK_WEIGHTS: criteria.ranks_LK,
      Needs.SIMILARITY: criteria.vectors_LD,
    }
    by_document = tuple(
      metric
      for metric in metrics
      if isinstance(metric, DocumentMetric)
      # The default is never None: metrics with other needs are always computed.
      and supplied.get(metric.needs, metrics) is not None
    )
    by_label = tuple(m for m in metrics if isinstance(m, LabelMetric))
    for metric in by_label:
      check_adds_zero(metric)
    return cls(
      part=part,
      ks=ks,
      tables=tables,
      by_document=by_document,
      by_label=by_label,
      by_path=_by_path(metrics, hierarchy, criteria),
      cuts=cuts,
      bins=bins,
      weights_L=weights_L,
      ranks_LK=criteria.ranks_LK,
      outside={
        metric.name: metric.from_lists(part.lists.ids, ks, criteria.vectors_LD)
        for metric in by_document
        if metric.needs is Needs.SIMILARITY
      },
      absent=absent,
      hierarchy=hierarchy,
      levels=levels,
    )

  @property
  def thresholds(self) -> dict[str, float]:
    """Returns the thresholds that are not None, by suffix of the F1 metric."""
    return {n: cut for n, cut in self.cuts.items() if cut is not None}

  @property
  def ends(self) -> tuple[str, ...]:
    """Returns the suffix of each set of decisions; thresholds come last."""
    if not self.by_label:
      return ()
    return *(f'@{k}' for k in self.ks), *self.thresholds

  @functools.cached_property
  def _hits_NK(self) -> Bool[np.ndarray, 'N K']:
    return self.part.lists.hits(self.part.gold, len(self.part.mask))

  def decisions(self, end: str) -> Decisions:
    """Returns the labels assigned at a cut-off '@k', or from a threshold on."""
    ids_NK = self.part.lists.ids
    if end in self.thresholds:
      chosen_NK = self.part.lists.at_least(self.thresholds[end])
    else:
      chosen_NK = ids_NK != PAD
      chosen_NK[:, int(end[1:]) :] = False
    predicted = Ragged(offsets_of(chosen_NK.sum(-1)), ids_NK[chosen_NK])
    return Decisions(predicted, self._hits_NK[chosen_NK])

  @functools.cached_property
  def _seen_L(self) -> Bool[np.ndarray, ' L']:
    # Often few of millions of labels are listed or gold. Others add nothing to
    # sums over labels (check_adds_zero).
    seen_L, ids_NK = np.zeros(len(self.part.mask), bool), self.part.lists.ids
    seen_L[ids_NK[ids_NK != PAD]] = seen_L[self.part.gold.values] = True
    return seen_L

  @functools.cached_property
  def _places_L(self) -> Int[np.ndarray, ' L']:
    return np.cumsum(self._seen_L, dtype=np.int32) - 1

  def _counts(self, labels: np.ndarray) -> Float[np.ndarray, ' seen']:
    n_seen = np.count_nonzero(self._seen_L)
    counts = np.bincount(self._places_L[labels], minlength=n_seen)
    return counts.astype(np.float64)

  def _label_counts(self, end: str) -> LabelCounts:
    """Counts the decisions of a set about each label that is seen."""
    decided = self.decisions(end)
    return LabelCounts(
      self._counts(decided.correct.values),
      self._counts(decided.predicted.values),
      self._counts(self.part.gold.values),
      len(self.part),
    )

  def label_f1(self, end: str) -> Float[np.ndarray, ' L']:
    """Computes the F1 of each label for a set of decisions, such as `@5`."""
    f1_L = np.zeros(len(self.part.mask))
    f1_L[self._seen_L] = f_beta(self._label_counts(end))
    return f1_L

  @functools.cached_property
  def document_terms(
    self,
  ) -> dict[str, tuple[Float[np.ndarray, ' N'], Bool[np.ndarray, ' N']]]:
    """Returns what each document adds to the sums of document metrics, by name.

    It is 0 without gold. The second array is False where a list is too short
    for the value.
    """
    n, terms = len(self.part), {}
    for rows, size, width in self.part.blocks():
      padded = np.append(rows, np.full(size - len(rows), PAD))
      filled = np.maximum(padded, 0)
      lists = RankedLists(
        self.part.lists.ids[filled],
        self._hits_NK[filled],
        self.part.gold.padded(padded, width, PAD),
        self.part.is_whole[filled],
        self.ks,
        self.weights_L,
        self.ranks_LK,
        {name: values_NJ[filled] for name, values_NJ in self.outside.items()},
      )
      for metric in self.by_document:
        for name, (values_B, known_B) in metric.terms(lists).items():
          if name not in terms:
            terms[name] = np.zeros(n), np.zeros(n, bool)
          terms[name][0][rows] = values_B[: len(rows)]
          terms[name][1][rows] = known_B[: len(rows)]
    return terms

  def document_rows(self) -> dict[str, Num[np.ndarray, ' N']]:
    """Returns what each document adds to every sum over documents, by name."""
    gold = self.part.gold
    rows = {
      DOCUMENTS: np.ones(len(gold), int),
      WITH_GOLD: (gold.lengths > 0).astype(int),
      GOLD: gold.lengths,
      **{name: values_N for name, (values_N, _) in self.document_terms.items()},
      **self.path_terms,
    }
    for end in self.ends:
      decided = self.decisions(end)
      rows[f'{PREDICTED}{end}'] = decided.predicted.lengths
      rows[f'{CORRECT}{end}'] = decided.correct.lengths
    return rows

  @functools.cached_property
  def fixed(self) -> dict[str, int]:
    """Returns the number of labels in the slice and in each bin."""
    counts = {f'{LABELS}[{n}]': int(m.sum()) for n, m in self.bins.items()}
    return {LABELS: self.part.n_labels, **counts}

  @functools.cached_property
  def _label_sums(self) -> dict[str, dict[str, float]]:
    bins = {name: bin_L[self._seen_L] for name, bin_L in self.bins.items()}
    return {
      end: label_sums(self._label_counts(end), end, self.by_label, bins)
      for end in self.ends
    }

  @functools.cached_property
  def _upto_L(self) -> Int[np.ndarray, ' L']:
    return np.cumsum(self.part.mask, dtype=np.int32)

  def up_to_largest(self, end: str) -> Int[np.ndarray, ' N']:
    """Counts, for each document, the labels up to its largest index."""
    largest_N = np.zeros(len(self.part), int)
    for rows in (self.part.gold, self.decisions(end).predicted):
      np.maximum.at(largest_N, rows.owners, self._upto_L[rows.values])
    return largest_N

  @functools.cached_property
  def sums(self) -> dict[str, float]:
    """Returns all sums over documents and over labels, by name."""
    sums = {n: float(row_N.sum()) for n, row_N in self.document_rows().items()}
    sums |= self.fixed
    sums[GOLD_LABELS] = np.count_nonzero(self._counts(self.part.gold.values))
    for end, by_name in self._label_sums.items():
      largest_N = self.up_to_largest(end)
      sums |= {**by_name, f'{UP_TO_LARGEST}{end}': largest_N.max(initial=0)}
    return sums

  @functools.cached_property
  def path_terms(self) -> dict[str, np.ndarray]:
    """Returns what each document adds to hierarchical sums, by name."""
    part, hierarchy, terms = self.part, self.hierarchy, {}
    if hierarchy is None or not self.by_path:
      return {}
    for end in self.thresholds:
      decided = self.decisions(end)
      decisions = PathDecisions(
        decided.predicted,
        decided.hits,
        part.gold,
        hierarchy,
        part.listable,
        part.left_out,
      )
      for metric in self.by_path:
        for name, function in metric.sums().items():
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

  @functools.cached_property
  def short(self) -> dict[str, tuple[int, str]]:
    """Returns (number of documents with too short lists, reason) by sum."""
    part = self.part
    too_short = f'need a list deeper than the {part.depth} labels saved'
    more = _MORE.format(part.depth)
    has_gold_N, short = part.gold.lengths > 0, {}
    for name, (_, known_N) in self.document_terms.items():
      if n := int((has_gold_N & ~known_N).sum()):
        reason = f'{n:,} of {part.n_with_gold:,} documents {too_short}'
        short[name] = n, reason
    metrics = [metric for metric in self.by_label if metric.ignores_wrong]
    ignoring_wrong = {CORRECT, *(name for m in metrics for name in m.sums())}
    for end in self.ends:
      found_all_N = self._hits_NK.sum(-1) == part.gold.lengths
      if end in self.thresholds:
        hides_N, reason = part.hides_from(self.thresholds[end]), more
      else:
        hides_N, reason = part.hides_up_to(int(end[1:])), too_short
      n_short, n_uncertain = hides_N.sum(), (hides_N & ~found_all_N).sum()
      counts = (f'{n}{end}' for n in (CORRECT, PREDICTED, UP_TO_LARGEST))
      for name in (*counts, *self._label_sums[end]):
        # All correct decisions can be known even if some wrong decisions are
        # unknown.
        is_correct = name.removesuffix(end) in ignoring_wrong
        if n := int(n_uncertain if is_correct else n_short):
          short[name] = n, f'{n:,} of {len(part):,} documents {reason}'
    for end, threshold in self.thresholds.items() if self.path_terms else ():
      # A wrong label may have ancestors that are gold, so every sum needs all
      # labels from the threshold on.
      if n := int(part.hides_from(threshold).sum()):
        reason = f'{n:,} of {len(part):,} documents {more}'
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
    if self.part.unknown:
      return self.part.unknown
    if any(name not in self.sums for name in measure.sums):
      need = measure.metric.needs
      if need is Needs.HIERARCHY and self.hierarchy is None:
        return _FLAT
      return self.absent if need is Needs.PROPENSITIES else _MARGINS
    short = [self.short[name] for name in measure.sums if name in self.short]
    return max(short)[1] if short else ''

  def not_a_number(self, measure: Measure) -> str:
    """Returns why the value of a metric is NaN."""
    is_zero = not any(self.sums[name] for name in measure.under)
    metric = type(measure.metric).__qualname__
    return 'the denominator is 0' if is_zero else f'{metric} returned NaN'


def _weights(
  part: Slice, criteria: Criteria, n_train: int
) -> tuple[np.ndarray | None, str]:
  """Returns inverse propensities, and why there are none, or ''."""
  if criteria.weights_L is not None:
    return criteria.weights_L, ''
  if not n_train:
    return None, 'propensities need the training labels'
  if n_train < _LEAST_TRAIN:
    return None, f'propensities need at least {_LEAST_TRAIN} training documents'
  weights_L = propensity_weights(
    part.train_counts, n_train, *criteria.propensity
  )
  return weights_L, ''


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
