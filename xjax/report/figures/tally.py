"""Counts the gold labels in the lists of a run, by place and by label."""

import dataclasses

import numpy as np

from xjax.core.types import PAD, Ragged
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.label_sums import in_bins
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions

_ROWS = 1 << 16  # documents that are counted at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
  """Holds which entries of lists over all labels are gold, and the metrics."""

  # Metrics are means over the documents with gold. Places after the end of a
  # list count as wrong.

  hits: np.ndarray  # bool [N, K], whether each entry is gold
  curves: dict[str, np.ndarray]  # P, R or RP -> float64 [K], at k = 1, 2, ...


def tally(predictions: Predictions) -> Tally:
  """Compares the lists over all labels with gold, which must exist."""
  gold, lists = predictions.gold, predictions.lists[ALL]
  hits_NK = np.zeros(lists.ids.shape, bool)
  ks_K = np.arange(1, hits_NK.shape[1] + 1)
  sums = {kind: np.zeros(len(ks_K)) for kind in ('P', 'R', 'RP')}
  for start in range(0, len(hits_NK), _ROWS):
    block = slice(start, start + _ROWS)
    ends = gold.indptr[start : start + _ROWS + 1]
    own = Ragged(ends - ends[0], gold.values[ends[0] : ends[-1]])
    part = LabelLists(lists.ids[block], lists.scores[block])
    hits_NK[block] = part.hits(own, len(predictions.labels))
    has_gold_B = own.lengths > 0
    n_gold_B1 = own.lengths[has_gold_B, None]
    found_BK = hits_NK[block][has_gold_B].cumsum(1)
    sums['P'] += (found_BK / ks_K).sum(0)
    sums['R'] += (found_BK / n_gold_B1).sum(0)
    sums['RP'] += (found_BK / np.minimum(n_gold_B1, ks_K)).sum(0)
  n_docs = max(int((gold.lengths > 0).sum()), 1)
  curves = {kind: values / n_docs for kind, values in sums.items()}
  return Tally(hits_NK, curves)


@dataclasses.dataclass(frozen=True, eq=False)
class LabelTally:
  """Holds counts of documents for each label, int64 [L] each."""

  # A label is predicted if it is among the first k of a document's list.

  correct: np.ndarray  # predicted and gold
  predicted: np.ndarray
  gold: np.ndarray

  @property
  def lost(self) -> np.ndarray:
    return self.gold - self.correct

  def expected_lost(self, frequencies: np.ndarray) -> np.ndarray:
    """Computes how often each label would be lost, given only its frequency."""
    # That is the average of the gold labels in its bin (label_sums.in_bins).
    expected = np.zeros(len(self.gold))
    for labels_L in in_bins(frequencies).values():
      share = self.lost[labels_L].sum() / max(self.gold[labels_L].sum(), 1)
      expected[labels_L] = share * self.gold[labels_L]
    return expected

  @property
  def f1(self) -> np.ndarray:
    """Returns float64 [L], the F1 of each label; 0 / 0 counts as 0."""
    return 2 * self.correct / np.maximum(self.predicted + self.gold, 1)


def label_tally(
  predictions: Predictions, hits: np.ndarray, k: int
) -> LabelTally:
  """Counts the documents of each label, among the first k predicted labels."""
  ids, n_labels = predictions.lists[ALL].ids[:, :k], len(predictions.labels)

  def count(labels: np.ndarray) -> np.ndarray:
    return np.bincount(labels, minlength=n_labels)

  return LabelTally(
    correct=count(ids[hits[:, :k]]),
    predicted=count(ids[ids != PAD]),
    gold=count(predictions.gold.values),
  )
