"""Measures how many gold labels the shortlists of a model have."""

from collections.abc import Callable, Iterable

import numpy as np

from xjax.core.progress import progress
from xjax.core.types import PAD, Batch, Scorer
from xjax.select.proposer import Proposer


def shortlist_recalls(
  scorer: Scorer, batches: Iterable[Batch]
) -> dict[str, float]:
  """Returns the share of gold labels that each step of a model keeps.

  A label that a step loses cannot be predicted any more, so these shares are
  upper bounds of the recall of the model.

  Args:
    scorer: the scorer of the model.
    batches: batches of documents with gold labels, and with the proposer's
      batches of the same documents.

  Returns:
    Name -> mean over the documents that have gold labels. The name is
    'shortlist: recall@A' for a shortlist of A labels, and 'level r: recall@K'
    for the K clusters that are kept in level r, where 0 is the coarsest level.
    The dict is empty if the model scores all labels.
  """
  if proposer := getattr(scorer, 'proposer', None):
    return _means(
      _names(proposer),
      batches,
      lambda *arguments: _shares(proposer, *arguments),
    )
  if size := getattr(scorer, 'shortlist', None):
    return _means(
      [f'shortlist: recall@{size}'],
      batches,
      lambda batch, *_: [scorer.kept_gold(batch)],
    )
  return {}


def _means(
  names: list[str],
  batches: Iterable[Batch],
  shares_of: Callable[..., list[np.ndarray]],
) -> dict[str, float]:
  """Returns the mean share of each step over documents with gold labels.

  Args:
    names: names of the steps.
    batches: the documents.
    shares_of: (batch, gold_BP, has_gold_B) -> float [B] for each step.
  """
  sums, documents = np.zeros(len(names)), 0
  with progress(batches, 'recall of shortlists', unit='batch') as shown:
    for batch in shown:
      gold_BP = batch.positives_BP
      has_gold_B = batch.mask_B & (gold_BP != PAD).any(axis=1)
      documents += int(has_gold_B.sum())
      shares = shares_of(batch, gold_BP, has_gold_B)
      sums += [np.where(has_gold_B, share_B, 0).sum() for share_B in shares]
  return dict(zip(names, (sums / max(1, documents)).tolist(), strict=True))


def _above(proposer: Proposer) -> Proposer | None:
  """Returns the proposer of the model that proposes clusters."""
  if proposer.clusters is None:
    return None
  scorer = getattr(proposer.scorer, 'scorer', proposer.scorer)
  return getattr(scorer, 'proposer', None)


def _depth(proposer: Proposer) -> int:
  above = _above(proposer)
  return 1 if above is None else 1 + _depth(above)


def _names(proposer: Proposer) -> list[str]:
  """Returns the names of all steps, from the labels to the first level."""
  if proposer.clusters is None:
    return [f'shortlist: recall@{proposer.size}']
  kept = min(proposer.kept, proposer.scorer.n_labels)
  above = _above(proposer)
  name = f'level {_depth(proposer) - 1}: recall@{kept}'
  return [name, *([] if above is None else _names(above))]


def _shares(
  proposer: Proposer, batch: Batch, gold_BP: np.ndarray, has_gold_B: np.ndarray
) -> list[np.ndarray]:
  """Returns the share of gold labels that each step keeps, by document.

  Args:
    proposer: makes the shortlists.
    batch: the documents.
    gold_BP: gold labels, or their clusters, each as often as it has gold
      labels; PAD elsewhere.
    has_gold_B: bool, the documents that count.
  """
  ids, _ = proposer.nodes(batch.proposed, len(gold_BP))
  nodes_BP = gold_BP
  if proposer.clusters is not None:
    parent_L = proposer.clusters.parent_L
    inside = (gold_BP != PAD) & (gold_BP < len(parent_L))
    nodes_BP = np.where(inside, parent_L[np.where(inside, gold_BP, 0)], PAD)
  kept_BP = (nodes_BP[:, :, None] == ids[0][:, None, :]).any(axis=2)
  kept_BP &= nodes_BP != PAD
  count_B = np.maximum((gold_BP != PAD).sum(axis=1), 1)
  shares = [np.where(has_gold_B, kept_BP.sum(axis=1) / count_B, 0)]
  above = _above(proposer)
  if above is not None:
    parts = [np.zeros(len(gold_BP)) for _ in range(_depth(above))]
    for other in batch.proposed:
      real_B = other.doc_B != PAD
      rows = other.doc_B[real_B]
      gold = np.full((len(real_B), nodes_BP.shape[1]), PAD, nodes_BP.dtype)
      gold[real_B] = nodes_BP[rows]
      counts = np.zeros(len(real_B), bool)
      counts[real_B] = has_gold_B[rows]
      for part, share_B in zip(parts, _shares(above, other, gold, counts)):
        part[rows] = share_B[real_B]
    shares += parts
  return shares
