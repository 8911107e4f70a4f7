"""Draws the hierarchy of labels: width by support, colour by F1."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.judge.criteria import USUAL_K, Criteria
from xjax.judge.evidence import SliceStatistics
from xjax.judge.intervals import label_f1
from xjax.judge.judge import thresholds
from xjax.judge.metrics.slices import ALL
from xjax.judge.slice import Slice
from xjax.report.page.page import Block, Text, Tree
from xjax.report.runs import Group, JudgedRun

# The colours of the F1 from 0 to 1, and of the text on them, whose contrast is
# above 4.5.
PALETTE = (
  ('#d55e00', 'black'),
  ('#db7b2d', 'black'),
  ('#e2985a', 'black'),
  ('#e8b586', 'black'),
  ('#efd2b3', 'black'),
  ('#f5efe0', 'black'),
  ('#c4d6d7', 'black'),
  ('#93bdce', 'black'),
  ('#62a4c4', 'black'),
  ('#318bbb', 'black'),
  ('#0072b2', 'white'),
)


@dataclasses.dataclass(frozen=True, eq=False)
class _Forest:
  """Holds the nodes that have a width, each below its first parent."""

  # The width is the number of judged documents with the node as gold, or the
  # sum of the children's widths, if it is larger.

  hierarchy: Hierarchy
  nodes: np.ndarray  # int [M], numbers in the hierarchy
  parents: np.ndarray  # int [M], places in `nodes`; PAD for roots
  widths: np.ndarray  # int [M]
  gold: np.ndarray  # int [M], judged documents of a label; PAD for concepts

  @classmethod
  def of(cls, hierarchy: Hierarchy, gold_L: np.ndarray) -> '_Forest':
    """Makes the forest; gold_L counts the judged documents of each label."""
    first, n = hierarchy.first_parents, hierarchy.n_labels
    gold_V = np.full(len(hierarchy), PAD, np.int64)
    gold_V[:n] = gold_L
    below_V = np.zeros(len(hierarchy), np.int64)
    widths_V = np.maximum(gold_V, 0)
    for node in hierarchy.top_down[::-1].tolist():
      widths_V[node] = max(widths_V[node], below_V[node])
      if first[node] != PAD:
        below_V[first[node]] += widths_V[node]
    nodes = np.flatnonzero(widths_V)
    places_V = np.full(len(hierarchy), PAD, np.int64)
    places_V[nodes] = np.arange(len(nodes))
    parents = np.where(first[nodes] == PAD, PAD, places_V[first[nodes]])
    return cls(hierarchy, nodes, parents, widths_V[nodes], gold_V[nodes])


def taxonomy_blocks(
  groups: Sequence[Group],
  hierarchy: Hierarchy,
  names: Mapping[str, str],
) -> list[Block]:
  """Draws the hierarchy of the first system's labels."""
  first = groups[0].first.predictions
  gold_L = np.bincount(first.gold.values, minlength=len(first.labels))
  forest = _Forest.of(hierarchy, gold_L)
  if not len(forest.nodes):
    return [Text('No document has a gold label, so no hierarchy is drawn.')]
  ids = list(hierarchy.ids[forest.nodes])
  shown = [names.get(id_, id_) for id_ in ids]
  scores, decided = {}, {}
  for group in groups:
    f1, decided[group.name] = _f1_by_id(group.first)
    # A label that is never gold has no F1.
    scores[group.name] = [
      f1.get(id_) if n > 0 else None for id_, n in zip(ids, forest.gold)
    ]
  tree = Tree(
    names=shown,
    ids=ids,
    parents=forest.parents.tolist(),
    levels=hierarchy.levels[forest.nodes].tolist(),
    widths=forest.widths.tolist(),
    counts=[None if n == PAD else n for n in forest.gold.tolist()],
    values=scores,
    palette=PALETTE,
    count_name='support',
    value_name='F1',
    alt=_alt(forest, shown, scores),
    caption=_caption(forest, decided),
  )
  return [tree]


def _f1_by_id(run: JudgedRun) -> tuple[dict[str, float], str]:
  """Returns the F1 of each label of a run, and a text on what is predicted."""
  # That is the labels above the threshold of micro-F1, or, if this is not known
  # from the saved lists, the first labels of each list.
  predictions = run.predictions
  cuts = thresholds(predictions, None)
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  end, decided = '', 'the labels above the threshold of micro-F1'
  if cuts[end] is None or part.n_short_above(cuts[end]):
    end, decided = f'@{USUAL_K}', f'the first {USUAL_K} labels of each list'
  by = Criteria((USUAL_K,), kinds=('macro-F1', 'macro-F1@k'))
  evidence = SliceStatistics.of(
    part, by, by.protocols, cuts, predictions.n_train
  )
  f1_L = label_f1(evidence, end)
  return dict(zip(predictions.labels, f1_L.tolist(), strict=True)), decided


def _caption(forest: _Forest, decided: Mapping[str, str]) -> str:
  hierarchy = forest.hierarchy
  several = int((hierarchy.parents.lengths[forest.nodes] > 1).sum())
  rules = '; '.join(f'by {system}, {rule}' for system, rule in decided.items())
  return (
    'Each bar is a label; its children stand below it, the widest first. The '
    'width is the number of judged documents that have the label, or the sum '
    "of its children's widths, if it is larger. The colour is the F1 of the "
    'label. Grey bars are concepts that are no labels, labels that are left '
    'out of judging, or labels that are gold for no document. Predicted are, '
    f'{rules}. {several:,} of the bars have several parents; each stands only '
    'below its first parent. Not drawn, because neither they nor labels below '
    f'them are gold: {len(hierarchy) - len(forest.nodes):,} labels and '
    'concepts. If a system has several runs, the first run is shown.'
  )


def _alt(
  forest: _Forest,
  names: Sequence[str],
  scores: Mapping[str, Sequence[float | None]],
) -> str:
  widest = np.argsort(-forest.widths, kind='stable')[:10].tolist()
  parts = []
  for node in widest:
    values = (
      f'{system} {values[node]:.2f}'
      for system, values in scores.items()
      if values[node] is not None
    )
    parts.append(', '.join([names[node], *values]))
  return (
    f'Hierarchy of {len(names):,} labels and concepts. F1 of the widest: '
    f'{"; ".join(parts)}'
  )
