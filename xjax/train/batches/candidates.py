"""Makes the shortlists of training documents from proposals."""

from collections.abc import Sequence
import dataclasses
import enum
import functools
from typing import Self

from jaxtyping import Int32
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Ragged
from xjax.networks.batch import Shortlist


class Candidates(enum.Enum):
  """Says which clusters, besides those with gold, have their labels scored."""

  # K clusters: those with gold labels, of which no document may have more than
  # K, then the best proposed clusters.
  GOLD_FIRST = 'gold_first'
  # K clusters, or more if more have gold labels. Places that small clusters
  # leave empty are filled with random labels, which are others in each epoch
  # (the code of AttentionXML, You et al. 2019).
  GOLD_FIRST_RANDOM = 'gold_first_random'
  # The K best proposed clusters, and all clusters with gold labels
  # (XR-Transformer, Zhang et al. 2021, Section 3.2).
  UNION = 'union'


@dataclasses.dataclass(frozen=True, eq=False)
class TrainShortlists:
  """Makes the shortlists of training documents.

  Each document keeps some nodes: first the nodes of its gold labels, then the
  proposed nodes. A node is a label, or a cluster whose children are labels.
  """

  # The proposed nodes of each document, best first, then PAD.
  nodes_NK: Int32[np.ndarray, 'N K']
  # The number K of nodes that a document keeps. With Candidates.UNION, it keeps
  # all of its nodes_NK instead.
  kept: int
  # The labels of each cluster, then PAD, and the cluster of each label. Both
  # are None if nodes are labels.
  children: Int32[np.ndarray, 'nodes most'] | None = None
  parent_L: Int32[np.ndarray, ' L'] | None = None
  # N rows, how much each gold label counts in the loss, in the order of the
  # gold labels. None if all labels count equally.
  costs: Ragged | None = None
  candidates: Candidates = Candidates.GOLD_FIRST
  # Largest number of nodes with gold labels of a document. With GOLD_FIRST, it
  # is not needed (see with_room).
  gold_room: int = 0

  def with_room(self, gold: Ragged, ids: Sequence[str], field: str) -> Self:
    """Returns shortlists with room for all gold labels of every document."""
    # With GOLD_FIRST, there must be room already, as for `check`.
    if self.candidates is Candidates.GOLD_FIRST:
      self.check(gold, ids, field)
      return self
    most = int(self._gold_nodes(gold).max(initial=0))
    return dataclasses.replace(self, gold_room=most)

  def check(self, gold: Ragged, ids: Sequence[str], field: str) -> None:
    """Checks that shortlists have room for gold labels; `field` names K."""
    counts = self._gold_nodes(gold)
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

  def _gold_nodes(self, gold: Ragged) -> np.ndarray:
    nodes = gold.values
    if self.parent_L is not None:
      nodes = self.parent_L[nodes]
    pairs = np.unique(np.stack([gold.owners, nodes]), axis=1)
    return np.bincount(pairs[0], minlength=len(gold))

  def _length(self, gold_nodes_B: np.ndarray) -> int:
    """Returns the number of places for nodes of a document of a batch."""
    # One document with many gold labels must not make all shortlists longer.
    # But each length needs a compiled program: gold nodes get 8, 32, 128, ...
    room = 8
    while room < gold_nodes_B.max(initial=0):
      room *= 4
    room = min(room, self.gold_room)
    if self.candidates is Candidates.UNION:
      return min(self.nodes_NK.shape[1] + room, len(self.children))
    return max(self.kept, room)

  @functools.cached_property
  def _in_clusters(self) -> np.ndarray:
    return np.flatnonzero(self.parent_L != PAD)

  def of(
    self,
    rows_B: Int32[np.ndarray, ' B'],
    positives_BP: np.ndarray,
    rng: np.random.Generator,
  ) -> Shortlist:
    """Returns the shortlists of documents; rows and positives may have PAD."""
    # A is _length, times the columns of `children` if any.
    gold_BP = _distinct(self._nodes(positives_BP))
    proposed_BK = np.where(rows_B[:, None] == PAD, PAD, self.nodes_NK[rows_B])
    length = self._length((gold_BP != PAD).sum(axis=1))
    ids_BA = gold_first(gold_BP, proposed_BK, length)
    if self.candidates is Candidates.GOLD_FIRST_RANDOM:
      most_B1 = np.maximum((gold_BP != PAD).sum(axis=1), self.kept)[:, None]
      ids_BA[np.arange(length) >= most_B1] = PAD
    if self.children is not None:
      ids_BA = children_of(self.children, ids_BA)
    if self.candidates is Candidates.GOLD_FIRST_RANDOM:
      drawn_BA = rng.choice(self._in_clusters, ids_BA.shape)
      drawn_BA[rows_B == PAD] = PAD
      drawn_BA[:, self.kept * self.children.shape[1] :] = PAD
      ids_BA = _filled(ids_BA, drawn_BA)
    gold_BA, weights_BA = np.zeros(ids_BA.shape, bool), None
    if self.costs is not None:
      costs_BP = self.costs.padded(rows_B, positives_BP.shape[1], 0)
      weights_BA = np.ones(ids_BA.shape, np.float32)
    # One positive at a time, because [B, A, P] can take gigabytes.
    for i, positive_B in enumerate(positives_BP.T):
      same_BA = (ids_BA == positive_B[:, None]) & (ids_BA != PAD)
      gold_BA |= same_BA
      if weights_BA is not None:
        np.copyto(weights_BA, costs_BP[:, i : i + 1], where=same_BA)
    return Shortlist(ids_BA, gold_BA, weights_BA=weights_BA)

  def _nodes(self, positives_BP: np.ndarray) -> np.ndarray:
    if self.parent_L is None:
      return positives_BP
    return np.where(positives_BP == PAD, PAD, self.parent_L[positives_BP])


def gold_first(
  gold_BP: np.ndarray, proposed_BK: np.ndarray, kept: int
) -> Int32[np.ndarray, 'B kept']:
  """Returns `kept` nodes: gold ones, then other proposed ones, then PAD."""
  is_gold_BK = (proposed_BK[:, :, None] == gold_BP[:, None, :]).any(axis=2)
  rest_BK = np.where(is_gold_BK, PAD, proposed_BK)
  empty_BK = np.full((len(gold_BP), kept), PAD)
  nodes = np.concatenate([gold_BP, rest_BK, empty_BK], axis=1)
  # A stable sort moves PAD to the end, and keeps the order of nodes.
  order = np.argsort(nodes == PAD, axis=1, kind='stable')[:, :kept]
  return np.take_along_axis(nodes, order, axis=1).astype(np.int32)


def children_of(
  children: np.ndarray, nodes_BK: np.ndarray
) -> Int32[np.ndarray, 'B A']:
  """Returns the children of nodes, in order, with PAD in missing places."""
  real_BK1 = (nodes_BK != PAD)[:, :, None]
  below = np.where(real_BK1, children[nodes_BK], PAD)
  return below.reshape(len(nodes_BK), -1).astype(np.int32)


def _filled(
  ids_BA: np.ndarray, others_BA: np.ndarray
) -> Int32[np.ndarray, 'B A']:
  """Replaces PAD by other labels, except those that the row has already."""
  empty_BA = ids_BA == PAD
  ids_BA = np.where(empty_BA, others_BA, ids_BA)
  # The labels that were there come before equal labels that are new.
  order = np.lexsort((empty_BA, ids_BA), axis=1)
  sorted_BA = np.take_along_axis(ids_BA, order, axis=1)
  sorted_BA[:, 1:][sorted_BA[:, 1:] == sorted_BA[:, :-1]] = PAD
  np.put_along_axis(ids_BA, order, sorted_BA, axis=1)
  return ids_BA.astype(np.int32)


def _distinct(nodes_BP: np.ndarray) -> np.ndarray:
  """Returns sorted rows, with PAD in place of repeated values."""
  nodes_BP = np.sort(nodes_BP, axis=1)
  nodes_BP[:, 1:][nodes_BP[:, 1:] == nodes_BP[:, :-1]] = PAD
  return nodes_BP
