"""The best labels of a label tree: beam search, and exact search.

Nodes are scored from the root down, all documents of a batch together: those
that open the same node share the look-up of its classifiers' features. A
label's score is the sum of its path's links; with label weights w, labels rank
by log w plus that. A node's bound is its own score plus the log of the largest
weight below it: no label below has a better one, since links add at most 0
(Schultheis et al. 2022, Appendix A.2, as a bound from above).

Beam search opens the best nodes of each depth. Exact search begins with a
narrow one, which finds k labels, and then opens every node whose bound is not
below the worst of them: none that is left can have a better label.
"""

from collections.abc import Sequence
import dataclasses
import enum
import functools
import math
from typing import Self

import numpy as np
from scipy import sparse

from xjax.core.types import PAD
from xjax.score.linear.block_weights import BlockWeights
from xjax.score.linear.dual import csr_arrays
from xjax.score.trees.label_tree import NO_LABEL, LabelTree
from xjax.select.tree_search_loops import open_next, score_children


class Link(enum.Enum):
  """The log of a node's factor, of its classifier's score z.

  A label's score is the sum along its path. But for NONE it is at most 0 at
  each node, so that no label below a node has a better score than the node.

  NONE: z, of one-vs-all classifiers: a tree of one depth.
  SIGMOID: log sigmoid(z), of logistic loss: sums are log probabilities.
  L3_HINGE: -max(0, 1 - z)^3, of squared hinge (Yu et al. 2022, "PECOS", which
  ranks by the exponential of the sum).
  """

  NONE = 'none'
  SIGMOID = 'sigmoid'
  L3_HINGE = 'l3_hinge'


_LINKS = (Link.NONE, Link.SIGMOID, Link.L3_HINGE)
_AHEAD = 2  # times k: labels that the beam before exact search should find
_EVERY = 2**31 - 1  # nodes of a depth that are opened at most: all


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
  """The best labels of documents.

  Attributes:
    ids: int32 [N, K], by key descending, then label ascending; PAD where
      labels run out.
    keys: float64 [N, K], -inf where ids are PAD.
    scores: float64 [N, K], the sums of links alone, likewise.
    opened: int64 [N], nodes whose children were scored.
  """

  ids: np.ndarray
  keys: np.ndarray
  scores: np.ndarray
  opened: np.ndarray

  @classmethod
  def none(cls, n: int, k: int) -> Self:
    """Empty lists."""
    return cls(
      np.full((n, k), PAD, np.int32),
      np.full((n, k), -np.inf),
      np.full((n, k), -np.inf),
      np.zeros(n, np.int64),
    )

  @classmethod
  def joined(cls, parts: Sequence['Found']) -> Self:
    """Of the documents of all parts, one after the other."""
    fields = ('ids', 'keys', 'scores', 'opened')
    return cls(
      *(np.concatenate([getattr(p, f) for p in parts]) for f in fields)
    )


@dataclasses.dataclass(frozen=True)
class Squash:
  """Log probabilities of scores: log sigmoid(a score + b), a > 0."""

  a: float
  b: float

  def __call__(self, scores: np.ndarray) -> np.ndarray:
    """As the search has it."""
    return -np.logaddexp(0, -self.a * scores - self.b)


_AS_IT_IS = Squash(1.0, 0.0)


class TreeSearch:
  """Searches one tree.

  Attributes:
    tree: over labels.
    weights: a block for each inner node, in order.
    link: of nodes' scores.
  """

  def __init__(self, tree: LabelTree, weights: BlockWeights, link: Link):
    """Prepares nothing that grows with labels times features."""
    self.tree, self.weights, self.link = tree, weights, link
    self._inner = tree.degree > 0
    parents = np.unique(tree.parent[tree.label != NO_LABEL])
    self._labels_of_parent = tree.n_labels / max(1, len(parents))
    even_L = np.zeros(tree.n_labels)
    self._even = even_L, tree.largest_below(even_L)
    self._blocks = (
      np.cumsum(self._inner) - 1,
      weights.columns,
      weights.rows,
      weights.features.view(np.uint32),
      weights.entries,
      weights.places,
      weights.values,
      weights.bias,
    )

  def lists(
    self,
    rows: sparse.csr_array,
    k: int,
    logs: Sequence[np.ndarray | None],
    squash: Squash | None,
    width: int | None,
  ) -> list[Found]:
    """The best labels by each of several arrays of log weights.

    Args:
      rows: float32 [N, D].
      k: length of the lists.
      logs: float64 [L], -inf of labels that are not to be found; None: 0.
      squash: makes scores log probabilities, before weights are added.
      width: of the beam; None: the search is exact.
    """
    search = self.exact
    if width is not None:
      search = functools.partial(self.beam, width=width)
    # The children of the root are the same for all; of one-vs-all that is all.
    root = self._root(rows)
    return [
      search(rows, k, log_weights_L=each, squash=squash, root=root)
      for each in logs
    ]

  def beam(
    self,
    rows: sparse.csr_array,
    k: int,
    width: int,
    log_weights_L: np.ndarray | None = None,
    squash: Squash | None = None,
    root: tuple | None = None,
  ) -> Found:
    """Opens the best width nodes of each depth.

    Args:
      rows, k, squash: as of lists.
      width: of the beam.
      log_weights_L: float64, -inf of labels that are not to be found; None: 0.
      root: what _root returns; None: it is computed.
    """
    floors = np.full(rows.shape[0], -np.inf)
    return self._run(rows, k, width, floors, log_weights_L, squash, root)

  def exact(
    self,
    rows: sparse.csr_array,
    k: int,
    log_weights_L: np.ndarray | None = None,
    squash: Squash | None = None,
    root: tuple | None = None,
  ) -> Found:
    """The k best of all labels; arguments are as of beam."""
    if not self._inner[1:].any():  # opening the root scores all labels
      return self.beam(rows, k, 1, log_weights_L, squash, root)
    width = 1 + math.ceil(_AHEAD * k / self._labels_of_parent)
    given = (
      log_weights_L,
      squash,
      root or self._root(rows),
    )
    first = self.beam(rows, k, width, *given)
    floors = first.keys[:, -1].copy()  # contiguous, as beam has them
    found = self._run(rows, k, _EVERY, floors, *given)
    return dataclasses.replace(found, opened=found.opened + first.opened)

  def _run(
    self,
    rows: sparse.csr_array,
    k: int,
    width: int,
    floors: np.ndarray,
    log_weights_L: np.ndarray | None,
    squash: Squash | None,
    root: tuple | None,
  ) -> Found:
    tree = self.tree
    weights = self._even
    if log_weights_L is not None:
      weights = log_weights_L, tree.largest_below(log_weights_L)
    found, shown = Found.none(rows.shape[0], k), squash or _AS_IT_IS
    scored = root or self._root(rows)
    while len(scored[0]):
      opened = open_next(
        (tree.first_child, tree.label, self._inner),
        weights,
        (squash is not None, float(shown.a), float(shown.b)),
        (width, floors),
        scored,
        (found.ids, found.keys, found.scores, found.opened),
      )
      scored = self._opened(rows, *opened)
    return found

  def _root(self, rows: sparse.csr_array) -> tuple[np.ndarray, ...]:
    """As _opened, of the root for every document."""
    n = rows.shape[0]
    return self._opened(rows, np.arange(n), np.zeros(n, np.int32), np.zeros(n))

  def _opened(
    self,
    rows: sparse.csr_array,
    document: np.ndarray,
    node: np.ndarray,
    score: np.ndarray,
  ) -> tuple[np.ndarray, ...]:
    """Opened nodes, those of a document side by side, as open_next has them.

    Returns:
      document, node and score as given, where the children of each end, and
      the scores of all children.
    """
    degrees = self.tree.degree[node]
    ends = np.append(0, np.cumsum(degrees)).astype(np.int64)
    children = np.empty(ends[-1])
    indptr, indices, values = csr_arrays(rows)
    score_children(
      # Always of the same types, since loops are compiled for each.
      (indptr.astype(np.int64, copy=False), indices, values),
      self._blocks,
      _LINKS.index(self.link),
      (document, node, score, ends),
      np.argsort(node, kind='stable'),
      np.zeros(self.weights.n_features, np.int32),
      children,
    )
    return document, node, score, ends, children
