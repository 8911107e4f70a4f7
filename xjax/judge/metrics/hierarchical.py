"""Defines the metrics that depend on the hierarchy of the labels.

A label is predicted if its score is at least a threshold, as in micro-F1.
Documents without gold count too: their predicted labels are wrong.

Hierarchical precision, recall and F1 add all ancestors to the predicted labels
and to the gold labels of a document, each ancestor once (Kiritchenko et al.
2006). All concepts of the hierarchy count, also those that are no labels. But a
top concept above all others that is no label does not count, because every
document would have it. Labels that are left out of judging do not count either,
but their ancestors do.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools

from jaxtyping import Bool, Float
import numpy as np

from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.judge.metrics.metric import (
  TUNED,
  Measure,
  Metric,
  MetricPoints,
  Needs,
  Numbers,
  Protocol,
  Value,
)

# Documents whose ancestors are computed at a time, which bounds the memory.
_ROWS = 8192


@dataclasses.dataclass(frozen=True, eq=False)
class PathDecisions:
  """Holds the labels that are assigned to N documents, and their gold."""

  predicted: Ragged  # the labels that are assigned to each document
  hits: Bool[np.ndarray, ' decisions']  # whether each predicted label is gold
  gold: Ragged
  hierarchy: Hierarchy  # its first nodes are the labels
  askable_L: Bool[np.ndarray, ' L']  # the labels that could be assigned
  left_out: Sequence[str] = ()  # ids of nodes that are no ancestors

  @functools.cached_property
  def path_counts_3N(self) -> Float[np.ndarray, '3 N']:
    """Counts nodes, ancestors too: predicted and gold, predicted, and gold."""
    counts_3N = np.zeros((3, len(self.gold)))
    for start in range(0, len(self.gold), _ROWS):
      block = slice(start, start + _ROWS)
      predicted, gold = (
        self._with_ancestors(_rows(rows, block))
        for rows in (self.predicted, self.gold)
      )
      shared = predicted.keep(_isin(predicted, gold, len(self.hierarchy)))
      counts_3N[:, block] = shared.lengths, predicted.lengths, gold.lengths
    return counts_3N

  def _with_ancestors(self, rows: Ragged) -> Ragged:
    """Adds all ancestors to N rows of labels; keeps the nodes that count."""
    nodes = self.hierarchy.with_ancestors(rows)
    return nodes.keep(self._counted_V[nodes.values])

  @functools.cached_property
  def _counted_V(self) -> Bool[np.ndarray, ' V']:
    counted_V = np.ones(len(self.hierarchy), bool)
    rows = self.hierarchy.ids.row_of.find(self.left_out)
    counted_V[rows[rows != PAD]] = False
    if (top := self.hierarchy.top_concept) is not None:
      counted_V[top] = False
    return counted_V

  @functools.cached_property
  def consistent_N(self) -> Float[np.ndarray, ' N']:
    """Counts the predicted labels whose askable parents are all predicted."""
    parents = self.hierarchy.parents
    is_label = parents.values < len(self.askable_L)
    is_label[is_label] = self.askable_L[parents.values[is_label]]
    parents = parents.keep(is_label)
    consistent_N = np.zeros(len(self.gold))
    for start in range(0, len(self.gold), _ROWS):
      block = slice(start, start + _ROWS)
      predicted = _rows(self.predicted, block)
      # Each predicted label has a row with its parents.
      asked = parents.take(predicted.values)
      by_document = Ragged(asked.indptr[predicted.indptr], asked.values)
      absent = ~_isin(by_document, predicted, len(self.hierarchy))
      whole = np.bincount(asked.owners[absent], minlength=len(asked)) == 0
      consistent_N[block] = predicted.keep(whole).lengths
    return consistent_N

  def at_level(
    self, rows: Ragged, level: int, kept: np.ndarray | bool = True
  ) -> Float[np.ndarray, ' N']:
    """Counts the labels of each document at a level; roots are at level 1."""
    chosen = rows.keep((self.hierarchy.levels[rows.values] == level) & kept)
    return chosen.lengths.astype(np.float64)


def _rows(rows: Ragged, block: slice) -> Ragged:
  indptr = rows.indptr[block.start : block.stop + 1]
  return Ragged(indptr - indptr[0], rows.values[indptr[0] : indptr[-1]])


def _isin(rows: Ragged, others: Ragged, n_nodes: int) -> np.ndarray:
  """Returns which values of `rows` are in the same row of `others`."""
  return np.isin(rows.cells(n_nodes), others.cells(n_nodes))


class HierarchicalMetric(Metric):
  """Is the base class of metrics whose sums need the hierarchy of labels.

  `over` and `under` get PathDecisions and return what each document adds.
  """

  needs = Needs.HIERARCHY

  @classmethod
  def kinds(cls) -> tuple[str, ...]:
    return cls.name, f'{cls.name}{TUNED}'

  def measures(
    self, protocol: Protocol, points: MetricPoints
  ) -> Iterator[Measure]:
    for end in points.thresholds:
      yield self._measure(end)

  def _measure(self, end: str) -> Measure:
    over, under = (f'{self.sum_of(part)}{end}' for part in ('over', 'under'))
    return Measure(f'{self.label}{end}', self, over, (under,), 0)


class HierarchicalPrecision(HierarchicalMetric):
  """Divides the nodes that are predicted and gold by the predicted nodes."""

  name = 'hP'

  def over(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.path_counts_3N[0]

  def under(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.path_counts_3N[1]


class HierarchicalRecall(HierarchicalMetric):
  """Divides the nodes that are predicted and gold by the gold nodes."""

  name = 'hR'
  over = HierarchicalPrecision.over

  def under(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.path_counts_3N[2]


class HierarchicalF1(HierarchicalMetric):
  """Computes the harmonic mean of hP and hR; without parents, micro-F1."""

  name = 'hF1'
  over = HierarchicalPrecision.over

  def under(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.path_counts_3N[1:].sum(0)

  def value(self, over: Numbers, under: Numbers, k: int) -> Value:
    return 2.0 * over / under


class Consistency(HierarchicalMetric):
  """Computes the share of predicted labels whose parents are predicted too.

  Only parents that are labels count. A label without such parents is
  consistent.
  """

  name = 'consistency'

  def over(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.consistent_N

  def under(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.predicted.lengths.astype(np.float64)


@dataclasses.dataclass(frozen=True)
class _AtLevel(HierarchicalMetric):
  """Is the base class of metrics that count only labels at a level."""

  level: int = 1  # roots are at level 1

  @property
  def label(self) -> str:
    return self.name.replace('[level]', f'[level={self.level}]')

  def measures(
    self, protocol: Protocol, points: MetricPoints
  ) -> Iterator[Measure]:
    for end in points.thresholds:
      for level in points.levels:
        yield dataclasses.replace(self, level=level)._measure(end)


class LevelPrecision(_AtLevel):
  """Computes the precision of all decisions about the labels at a level."""

  name = 'micro-P[level]'

  def over(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.at_level(decisions.predicted, self.level, decisions.hits)

  def under(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.at_level(decisions.predicted, self.level)


class LevelRecall(_AtLevel):
  """Computes the recall of all decisions about the labels at a level."""

  name = 'micro-R[level]'
  over = LevelPrecision.over

  def under(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return decisions.at_level(decisions.gold, self.level)


class LevelF1(_AtLevel):
  """Computes the F1 of all decisions about the labels at a level."""

  name = 'micro-F1[level]'
  over = LevelPrecision.over
  value = HierarchicalF1.value

  def under(self, decisions: PathDecisions) -> Float[np.ndarray, ' N']:
    return sum(
      decisions.at_level(rows, self.level)
      for rows in (decisions.predicted, decisions.gold)
    )
