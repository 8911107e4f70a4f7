"""Compiles the loops of tree search.

Some arguments are tuples of arrays:

- documents: indptr, indices and values of the documents' features (CSR).
- blocks: 0 is the index of each node's block; then come those of BlockWeights:
  1 columns, 2 rows, 3 features, 4 entries, 5 places, 6 values, 7 bias.
- opened: document, node and score of each opened node, and then `starts`. The
  scores of children are in the array `children`. The scores of the children of
  opened node p start at the position starts[p] of this array.
"""

import math

from numba import njit
import numpy as np

from xjax.data.label_trees.label_tree import NO_LABEL

_JIT = {'nogil': True, 'cache': True, 'error_model': 'numpy'}
_FEW = 2  # with at most this many documents at a node, a table is too slow


@njit(**_JIT)
def score_children(
  documents: tuple,
  blocks: tuple,
  link: int,  # 0 for no link, 1 for log sigmoid, 2 for L3 hinge
  new: tuple,  # document, node and score of each new node, and int64 `ends`
  order: np.ndarray,  # indices that sort these nodes by node
  places: np.ndarray,  # int32 [D]; zeros, and again zeros at the end
  children: np.ndarray,
) -> None:
  """Scores all children of opened nodes, and writes the scores to `children`.

  The scores of the children of node p go to ends[p], ..., ends[p + 1] - 1.
  Documents that open the same node are scored one after another, so that they
  can share a look-up table.
  """
  document_of, nodes, scores, ends = new
  at = 0
  while at < len(order):
    node = nodes[order[at]]
    end = at
    while end < len(order) and nodes[order[end]] == node:
      end += 1
    block = blocks[0][node]
    # A table of the block's features costs time once, and then makes each
    # feature of a document one look-up instead of a bisection.
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
  """Stores the row number of each feature of a block, or 0, in `places`."""
  first, features = blocks[2][block], blocks[3]
  for row in range(first, blocks[2][block + 1]):
    places[features[row]] = on * (row + 1 - first)


@njit(**_JIT)
def _add_looked_up(rows, blocks, block, document, places, out):
  indptr, indices, values = rows
  first = blocks[2][block]
  _set_bias(blocks, block, out)
  for e in range(indptr[document], indptr[document + 1]):
    place = places[indices[e]]
    if place:
      _add_row(blocks, first + place - 1, values[e], out)


@njit(**_JIT)
def _add_searched(rows, blocks, block, document, out):
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
  out[:] = blocks[7][blocks[1][block] : blocks[1][block + 1]]


@njit(**_JIT)
def _add_row(blocks, row, value, out):
  entries, places, values = blocks[4], blocks[5], blocks[6]
  for e in range(entries[row], entries[row + 1]):
    out[places[e]] += value * values[e]


@njit(**_JIT)
def _add_links(scores, above, link):
  """Replaces scores by link(score) plus the parent's, if there is a link."""
  for i in range(len(scores)):
    if link == 1:
      scores[i] = above + _log_sigmoid(scores[i])
    elif link == 2:
      short = max(0.0, 1.0 - scores[i])
      scores[i] = above - short * short * short


@njit(**_JIT)
def _log_sigmoid(z):
  # math.exp must not overflow.
  if z >= 0:
    return -math.log1p(math.exp(-z))
  return z - math.log1p(math.exp(z))


@njit(**_JIT)
def open_next(
  tree: tuple,  # first_child, label, whether a node has children
  weights: tuple,  # logs of labels, and the largest below each node
  squash: tuple,  # whether to squash, and the numbers a and b of LogSigmoid
  limits: tuple,  # the most nodes per document, and float64 [N] floors
  opened: tuple,  # see the module's docstring; `children` is the last array
  lists: tuple,  # the arrays of SearchResult
) -> tuple:
  """Adds labels of children to the lists, and chooses nodes to open next.

  Document, node and score of each node to open are returned, sorted by
  document. Each list is a heap (see _insert_label) until sort_lists sorts it. A
  node whose bound is below the floor of the document is not opened.
  """
  first_child, label, inner = tree
  log_weights, bounds = weights
  width, floors = limits
  document_of, nodes, _, starts, children = opened
  ids, keys, sums, counts = lists
  n_children = 0
  for node in nodes:
    n_children += first_child[node + 1] - first_child[node]
  size = min(width, n_children)
  # The best nodes of one document. If all nodes fit, they are in the order in
  # which they were added.
  best = np.empty(size, np.int32), np.empty(size), np.empty(size)
  next_document = np.empty(n_children, np.int64)
  next_nodes = np.empty(n_children, np.int32)
  next_scores = np.empty(n_children)
  last = n_best = 0
  for p in range(len(nodes)):
    d = document_of[p]
    counts[d] += 1
    for node in range(first_child[nodes[p]], first_child[nodes[p] + 1]):
      score = children[starts[p] + node - first_child[nodes[p]]]
      ranked = score
      if squash[0]:
        ranked = _log_sigmoid(squash[1] * score + squash[2])
      if label[node] != NO_LABEL:
        key = log_weights[label[node]] + ranked
        _insert_label(ids[d], keys[d], sums[d], label[node], key, score)
      # The bound has the parent's score already: scores of children are sums
      # along the path.
      bound = bounds[node] + ranked
      if inner[node] and bound > -np.inf and bound >= floors[d]:
        n_best = _add_node(best, n_best, node, bound, score)
    # Nodes of a document are consecutive, so its best ones are complete now.
    if p + 1 == len(nodes) or document_of[p + 1] != d:
      end = last + n_best
      next_document[last:end] = d
      next_nodes[last:end] = best[0][:n_best]
      next_scores[last:end] = best[2][:n_best]
      last, n_best = end, 0
  return next_document[:last], next_nodes[:last], next_scores[:last]


@njit(**_JIT)
def _add_node(best, n_best, node, bound, score):
  """Adds a node to the best nodes, and returns how many there are now."""
  nodes, bounds, scores = best
  if n_best < len(nodes):
    nodes[n_best], bounds[n_best], scores[n_best] = node, bound, score
    return n_best + 1
  # There is no room: the node replaces the worst one, if it is better.
  worst = 0
  for i in range(1, n_best):  # if bounds are equal, the last node is the worst
    if bounds[i] <= bounds[worst]:
      worst = i
  if bound > bounds[worst]:
    nodes[worst], bounds[worst], scores[worst] = node, bound, score
  return n_best


@njit(**_JIT)
def _insert_label(ids, keys, scores, label, key, score):
  """Puts a label in the place of the worst listed label, if it is better.

  Lists are heaps: entry i is not better than entries 2 i + 1 and 2 i + 2.
  """
  if not len(ids) or key == -np.inf:
    return
  if _is_worse(keys[0], ids[0], key, label):
    _sift(ids, keys, scores, label, key, score)


@njit(**_JIT)
def _is_worse(key, label, other_key, other):
  """Returns whether a label comes after another one in a sorted list."""
  return key < other_key or (key == other_key and label > other)


@njit(**_JIT)
def _sift(ids, keys, scores, label, key, score):
  at, child = 0, 1
  # The entry sinks until both entries below it are worse or equal in rank.
  while child < len(ids):
    right = child + 1
    if right < len(ids):
      if _is_worse(keys[right], ids[right], keys[child], ids[child]):
        child = right
    if not _is_worse(keys[child], ids[child], key, label):
      break
    ids[at], keys[at], scores[at] = ids[child], keys[child], scores[child]
    at, child = child, 2 * child + 1
  ids[at], keys[at], scores[at] = label, key, score


@njit(**_JIT)
def sort_lists(ids: np.ndarray, keys: np.ndarray, scores: np.ndarray) -> None:
  """Sorts lists that are heaps, best label first, with padding at the end."""
  for ids_K, keys_K, scores_K in zip(ids, keys, scores):
    # Heap sort: the worst entry is on top and goes to the end.
    for end in range(len(ids_K) - 1, 0, -1):
      label, key, score = ids_K[end], keys_K[end], scores_K[end]
      ids_K[end], keys_K[end] = ids_K[0], keys_K[0]
      scores_K[end] = scores_K[0]
      _sift(ids_K[:end], keys_K[:end], scores_K[:end], label, key, score)
