"""Counts the gold labels in the lists of a run, by place and by label."""

import dataclasses

import jax
import numpy as np

from xjax.core.types import PAD
from xjax.judge.metrics.documents import Precision, Recall, RecallAtMost
from xjax.judge.metrics.exact import Array, exact
from xjax.judge.metrics.label_sums import in_bins
from xjax.judge.metrics.slices import ALL
from xjax.judge.metrics.sums import DocumentBlock
from xjax.judge.predictions import Predictions
from xjax.judge.slice import Slice

_CURVES = {'P': Precision(), 'R': Recall(), 'RP': RecallAtMost()}
CURVES = tuple(_CURVES)


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
  """Holds which entries of lists over all labels are gold, and their metrics.

  Metrics are means over the documents with gold. Places after the end of a list
  count as wrong.
  """

  hits: np.ndarray  # bool [N, K], whether each entry is gold
  curves: dict[str, np.ndarray]  # P, R or RP -> float64 [K], at k = 1, 2, ...


def tally(predictions: Predictions) -> Tally:
  """Compares the lists over all labels with gold, which must exist."""
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  ks = tuple(range(1, part.depth + 1))
  hits = np.zeros((len(part), part.depth), bool)
  sums = {kind: np.zeros(part.depth) for kind in CURVES}
  count = _block if part.is_small else _compiled_block
  with exact():
    for rows, documents in part.blocks():
      hits_BK, sums_K = count(documents, ks)
      hits[rows] = np.asarray(hits_BK)[: len(rows)]
      for kind, values in sums_K.items():
        sums[kind] += np.asarray(values)
  sums['P'] /= np.asarray(ks)
  n_docs = max(part.n_with_gold, 1)
  return Tally(hits, {kind: values / n_docs for kind, values in sums.items()})


def _block(
  documents: DocumentBlock, ks: tuple[int, ...]
) -> tuple[Array, dict[str, Array]]:
  ranked = documents.ranked(ks)
  # A document without gold adds 0 to every sum.
  mask_B1 = documents.mask_B[:, None]
  sums_K = {
    name: ranked.xp.where(mask_B1, metric.over(ranked), 0).sum(0)
    for name, metric in _CURVES.items()
  }
  return ranked.hits_BK, sums_K


_compiled_block = jax.jit(_block, static_argnames='ks')


@dataclasses.dataclass(frozen=True, eq=False)
class LabelTally:
  """Holds counts of documents for each label, int64 [L] each.

  A label is predicted for a document if the label is among the first k entries
  of the document's list.
  """

  correct: np.ndarray  # predicted and gold
  predicted: np.ndarray
  gold: np.ndarray

  @property
  def lost(self) -> np.ndarray:
    """Counts documents where a label is gold but not predicted, int64 [L]."""
    return self.gold - self.correct

  def expected_lost(self, frequencies: np.ndarray) -> np.ndarray:
    """Computes how often each label would be lost, given only its frequency.

    A label is expected to be lost as often as the gold labels in its bin of
    frequency (label_sums.in_bins) are on average. Both arrays are [L].
    """
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
  """Counts the documents of each label, among the first k predicted labels.

  `hits` are those of tally() of the same predictions.
  """
  ids, n_labels = predictions.lists[ALL].ids[:, :k], len(predictions.labels)

  def count(labels: np.ndarray) -> np.ndarray:
    return np.bincount(labels, minlength=n_labels)

  return LabelTally(
    correct=count(ids[hits[:, :k]]),
    predicted=count(ids[ids != PAD]),
    gold=count(predictions.gold.values),
  )
