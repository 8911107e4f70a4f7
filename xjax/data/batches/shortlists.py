"""Makes the shortlists of training documents from proposals."""

from collections.abc import Sequence
import dataclasses

from jaxtyping import Bool, Float32, Int32
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Ragged, Shortlist


@dataclasses.dataclass(frozen=True, eq=False)
class TrainShortlists:
  """Makes the shortlists of training documents.

  Each document keeps K nodes: first the nodes of its gold labels, then the
  proposed nodes. A node is a label, or a cluster whose children are labels. So
  no gold label is ever lost.

  Attributes:
    nodes_NK: int32, the proposed nodes of each document, best first, PAD after
      the last node.
    kept: the number K of nodes that a document keeps.
    children: int32 [nodes, most], the labels of each cluster, PAD elsewhere.
      None if nodes are labels.
    parent_L: int32 [L], the cluster of each label. None if nodes are labels.
    costs: N rows, how much each gold label counts in the loss, in the order of
      the gold labels. None if all labels count equally.
  """

  nodes_NK: Int32[np.ndarray, 'N K']
  kept: int
  children: Int32[np.ndarray, 'nodes most'] | None = None
  parent_L: Int32[np.ndarray, ' L'] | None = None
  costs: Ragged | None = None

  def check(self, gold: Ragged, ids: Sequence[str], field: str) -> None:
    """Checks that a document's shortlist has room for all its gold labels.

    Args:
      gold: gold labels of the N documents.
      ids: ids of the documents.
      field: path of the config's field with K, for the message.

    Raises:
      ConfigError: a document has more than K nodes with gold labels.
    """
    nodes = gold.values
    if self.parent_L is not None:
      nodes = self.parent_L[nodes]
    document = np.repeat(np.arange(len(gold)), gold.lengths)
    pairs = np.unique(np.stack([document, nodes]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(gold))
    most = int(counts.max(initial=0))
    if most > self.kept:
      what = 'gold labels'
      if self.parent_L is not None:
        what = 'clusters with gold labels'
      raise ConfigError(
        f'{field}={self.kept}: document {ids[int(counts.argmax())]!a} has '
        f'{most} {what}, which must all be on its shortlist; set '
        f'{field}={most} or more'
      )

  def of(
    self, rows_B: Int32[np.ndarray, ' B'], positives_BP: np.ndarray
  ) -> Shortlist:
    """Returns the shortlists of some documents.

    Args:
      rows_B: int32 rows of the documents, PAD for rows that fill the batch.
      positives_BP: int32 gold labels, PAD elsewhere.

    Returns:
      The shortlists. A is K, or K times the number of columns of `children`.
      Priors are 0.
    """
    gold_BP = _distinct(self._nodes(positives_BP))
    proposed_BK = np.where(rows_B[:, None] == PAD, PAD, self.nodes_NK[rows_B])
    ids_BA = gold_first(gold_BP, proposed_BK, self.kept)
    if self.children is not None:
      ids_BA = children_of(self.children, ids_BA)
    same_BAP = ids_BA[:, :, None] == positives_BP[:, None, :]
    same_BAP &= (positives_BP != PAD)[:, None, :]
    gold_BA = same_BAP.any(axis=2)
    prior_BA = np.zeros(ids_BA.shape, np.float32)
    return Shortlist(ids_BA, gold_BA, prior_BA, self._weights(rows_B, same_BAP))

  def _nodes(self, positives_BP: np.ndarray) -> np.ndarray:
    """Returns the node of each gold label."""
    if self.parent_L is None:
      return positives_BP
    return np.where(positives_BP == PAD, PAD, self.parent_L[positives_BP])

  def _weights(
    self, rows_B: np.ndarray, same_BAP: Bool[np.ndarray, 'B A P']
  ) -> Float32[np.ndarray, 'B A'] | None:
    """Returns the costs of gold labels, and 1 for all other labels."""
    if self.costs is None:
      return None
    costs_BP = self.costs.padded(rows_B, same_BAP.shape[2], 0)
    costs_BA = (same_BAP * costs_BP[:, None, :]).sum(axis=2)
    return np.where(same_BAP.any(axis=2), costs_BA, 1).astype(np.float32)


def gold_first(
  gold_BP: np.ndarray, proposed_BK: np.ndarray, kept: int
) -> Int32[np.ndarray, 'B kept']:
  """Returns gold nodes, then proposed nodes that are not gold, in order.

  Args:
    gold_BP: int32 gold nodes, each once, and PAD.
    proposed_BK: int32 proposed nodes, each once, and PAD.
    kept: number of nodes to return; PAD fills the places after the last node.
  """
  is_gold_BK = (proposed_BK[:, :, None] == gold_BP[:, None, :]).any(axis=2)
  rest_BK = np.where(is_gold_BK, PAD, proposed_BK)
  empty_BK = np.full((len(gold_BP), kept), PAD)
  nodes = np.concatenate([gold_BP, rest_BK, empty_BK], axis=1)
  order = np.argsort(nodes == PAD, axis=1, kind='stable')[:, :kept]
  return np.take_along_axis(nodes, order, axis=1).astype(np.int32)


def children_of(
  children: np.ndarray, nodes_BK: np.ndarray
) -> Int32[np.ndarray, 'B A']:
  """Returns the children of some nodes of each document.

  Args:
    children: int32 [nodes, most], PAD elsewhere.
    nodes_BK: int32 nodes, and PAD.

  Returns:
    A = K * most labels; the children of the first node come first. PAD is in
    the places of missing children.
  """
  real_BK1 = (nodes_BK != PAD)[:, :, None]
  below = np.where(real_BK1, children[nodes_BK], PAD)
  return below.reshape(len(nodes_BK), -1).astype(np.int32)


def _distinct(nodes_BP: np.ndarray) -> np.ndarray:
  """Returns sorted rows, with PAD in place of repeated values."""
  nodes_BP = np.sort(nodes_BP, axis=1)
  nodes_BP[:, 1:][nodes_BP[:, 1:] == nodes_BP[:, :-1]] = PAD
  return nodes_BP
