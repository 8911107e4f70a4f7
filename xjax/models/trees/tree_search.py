"""Finds the best labels of a label tree, by beam search or exactly.

A search goes from the root down, for all documents of a batch together. To open
a node for a document means to score all children of the node. Searches of the
same documents share the nodes that they open. The score of a label is the sum
of the links (see Link) of the nodes on the label's path. If a label has a
weight w, the label is ranked by log w + score.

The bound of a node is the node's score plus the logarithm of the largest weight
below the node. If a label is below the node, its log w + score is not above the
bound, because links are at most 0 (Schultheis et al. 2022, Appendix A.2, as an
upper bound).

Beam search opens the best nodes of each depth. Exact search starts with a
narrow beam search, which finds k labels. The floor is log w + score of the
worst of them. Exact search then opens all nodes except those whose bound is
below the floor: no label below can be among the k best.
"""

from collections.abc import Sequence
import concurrent.futures
import dataclasses
import enum
import functools
import math
from typing import Self

from jaxtyping import Float, Float64, Int32, Int64
import numpy as np
from scipy import sparse

from xjax.core.arrays import csr_arrays
from xjax.core.progress import Progress
from xjax.core.types import PAD
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.trees.tree_search_loops import (
  open_next,
  score_children,
  sort_lists,
)


class Link(enum.Enum):
  """Chooses the link, a function of the score z of a node's classifier.

  Except for NONE, a link is at most 0, so that no label below a node has a
  better score than the node. PECOS ranks labels by the exponential of the sum
  of L3_HINGE (Yu et al. 2022).
  """

  NONE = 'none'  # z, for one-vs-all classifiers, one level below the root
  SIGMOID = 'sigmoid'  # log sigmoid(z), for logistic loss: log probabilities
  L3_HINGE = 'l3_hinge'  # -max(0, 1 - z)^3, for squared hinge


_LINKS = (Link.NONE, Link.SIGMOID, Link.L3_HINGE)
_AHEAD = 2  # the beam before an exact search should find _AHEAD * k labels
_DOCUMENTS = 4096  # documents that a matcher searches at a time
_ALL_NODES = 2**31 - 1  # beam width that opens all nodes of a depth


@dataclasses.dataclass(frozen=True, eq=False)
class SearchResult:
  """Holds the best labels of N documents.

  Labels are sorted by descending key, then by ascending label. Where labels run
  out, ids are PAD, and keys and scores are -inf. Exact search counts the nodes
  of its first beam twice in `opened`. The children of nodes that an earlier
  search has opened were not scored again (NodeOpener).
  """

  ids: np.ndarray  # int32 [N, K]
  keys: np.ndarray  # float64 [N, K], the values by which labels are ranked
  scores: np.ndarray  # float64 [N, K], the sums of links without weights
  opened: np.ndarray  # int64 [N], nodes whose children the search has seen

  @classmethod
  def none(cls, n: int, k: int) -> Self:
    return cls(
      np.full((n, k), PAD, np.int32),
      np.full((n, k), -np.inf),
      np.full((n, k), -np.inf),
      np.zeros(n, np.int64),
    )

  @classmethod
  def concatenate(cls, parts: Sequence['SearchResult']) -> Self:
    fields = ('ids', 'keys', 'scores', 'opened')
    return cls(
      *(np.concatenate([getattr(p, f) for p in parts]) for f in fields)
    )


@dataclasses.dataclass(frozen=True)
class LogSigmoid:
  """Turns scores into log probabilities, log sigmoid(a * score + b)."""

  a: float  # above 0
  b: float

  def __call__(
    self, scores: Float[np.ndarray, '...']
  ) -> Float[np.ndarray, '...']:
    return -np.logaddexp(0, -self.a * scores - self.b)


_UNUSED_SQUASH = LogSigmoid(1.0, 0.0)


class TreeSearch:
  """Searches one label tree for the best labels of documents.

  The weights have a block for each inner node, in the order of the nodes.
  """

  def __init__(self, tree: LabelTree, weights: BlockWeights, link: Link):
    self.tree, self.weights, self.link = tree, weights, link
    self._inner = tree.degree > 0
    # Leaves may be at different depths, so their parents are counted.
    parents = np.unique(tree.parent[tree.label != NO_LABEL])
    self._labels_of_parent = tree.n_labels / max(1, len(parents))
    even_L = np.zeros(tree.n_labels)
    self._even = even_L, tree.largest_below(even_L)
    self._blocks = (
      # The block of each inner node; other nodes have any number.
      np.cumsum(self._inner) - 1,
      weights.columns,
      weights.rows,
      # SciPy's indices become uint32 in csr_arrays; equal types let numba
      # compare without conversions.
      weights.features.view(np.uint32),
      weights.entries,
      weights.places,
      weights.values,
      weights.bias,
    )

  def lists(
    self,
    rows: sparse.csr_array,  # float32 [N, D]
    k: int,
    logs: Sequence[Float64[np.ndarray, ' L'] | None],  # -inf excludes a label
    squash: LogSigmoid | None,  # applied to scores before logs are added
    width: int | None,  # of the beam; None for an exact search
  ) -> list[SearchResult]:
    """Returns the best labels of documents, for each array of log weights."""
    search = self.exact
    if width is not None:
      search = functools.partial(self.beam, width=width)
    nodes = NodeOpener.root(self, rows)
    return [
      search(rows, k, log_weights_L=log_weights_L, squash=squash, nodes=nodes)
      for log_weights_L in logs
    ]

  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> Float64[np.ndarray, 'D K']:
    """Returns the weights of features in the scores of labels.

    The weight of a feature in a label is the sum of its weights in the
    classifiers of all nodes on the label's path. Without a link, the score of a
    label is exactly the sum of these weights times the document's features,
    plus the bias. With a link, which is not linear, this is only approximate.
    PAD and labels without a node have weights 0.
    """
    node_of, parent = self._nodes
    nodes, places = node_of[labels], np.arange(len(labels))
    paths = []
    while len(nodes):
      below = nodes > 0
      nodes, places = nodes[below], places[below]
      paths.append((nodes, places))
      nodes = parent[nodes]
    nodes, which = np.unique(
      np.concatenate([nodes for nodes, _ in paths]), return_inverse=True
    )
    on_path = np.zeros((len(nodes), len(labels)))
    on_path[which, np.concatenate([places for _, places in paths])] = 1
    # Node v has the classifier v - 1, because the root has no classifier.
    return self.weights.lookup(features, nodes - 1) @ on_path

  @functools.cached_property
  def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns each label's node, 0 for none and for PAD, and nodes' parents."""
    tree = self.tree
    node_of = np.zeros(tree.n_labels + 1, np.int64)  # the last entry is of PAD
    labelled = np.flatnonzero(tree.label != NO_LABEL)
    node_of[tree.label[labelled]] = labelled
    return node_of, tree.parent

  def beam(
    self,
    rows: sparse.csr_array,
    k: int,
    width: int,  # nodes to open at each depth
    log_weights_L: Float64[np.ndarray, ' L'] | None = None,
    squash: LogSigmoid | None = None,
    nodes: 'NodeOpener | None' = None,
  ) -> SearchResult:
    """Returns the best labels by opening the best nodes of each depth.

    The nodes are those of the same rows where the search starts, and those that
    earlier searches have opened; None starts at the root.
    """
    floors = np.full(rows.shape[0], -np.inf)
    nodes = nodes or NodeOpener.root(self, rows)
    return self._run(k, width, floors, log_weights_L, squash, nodes)

  def exact(
    self,
    rows: sparse.csr_array,
    k: int,
    log_weights_L: Float64[np.ndarray, ' L'] | None = None,
    squash: LogSigmoid | None = None,
    nodes: 'NodeOpener | None' = None,
  ) -> SearchResult:
    """Returns the k best of all labels. The arguments are as in beam."""
    nodes = nodes or NodeOpener.root(self, rows)
    if not self._inner[1:].any():  # opening the root scores all labels
      return self.beam(rows, k, 1, log_weights_L, squash, nodes)
    # A wider first beam gives a higher floor, and so fewer nodes in the second.
    width = 1 + math.ceil(_AHEAD * k / self._labels_of_parent)
    options = log_weights_L, squash, nodes
    first = self.beam(rows, k, width, *options)
    floors = first.keys[:, -1].copy()  # contiguous, as in beam
    result = self._run(k, _ALL_NODES, floors, *options)
    return dataclasses.replace(result, opened=result.opened + first.opened)

  def _run(
    self,
    k: int,
    width: int,  # the most nodes that are opened at each depth
    floors: np.ndarray,  # no node with a lower bound is opened
    log_weights_L: np.ndarray | None,
    squash: LogSigmoid | None,
    nodes: 'NodeOpener',
  ) -> SearchResult:
    tree = self.tree
    weights = self._even
    if log_weights_L is not None:
      # -inf below a whole node closes it: nothing there may be listed.
      weights = log_weights_L, tree.largest_below(log_weights_L)
    result = SearchResult.none(len(floors), k)
    squash_args = squash or _UNUSED_SQUASH
    scored = nodes.first
    while len(scored[0]):
      to_open = open_next(
        (tree.first_child, tree.label, self._inner),
        weights,
        (squash is not None, float(squash_args.a), float(squash_args.b)),
        (width, floors),
        scored,
        (result.ids, result.keys, result.scores, result.opened),
      )
      scored = nodes.open(*to_open)
    sort_lists(result.ids, result.keys, result.scores)
    return result

  def children(
    self,
    rows: sparse.csr_array,
    document: Int64[np.ndarray, ' nodes'],
    node: Int32[np.ndarray, ' nodes'],
    score: Float64[np.ndarray, ' nodes'],
  ) -> Float64[np.ndarray, ' children']:
    """Scores all children of nodes, which are consecutive for a document."""
    ends = np.append(0, np.cumsum(self.tree.degree[node])).astype(np.int64)
    children = np.empty(ends[-1])
    indptr, indices, values = csr_arrays(rows)
    score_children(
      # The types must always be the same, because numba compiles the function
      # for each combination of types.
      (indptr.astype(np.int64, copy=False), indices, values),
      self._blocks,
      _LINKS.index(self.link),
      (document, node, score, ends),
      # Sorted by node, so that documents at the same node share its table.
      np.argsort(node, kind='stable'),
      np.zeros(self.weights.n_features, np.int32),
      children,
    )
    return children


class NodeOpener:
  """Opens nodes of a tree for documents, each node once for each document.

  Making it scores the children of the first nodes: all labels if there is one.
  Searches that share this object need not score the same children again. The
  scores of all children are kept, in 8 bytes each. Threads must not share this
  object. `first` are the nodes where searches start, as `open` returns them.
  """

  def __init__(
    self,
    search: TreeSearch,
    rows: sparse.csr_array,
    document: np.ndarray,  # of each node, ascending
    node: np.ndarray,  # different ones for each document
  ):
    self._search, self._rows = search, rows
    self._keys = self._starts = np.zeros(0, np.int64)  # sorted by key
    self._children = np.zeros(0)
    self.first = self.open(
      document.astype(np.int64), node.astype(np.int32), np.zeros(len(node))
    )

  @classmethod
  def root(cls, search: TreeSearch, rows: sparse.csr_array) -> Self:
    documents = np.arange(rows.shape[0])
    return cls(search, rows, documents, np.zeros_like(documents))

  def open(
    self, document: np.ndarray, node: np.ndarray, score: np.ndarray
  ) -> tuple[np.ndarray, ...]:
    """Opens nodes, and scores the children of those that are new.

    Returns the arguments, and int64 `starts` and float64 `children`. The scores
    of the children of node[i] start at children[starts[i]], among those of all
    nodes that have been opened. The nodes (int32) of one document (int64) are
    consecutive and different.
    """
    # One number for a document and a node, int64.
    keys = document * len(self._search.tree) + node
    new = ~np.isin(keys, self._keys, assume_unique=True)
    if new.any():
      part = document[new], node[new], score[new]
      children = self._search.children(self._rows, *part)
      ends = np.cumsum(self._search.tree.degree[node[new]], dtype=np.int64)
      starts = len(self._children) + np.append(0, ends[:-1])
      if len(self._children):  # the first array may be large, so is not copied
        children = np.concatenate([self._children, children])
      self._children = children
      known = np.append(self._keys, keys[new])
      order = np.argsort(known)
      self._keys = known[order]
      self._starts = np.append(self._starts, starts)[order]
    starts = self._starts[np.searchsorted(self._keys, keys)]
    return document, node, score, starts, self._children


def matched_leaves(
  rows: sparse.csr_array,
  search: TreeSearch,
  k: int,  # leaves of a document, and the width of the beam
  workers: int,  # does not change the result
) -> Int32[np.ndarray, 'N K']:
  """Returns the labels of the k best leaves of training documents, and PAD."""
  n, parts = rows.shape[0], []

  def matched(start: int) -> np.ndarray:
    return search.beam(rows[start : start + _DOCUMENTS], k, k).ids

  bar = Progress('matching documents', n)
  with concurrent.futures.ThreadPoolExecutor(workers) as pool, bar:
    for ids in pool.map(matched, range(0, n, _DOCUMENTS)):
      parts.append(ids)
      bar.update(len(ids))
  return np.concatenate(parts)
