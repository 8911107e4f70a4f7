"""One slice's lists and gold, and every metric of it."""

from collections.abc import Iterator
import dataclasses
from typing import Any

import numpy as np

from xjax.core.types import PAD, Ragged
from xjax.evaluate.predictions import Lists, Predictions
from xjax.metrics.f1 import F1, ThresholdF1
from xjax.metrics.ranking import Ranking
from xjax.metrics.slices import ALL, cut

ROWS = 1024  # documents at a time: one shape, so one trace
LISTS = 'lists'  # the note on lists that are cut from those of all labels
_NONE = np.float32(-np.inf)


@dataclasses.dataclass(frozen=True)
class Slice:
  """One slice's lists and gold.

  Attributes:
    lists: of N documents.
    floor: float32 [N], a score that no label of the slice outside the
      document's list is above; -inf where the list has all there are.
    is_cut: whether the lists are what the slice has of those of all labels.
    gold: cut to the slice.
    width: of padded gold, the same for all slices.
    n_labels: labels in the slice.
    n_space: labels in the label space.
  """

  lists: Lists
  floor: np.ndarray
  is_cut: bool
  gold: Ragged
  width: int
  n_labels: int
  n_space: int

  @classmethod
  def of(cls, predictions: Predictions, name: str, mask: np.ndarray) -> 'Slice':
    """The named slice, whose labels are where mask, bool [L], is True.

    Without lists of its own it gets what it has of the lists of all labels.
    """
    most = int(predictions.gold.lengths.max(initial=1))
    n_listable = int(mask[: predictions.n_scored].sum())
    is_cut = name not in predictions.lists
    lists = predictions.lists[ALL if is_cut else name]
    floor = lists.floor(predictions.n_scored if is_cut else n_listable)
    if is_cut:
      lists = lists.cut(mask)
      floor = np.where(lists.lengths >= n_listable, _NONE, floor)
    return cls(
      lists=lists,
      floor=floor,
      is_cut=is_cut,
      gold=cut(predictions.gold, mask),
      width=1 << max(most - 1, 0).bit_length(),
      n_labels=int(mask.sum()),
      n_space=len(predictions.labels),
    )

  @property
  def depth(self) -> int:
    """K, the length of the lists."""
    return self.lists.ids.shape[1]

  def n_short(self, k: int) -> int:
    """Documents of which neither k labels nor all there are are listed."""
    return int(((self.lists.lengths < k) & (self.floor > _NONE)).sum())

  def blocks(self) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields (ids, scores, floor, gold, mask) of ROWS documents, padded."""
    n_docs = len(self.gold)
    for start in range(0, n_docs, ROWS):
      rows = np.arange(start, start + ROWS)
      mask_B = rows < n_docs
      rows_B = np.where(mask_B, rows, 0)
      gold_BP = self.gold.padded(np.where(mask_B, rows, PAD), self.width, PAD)
      ids, scores = self.lists.ids, self.lists.scores
      floor_B = self.floor[rows_B]
      yield ids[rows_B], scores[rows_B], floor_B, gold_BP, mask_B

  def best_threshold(self) -> float:
    """The threshold, in the scores' unit, of best micro-F1.

    Only thresholds at which that F1 is known from the lists are tried: none
    below the last score of a list that ends before all labels are in it.
    """
    ids, scores = self.lists.ids, self.lists.scores.astype(np.float64)
    rows = np.arange(len(ids), dtype=np.int64)[:, None]
    owners = np.repeat(rows[:, 0], self.gold.lengths)
    hit = np.isin(
      rows * self.n_space + ids, owners * self.n_space + self.gold.values
    )
    real = ids != PAD
    order = np.argsort(-scores[real], kind='stable')
    ranked, correct = scores[real][order], np.cumsum(hit[real][order])
    if not len(ranked):
      return 0.0  # whatever it is, nothing is predicted
    micro = (
      2 * correct / (np.arange(1, len(ranked) + 1) + len(self.gold.values))
    )
    # Halfway to the next score; the last one is above all that is lower.
    below = np.append(ranked[1:], -np.inf)
    floor = self.floor.max(initial=_NONE)
    micro[(below == ranked) | (below < floor)] = -1
    best = int(np.argmax(micro))
    if micro[best] < 0:
      return float(floor)
    if best == len(ranked) - 1:
      return float(np.nextafter(ranked[-1], -np.inf))
    return float((ranked[best] + below[best]) / 2)


def judge_slice(
  part: Slice, ks: tuple[int, ...], thresholds: dict[str, float | None]
) -> tuple[dict[str, Any], dict[str, str]]:
  """All metrics of a slice.

  Args:
    part: the slice.
    ks: cut-offs.
    thresholds: name -> score threshold of micro- and macro-<name>; None: these
      scores have none.

  Returns:
    metric -> value or None, and for each None metric -> reason; if the lists
    are cut from those of all labels, LISTS -> how many are short.
  """
  ranking = Ranking.empty(ks)
  f1s = {
    name: ThresholdF1.empty(part.n_space)
    for name, threshold in thresholds.items()
    if threshold is not None
  }
  for ids_BK, scores_BK, floor_B, gold_BP, mask_B in part.blocks():
    ranking = ranking.update(ids_BK, gold_BP, mask_B, floor_B == _NONE)
    for name, state in f1s.items():
      f1s[name] = state.update(
        ids_BK, scores_BK, gold_BP, mask_B, floor_B, thresholds[name]
      )
  values = {
    'n_docs': int(ranking.documents),
    'n_skipped': int(ranking.skipped),
    'n_labels': part.n_labels,
    **ranking.compute(),
  }
  for name in thresholds:
    f1 = f1s[name].compute(part.n_labels) if name in f1s else F1(None, None)
    values[f'micro-{name}'], values[f'macro-{name}'] = f1.micro, f1.macro
  reasons = _reasons(part, values, ranking, f1s)
  if part.is_cut:
    reasons[LISTS] = _how_cut(part, max(ks))
  return values, reasons


def _how_cut(part: Slice, k: int) -> str:
  n_docs, n_short = len(part.gold), part.n_short(k)
  return (
    f'cut from those of all labels; of the {part.depth} saved, {n_short} of '
    f'{n_docs} documents ({n_short / max(n_docs, 1):.1%}) have fewer than {k} '
    'labels left'
  )


def _reasons(
  part: Slice,
  values: dict[str, Any],
  ranking: Ranking,
  f1s: dict[str, ThresholdF1],
) -> dict[str, str]:
  missing = [metric for metric, value in values.items() if value is None]
  n_docs = values['n_docs']
  if not n_docs:
    return dict.fromkeys(missing, 'no document has a gold label here')
  unknowns = ranking.unknowns()
  reasons = {}
  for metric in missing:
    name = metric.partition('-')[2]
    if metric in unknowns:
      reasons[metric] = (
        f'{unknowns[metric]} of {n_docs} documents need a list deeper than '
        f'the {part.depth} labels saved'
      )
    elif name in f1s:
      reasons[metric] = (
        f'{int(f1s[name].unknown)} of {len(part.gold)} documents may have more '
        f'labels above the threshold than the {part.depth} saved'
      )
    else:
      reasons[metric] = 'the scores are margins, not probabilities'
  return reasons
