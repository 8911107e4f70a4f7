"""Measures how many gold labels each step of a search keeps, while it ranks."""

from collections.abc import Mapping, Sequence
import typing

from jaxtyping import Bool, Float32, Int32
import numpy as np

from xjax.core.distributed import all_rows
from xjax.core.types import PAD, Batch, Scorer
from xjax.judge.metrics.slices import ALL

if typing.TYPE_CHECKING:
  from xjax.models.staged.proposer import Proposer


class MeasuredScorer:
  """Ranks labels as another scorer does, and measures what its search loses.

  The best labels are searched for in steps. A label that a step loses cannot be
  predicted any more. So the share of gold labels that a step keeps, its recall,
  is an upper bound of the recall of the model. Each slice has a search of its
  own. These steps are measured:

  - `shortlist recall@A`: the shortlist of A labels;
  - `level r recall@K`: the K clusters that are kept in level r, where 0 is the
    coarsest level;
  - `union recall@A`: the lists of all runs of an ensemble or all proposers of a
    stack, at most A labels.

  Attributes:
    score_kind, n_labels, assigned_above, selected_by: as in core.types.Scorer.
  """

  def __init__(self, scorer: Scorer, masks: Mapping[str, np.ndarray]):
    """Makes a scorer.

    Args:
      scorer: the scorer of the model.
      masks: slice name -> bool [L], the slices whose recalls are measured, in
        addition to the slice of all labels.
    """
    self.score_kind, self.n_labels = scorer.score_kind, scorer.n_labels
    self.assigned_above = scorer.assigned_above
    self.selected_by = scorer.selected_by
    self._scorer = scorer
    self._names, self._masks = (ALL, *masks), tuple(masks.values())
    self._steps = tuple(_steps(scorer))
    self._sums_GS = np.zeros((len(self._names), len(self._steps)))
    self._documents_G = np.zeros(len(self._names), np.int64)

  def topk(
    self,
    batch: Batch,
    k: int,
    slices: Sequence[np.ndarray] = (),
    allowed: Bool[np.ndarray, ' L_or_more'] | None = None,
  ) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
    """Returns the k best labels of each document; see core.types.Scorer.

    Args:
      batch: documents with gold labels.
      k: length of the lists.
      slices: the measured slices, and then perhaps other slices.
      allowed: labels that may be selected. Other labels are not measured.
    """
    filters = {'slices': slices}
    if allowed is not None:
      filters['allowed'] = allowed
    if not self._steps:
      return self._scorer.topk(batch, k, **filters)
    gold_GBP = self._gold(batch, allowed)
    if getattr(self._scorer, 'shortlist', None):
      measured = len(self._masks)
      ids, scores, kept_GBS = self._scorer.measured_topk(
        batch, k, measured=measured, **filters
      )
      self._add(batch, gold_GBP, kept_GBS[:, :, ::-1])
      return ids, scores
    longer = max(k, _listed(self._scorer))
    ids, scores = self._scorer.topk(batch, longer, **filters)
    kept_GBS = self._kept(batch, gold_GBP, ids[: len(self._names)], allowed)
    self._add(batch, gold_GBP, kept_GBS)
    return ids[:, :, :k], scores[:, :, :k]

  def recalls(self) -> dict[str, dict[str, float]]:
    """Returns the recalls over all documents that were ranked so far.

    Returns:
      Slice name -> step -> mean over the documents that have gold labels in the
      slice. A slice without gold labels has no entry. The dict is empty if the
      search does not have these steps.
    """
    if not self._steps:
      return {}
    parts = zip(self._names, self._sums_GS, self._documents_G, strict=True)
    return {
      name: dict(zip(self._steps, (sums_S / n).tolist(), strict=True))
      for name, sums_S, n in parts
      if n
    }

  def _gold(
    self, batch: Batch, allowed: np.ndarray | None
  ) -> Int32[np.ndarray, 'G B P']:
    """Returns the gold labels of each slice that are allowed."""
    positives_BP = np.asarray(batch.positives_BP)
    if allowed is not None:
      positives_BP = _cut(positives_BP, allowed)
    return np.stack(
      [positives_BP, *(_cut(positives_BP, mask) for mask in self._masks)]
    )

  def _add(
    self, batch: Batch, gold_GBP: np.ndarray, kept_GBS: np.ndarray
  ) -> None:
    """Adds the recalls of a batch, over the documents of all processes."""
    counts_GB1 = (gold_GBP != PAD).sum(axis=2, dtype=np.int32)[:, :, None]
    doc_B, counts_GB1, kept_GBS = all_rows(batch.doc_B, counts_GB1, kept_GBS)
    shares_GBS = kept_GBS / np.maximum(counts_GB1, 1)
    has_GB = (counts_GB1[:, :, 0] > 0) & (doc_B != PAD)
    self._sums_GS += np.where(has_GB[:, :, None], shares_GBS, 0).sum(axis=1)
    self._documents_G += has_GB.sum(axis=1)

  def _kept(
    self,
    batch: Batch,
    gold_GBP: np.ndarray,
    ids_GBA: np.ndarray,
    allowed: np.ndarray | None,
  ) -> Int32[np.ndarray, 'G B S']:
    """Returns how many gold labels each step keeps.

    The labels of the last kept clusters are the shortlist, so both steps keep
    the same gold labels.
    """
    proposer = _proposer(self._scorer)
    listed = _counts(gold_GBP, ids_GBA)
    if proposer is None or proposer.clusters is None:
      return listed
    levels = _levels_above(proposer, batch, gold_GBP, self._masks, allowed)
    return np.concatenate([listed, listed, levels], axis=2)


def _proposer(scorer: Scorer) -> 'Proposer | None':
  return getattr(scorer, 'proposer', None)


def _steps(scorer: Scorer) -> list[str]:
  """Returns the names of the steps, from the labels to the first level."""
  if size := _union_size(scorer):
    return [f'union recall@{size}']
  if proposer := _proposer(scorer):
    return [f'shortlist recall@{proposer.size}', *_levels(proposer)]
  if size := getattr(scorer, 'shortlist', None):
    kept = scorer.kept_clusters
    levels = [f'level {r} recall@{n}' for r, n in enumerate(kept)]
    return [f'shortlist recall@{size}', *levels[::-1]]
  return []


def _listed(scorer: Scorer) -> int:
  """Returns how many labels a list must have to show what the search keeps."""
  proposer = _proposer(scorer)
  return proposer.size if proposer else _union_size(scorer)


def _union_size(scorer: Scorer) -> int:
  """Returns the size of the union of an ensemble's lists, else 0."""
  return getattr(scorer, 'union_size', 0)


def _above(proposer: 'Proposer') -> 'Proposer | None':
  """Returns the proposer of the model that proposes clusters."""
  if proposer.clusters is None:
    return None
  return _proposer(getattr(proposer.scorer, 'scorer', proposer.scorer))


def _levels(proposer: 'Proposer | None') -> list[str]:
  """Returns the names of the levels of clusters, from fine to coarse."""
  if proposer is None or proposer.clusters is None:
    return []
  above = _levels(_above(proposer))
  kept = min(proposer.kept, proposer.scorer.n_labels)
  return [f'level {len(above)} recall@{kept}', *above]


def _levels_above(
  proposer: 'Proposer',
  batch: Batch,
  gold_GBP: np.ndarray,
  masks: Sequence[np.ndarray],
  allowed: np.ndarray | None,
) -> Int32[np.ndarray, 'G B _']:
  """Counts the gold labels that the levels above the last level keep.

  Args:
    proposer: proposes the clusters of the last level.
    batch: the documents, with the proposer's batches of the same documents.
    gold_GBP: gold labels, or the clusters of gold labels. A cluster occurs as
      often as it has gold labels.
    masks: bool [nodes], the nodes of each slice.
    allowed: bool [nodes], the nodes that may be proposed; None for all.

  Returns:
    Numbers of labels, with an entry for each level, from fine to coarse.
  """
  above = _above(proposer)
  kept = np.zeros((*gold_GBP.shape[:2], len(_levels(above))), np.int32)
  if not kept.size:
    return kept
  nodes_GBP = _parents(proposer, gold_GBP)
  masks = [proposer.clusters.best(mask) for mask in masks]
  if allowed is not None:
    allowed = proposer.clusters.best(allowed)
  for other in batch.proposed:
    real_B = other.doc_B != PAD
    rows = other.doc_B[real_B]
    shape = len(nodes_GBP), len(real_B), nodes_GBP.shape[2]
    gold = np.full(shape, PAD, nodes_GBP.dtype)
    gold[:, real_B] = nodes_GBP[:, rows]
    ids, _ = above.nodes(other.proposed, len(real_B), None, masks, allowed)
    own = _counts(_parents(above, gold), ids)
    levels = np.concatenate(
      [own, _levels_above(above, other, gold, masks, allowed)], axis=2
    )
    kept[:, rows] = levels[:, real_B]
  return kept


def _parents(proposer: 'Proposer', nodes: np.ndarray) -> np.ndarray:
  """Returns the clusters of nodes; PAD for PAD and for unknown labels."""
  parent_L = proposer.clusters.parent_L
  inside = (nodes != PAD) & (nodes < len(parent_L))
  return np.where(inside, parent_L[np.where(inside, nodes, 0)], PAD)


def _cut(gold_BP: np.ndarray, mask_L: np.ndarray) -> np.ndarray:
  """Replaces gold labels outside a slice by PAD."""
  return np.where((gold_BP != PAD) & mask_L[gold_BP], gold_BP, PAD)


def _counts(
  gold_GBP: np.ndarray, ids_GBK: np.ndarray
) -> Int32[np.ndarray, 'G B 1']:
  """Counts the gold labels that are in the list of their document."""
  width = 1 + max(gold_GBP.max(initial=0), ids_GBK.max(initial=0))
  documents = np.arange(np.prod(gold_GBP.shape[:2], dtype=np.int64))
  rows = documents.reshape(*gold_GBP.shape[:2], 1) * width
  listed = (rows + ids_GBK)[ids_GBK != PAD]
  kept_GBP = np.isin(rows + gold_GBP, listed) & (gold_GBP != PAD)
  return kept_GBP.sum(axis=2, keepdims=True, dtype=np.int32)
