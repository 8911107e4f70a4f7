"""Compiles the loops of tree search, which score children and choose nodes.

Some arguments are tuples of arrays:

- documents: indptr, indices and values of the documents' features (CSR).
- blocks: the index of each node's block, and then the attributes of
  BlockWeights from `columns` on.
- opened: document, node and score of each opened node, and then `ends`. The
  scores of all children are in one array, `children`. The children of opened
  node p have the positions ends[p], ..., ends[p + 1] - 1 in this array.
"""

import math

from numba import njit
import numpy as np

from xjax.core.types import PAD
from xjax.score.trees.label_tree import NO_LABEL

_JIT = {'nogil': True, 'cache': True, 'error_model': 'numpy'}
_FEW = 2  # with at most this many documents at a node, a table is too slow


@njit(**_JIT)
def score_children(
  documents: tuple,
  blocks: tuple,
  link: int,
  opened: tuple,
  order: np.ndarray,
  places: np.ndarray,
  children: np.ndarray,
) -> None:
  """Scores all children of opened nodes.

  Documents that open the same node are scored one after another, so that they
  can share a look-up table.

  Args:
    documents, blocks, opened: see the module's docstring.
    link: 0 for no link, 1 for log sigmoid, 2 for L3 hinge.
    order: indices that sort the opened nodes by node.
    places: int32 [D], working memory, with an entry per feature. All entries
      must be 0. The function changes entries, and sets them to 0 at the end.
    children: float64, the array to which the scores of children are written.
  """
  document_of, nodes, scores, ends = opened
  at = 0
  while at < len(order):
    node = nodes[order[at]]
    end = at
    while end < len(order) and nodes[order[end]] == node:
      end += 1
    block = blocks[0][node]
    looked_up = end - at > _FEW
    if looked_up:
      _mark(blocks, block, places, 1)
    for p in order[at:end]:
      out = children[ends[p] : ends[p + 1]]
      if looked_up:
        _add_looked_up(documents, blocks, block, document_of[p], places, out)
      else:
        _add_searched(documents, blocks, block, document_of[p], out)
      _add_links(out, scores[p], link)
    if looked_up:
      _mark(blocks, block, places, 0)
    at = end


@njit(**_JIT)
def _mark(blocks, block, places, on):
  """Stores the row number of each feature of a block in `places`.

  Row numbers start at 1. If `on` is 0, zeros are stored instead.
  """
  first, features = blocks[2][block], blocks[3]
  for row in range(first, blocks[2][block + 1]):
    places[features[row]] = on * (row + 1 - first)


@njit(**_JIT)
def _add_looked_up(rows, blocks, block, document, places, out):
  """Computes the classifiers' scores of a document, with a look-up table."""
  indptr, indices, values = rows
  first = blocks[2][block]
  _set_bias(blocks, block, out)
  for e in range(indptr[document], indptr[document + 1]):
    place = places[indices[e]]
    if place:
      _add_row(blocks, first + place - 1, values[e], out)


@njit(**_JIT)
def _add_searched(rows, blocks, block, document, out):
  """Computes the classifiers' scores of a document, with binary search."""
  indptr, indices, values = rows
  low, last = blocks[2][block], blocks[2][block + 1]
  features = blocks[3]
  _set_bias(blocks, block, out)
  for e in range(indptr[document], indptr[document + 1]):
    high = last
    # Features ascend in the document and in the block, so low never goes back.
    while low < high:
      middle = (low + high) // 2
      if features[middle] < indices[e]:
        low = middle + 1
      else:
        high = middle
    if low < last and features[low] == indices[e]:
      _add_row(blocks, low, values[e], out)


@njit(**_JIT)
def _set_bias(blocks, block, out):
  """Sets the scores to the biases of a block's classifiers."""
  out[:] = blocks[7][blocks[1][block] : blocks[1][block + 1]]


@njit(**_JIT)
def _add_row(blocks, row, value, out):
  """Adds a feature's weights, times its value, to the scores."""
  entries, places, values = blocks[4], blocks[5], blocks[6]
  for e in range(entries[row], entries[row + 1]):
    out[places[e]] += value * values[e]


@njit(**_JIT)
def _add_links(scores, above, link):
  """Replaces classifiers' scores by link(score) plus the parent's score.

  Without a link, the scores do not change.
  """
  for i in range(len(scores)):
    if link == 1:
      scores[i] = above + _log_sigmoid(scores[i])
    elif link == 2:
      short = max(0.0, 1.0 - scores[i])
      scores[i] = above - short * short * short


@njit(**_JIT)
def _log_sigmoid(z):
  """Returns log sigmoid(z), without overflow."""
  if z >= 0:
    return -math.log1p(math.exp(-z))
  return z - math.log1p(math.exp(z))


@njit(**_JIT)
def open_next(
  tree: tuple,
  weights: tuple,
  squash: tuple,
  limits: tuple,
  opened: tuple,
  lists: tuple,
) -> tuple:
  """Adds labels of children to the lists, and chooses the nodes to open next.

  Args:
    tree: first_child, label, whether a node has children.
    weights: log weights of labels, and the largest log weight below each node.
    squash: whether scores are turned into log probabilities, and the numbers a
      and b of Squash.
    limits: the largest number of nodes to open per document, and float64 [N],
      the floor of each document. A node whose bound is below the floor is not
      opened.
    opened: see the module's docstring. `children` is the last array.
    lists: the arrays of SearchResult, to which labels are added.

  Returns:
    Document, node and score of each node to open, sorted by document.
  """
  first_child, label, inner = tree
  log_weights, bounds = weights
  width, floors = limits
  document_of, nodes, _, ends, children = opened
  ids, keys, sums, counts = lists
  size = min(width, len(children))
  # The best nodes of one document. If all nodes fit, they are in the order in
  # which they were added.
  best = np.empty(size, np.int32), np.empty(size), np.empty(size)
  next_document = np.empty(len(children), np.int64)
  next_nodes = np.empty(len(children), np.int32)
  next_scores = np.empty(len(children))
  last = n_best = 0
  for p in range(len(nodes)):
    d = document_of[p]
    counts[d] += 1
    for i in range(ends[p + 1] - ends[p]):
      node, score = first_child[nodes[p]] + i, children[ends[p] + i]
      ranked = score
      if squash[0]:
        ranked = _log_sigmoid(squash[1] * score + squash[2])
      if label[node] != NO_LABEL:
        key = log_weights[label[node]] + ranked
        _insert_label(ids[d], keys[d], sums[d], label[node], key, score)
      bound = bounds[node] + ranked
      if inner[node] and bound > -np.inf and bound >= floors[d]:
        n_best = _add_node(best, n_best, node, bound, score)
    if p + 1 == len(nodes) or document_of[p + 1] != d:
      end = last + n_best
      next_document[last:end] = d
      next_nodes[last:end] = best[0][:n_best]
      next_scores[last:end] = best[2][:n_best]
      last, n_best = end, 0
  return next_document[:last], next_nodes[:last], next_scores[:last]


@njit(**_JIT)
def _add_node(best, n_best, node, bound, score):
  """Adds a node to the best nodes, and returns how many there are now.

  If there is no room, the node replaces the worst node, but only if the new
  node has the higher bound.
  """
  nodes, bounds, scores = best
  if n_best < len(nodes):
    nodes[n_best], bounds[n_best], scores[n_best] = node, bound, score
    return n_best + 1
  worst = 0
  for i in range(1, n_best):  # if bounds are equal, the last node is the worst
    if bounds[i] <= bounds[worst]:
      worst = i
  if bound > bounds[worst]:
    nodes[worst], bounds[worst], scores[worst] = node, bound, score
  return n_best


@njit(**_JIT)
def _insert_label(ids, keys, scores, label, key, score):
  """Inserts a label into a sorted list, if it is better than the last label."""
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
