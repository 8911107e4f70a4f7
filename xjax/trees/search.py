"""The best labels of a label tree: beam search, and exact search.

Nodes are scored from the root down, all documents of a batch together: those
that open the same node share the look-up of its classifiers' features. A
label's score is the sum of its path's links; with label weights w, labels rank
by log w plus that. A node's bound is its own score plus the log of the largest
weight below it: no label below has a better one, since links add at most 0
(Schultheis et al. 2022, Appendix A.2, as a bound from above).

Beam search opens the best nodes of each depth. Exact search begins with that,
which finds k labels, and then opens every node whose bound is not below the
worst of them: none that is left can have a better label.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Self

from numba import njit
import numpy as np
from scipy import sparse

from xjax.core.types import PAD
from xjax.linear.block_weights import BlockWeights
from xjax.trees.label_tree import NO_LABEL, LabelTree
from xjax.trees.links import Link

_JIT = {'nogil': True, 'cache': True, 'error_model': 'numpy'}
_LINKS = (Link.NONE, Link.SIGMOID, Link.L3_HINGE)
_EVERY = 2**31 - 1  # nodes of a depth that are opened at most: all
_FEW = 2  # documents at a node for which no look-up is worth making


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
    self._block = np.full(len(tree), -1, np.int32)
    self._block[tree.inner] = np.arange(len(tree.inner))

  def beam(
    self,
    rows: sparse.csr_array,
    k: int,
    width: int,
    log_weights_L: np.ndarray | None = None,
    squash: Squash | None = None,
  ) -> Found:
    """Opens the best width nodes of each depth.

    Args:
      rows: float32 [N, D].
      k: length of the lists.
      width: of the beam.
      log_weights_L: float64, -inf of labels that are not to be found; None: 0.
      squash: makes scores log probabilities, before weights are added.
    """
    floors = np.full(rows.shape[0], -np.inf)
    return self._run(rows, k, width, floors, log_weights_L, squash)

  def exact(
    self,
    rows: sparse.csr_array,
    k: int,
    width: int,
    log_weights_L: np.ndarray | None = None,
    squash: Squash | None = None,
  ) -> Found:
    """The k best of all labels; width is of the beam that goes before."""
    first = self.beam(rows, k, width, log_weights_L, squash)
    floors = first.keys[:, -1].copy()  # contiguous, as beam has them
    found = self._run(rows, k, _EVERY, floors, log_weights_L, squash)
    return dataclasses.replace(found, opened=found.opened + first.opened)

  def _run(
    self,
    rows: sparse.csr_array,
    k: int,
    width: int,
    floors: np.ndarray,
    log_weights_L: np.ndarray | None,
    squash: Squash | None,
  ) -> Found:
    tree, weights = self.tree, self.weights
    if log_weights_L is None:
      log_weights_L = np.zeros(tree.n_labels)
    n = rows.shape[0]
    found = Found.none(n, k)
    _search(
      (rows.indptr, rows.indices, rows.data),
      (tree.first_child, tree.label, self._block),
      (
        weights.columns,
        weights.rows,
        weights.features,
        weights.entries,
        weights.places,
        weights.values,
        weights.bias,
      ),
      log_weights_L,
      tree.widest_below(log_weights_L),
      weights.n_features,
      _LINKS.index(self.link),
      (squash is not None, *((squash.a, squash.b) if squash else (1.0, 0.0))),
      width,
      floors,
      (found.ids, found.keys, found.scores, found.opened),
    )
    return found


@njit(**_JIT)
def _search(
  rows, tree, blocks, log_weights, bounds, n_features, link, squash, width,
  floors, found,
):  # fmt: skip
  """Fills found; see TreeSearch."""
  n = len(floors)
  starts = np.arange(n + 1)
  nodes = np.zeros(n, np.int32)
  scores = np.zeros(n)
  places = np.zeros(n_features, np.int32)
  while len(nodes):
    ends = _child_ends(tree[0], nodes)
    children = np.empty(ends[-1])
    _score_children(
      rows, tree, blocks, link, starts, nodes, scores, ends, places, children
    )
    starts, nodes, scores = _open_next(
      tree, log_weights, bounds, squash, width, floors, starts, nodes, ends,
      children, found,
    )  # fmt: skip


@njit(**_JIT)
def _child_ends(first_child, nodes):
  """Where the children of each opened node end, laid end to end."""
  ends = np.zeros(len(nodes) + 1, np.int64)
  for p in range(len(nodes)):
    ends[p + 1] = ends[p] + first_child[nodes[p] + 1] - first_child[nodes[p]]
  return ends


@njit(**_JIT)
def _score_children(
  rows, tree, blocks, link, starts, nodes, scores, ends, places, children
):
  """Scores of all children of opened nodes, a node's documents together."""
  document = np.empty(len(nodes), np.int64)
  for d in range(len(starts) - 1):
    document[starts[d] : starts[d + 1]] = d
  order = np.argsort(nodes, kind='mergesort')
  at = 0
  while at < len(order):
    node = nodes[order[at]]
    end = at
    while end < len(order) and nodes[order[end]] == node:
      end += 1
    block = tree[2][node]
    looked_up = end - at > _FEW
    if looked_up:
      _mark(blocks, block, places, 1)
    for p in order[at:end]:
      own = children[ends[p] : ends[p + 1]]
      if looked_up:
        _add_looked_up(rows, blocks, block, document[p], places, own)
      else:
        _add_searched(rows, blocks, block, document[p], own)
      _chain(own, scores[p], link)
    if looked_up:
      _mark(blocks, block, places, 0)
    at = end


@njit(**_JIT)
def _mark(blocks, block, places, on):
  """Where a block's features have their rows, counted from 1; or clears it."""
  first, features = blocks[1][block], blocks[2]
  for row in range(first, blocks[1][block + 1]):
    places[features[row]] = on * (row + 1 - first)


@njit(**_JIT)
def _add_looked_up(rows, blocks, block, document, places, out):
  indptr, indices, values = rows
  first = blocks[1][block]
  _set_bias(blocks, block, out)
  for e in range(indptr[document], indptr[document + 1]):
    place = places[indices[e]]
    if place:
      _add_row(blocks, first + place - 1, values[e], out)


@njit(**_JIT)
def _add_searched(rows, blocks, block, document, out):
  indptr, indices, values = rows
  low, last = blocks[1][block], blocks[1][block + 1]
  features = blocks[2]
  _set_bias(blocks, block, out)
  for e in range(indptr[document], indptr[document + 1]):
    high = last
    while low < high:  # both ascend: what is passed is passed for good
      middle = (low + high) // 2
      if features[middle] < indices[e]:
        low = middle + 1
      else:
        high = middle
    if low < last and features[low] == indices[e]:
      _add_row(blocks, low, values[e], out)


@njit(**_JIT)
def _set_bias(blocks, block, out):
  out[:] = blocks[6][blocks[0][block] : blocks[0][block + 1]]


@njit(**_JIT)
def _add_row(blocks, row, value, out):
  entries, places, values = blocks[3], blocks[4], blocks[5]
  for e in range(entries[row], entries[row + 1]):
    out[places[e]] += value * values[e]


@njit(**_JIT)
def _chain(scores, above, link):
  """The links of scores, and what was there above them."""
  for i in range(len(scores)):
    if link == 1:
      scores[i] = above + _log_sigmoid(scores[i])
    elif link == 2:
      short = max(0.0, 1.0 - scores[i])
      scores[i] = above - short * short * short


@njit(**_JIT)
def _log_sigmoid(z):
  if z >= 0:
    return -math.log1p(math.exp(-z))
  return z - math.log1p(math.exp(z))


@njit(**_JIT)
def _open_next(
  tree, log_weights, bounds, squash, width, floors, starts, nodes, ends,
  children, found,
):  # fmt: skip
  """Takes the labels among children; says which of them to open."""
  first_child, label, block = tree
  ids, keys, sums, opened = found
  n = len(floors)
  next_starts = np.zeros(n + 1, np.int64)
  next_nodes = np.empty(len(children), np.int32)
  next_scores, next_bounds = np.empty(len(children)), np.empty(len(children))
  for d in range(n):
    begin = next_starts[d]
    end = begin
    opened[d] += starts[d + 1] - starts[d]
    for p in range(starts[d], starts[d + 1]):
      for i in range(ends[p + 1] - ends[p]):
        node = first_child[nodes[p]] + i
        score = children[ends[p] + i]
        shown = score
        if squash[0]:
          shown = _log_sigmoid(squash[1] * score + squash[2])
        if label[node] != NO_LABEL:
          key = log_weights[label[node]] + shown
          _keep(ids[d], keys[d], sums[d], label[node], key, score)
        bound = bounds[node] + shown
        if block[node] >= 0 and bound > -np.inf and bound >= floors[d]:
          next_nodes[end] = node
          next_scores[end] = score
          next_bounds[end] = bound
          end += 1
    if end - begin > width:
      best = np.argsort(-next_bounds[begin:end], kind='mergesort')[:width]
      next_nodes[begin : begin + width] = next_nodes[begin + best]
      next_scores[begin : begin + width] = next_scores[begin + best]
      end = begin + width
    next_starts[d + 1] = end
  last = next_starts[n]
  return next_starts, next_nodes[:last], next_scores[:last]


@njit(**_JIT)
def _keep(ids, keys, scores, label, key, score):
  """Puts a label into a list where it belongs, if it does."""
  at = len(ids) - 1
  if at < 0 or key == -np.inf:
    return
  if key < keys[at] or (key == keys[at] and ids[at] != PAD and ids[at] < label):
    return
  while at > 0 and (
    key > keys[at - 1] or (key == keys[at - 1] and label < ids[at - 1])
  ):
    ids[at], keys[at], scores[at] = ids[at - 1], keys[at - 1], scores[at - 1]
    at -= 1
  ids[at], keys[at], scores[at] = label, key, score
