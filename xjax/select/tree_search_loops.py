"""The compiled loops of search: scoring children, and choosing among them.

Arrays come in tuples: documents (indptr, indices, values); blocks (the block of
each node, and the arrays of BlockWeights); opened nodes (document, node, score,
where its children end, laid end to end).
"""

import math

from numba import njit
import numpy as np

from xjax.core.types import PAD
from xjax.score.trees.label_tree import NO_LABEL

_JIT = {'nogil': True, 'cache': True, 'error_model': 'numpy'}
_FEW = 2  # documents at a node for which no look-up is worth making


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
  """Scores all children of opened nodes, a node's documents together.

  Args:
    documents, blocks, opened: as above.
    link: 0: none, 1: log sigmoid, 2: L3 hinge.
    order: of opened nodes by node.
    places: int32 [D] of zeros, which it is again in the end.
    children: float64, what is filled.
  """
  of_document, nodes, scores, ends = opened
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
      own = children[ends[p] : ends[p + 1]]
      if looked_up:
        _add_looked_up(documents, blocks, block, of_document[p], places, own)
      else:
        _add_searched(documents, blocks, block, of_document[p], own)
      _chain(own, scores[p], link)
    if looked_up:
      _mark(blocks, block, places, 0)
    at = end


@njit(**_JIT)
def _mark(blocks, block, places, on):
  """Where a block's features have their rows, counted from 1; or clears it."""
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
  out[:] = blocks[7][blocks[1][block] : blocks[1][block + 1]]


@njit(**_JIT)
def _add_row(blocks, row, value, out):
  entries, places, values = blocks[4], blocks[5], blocks[6]
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
def open_next(
  tree: tuple,
  weights: tuple,
  squash: tuple,
  limits: tuple,
  opened: tuple,
  found: tuple,
) -> tuple:
  """Takes the labels among children, and says which children to open.

  Args:
    tree: first_child, label, whether a node has children.
    weights: log weights of labels, and the largest below each node.
    squash: whether scores are made log probabilities, a, b.
    limits: nodes of a document at most, and the bounds below which none is
      opened, by document.
    opened: as above, with children's scores last.
    found: the lists of Found, to be added to.

  Returns:
    Document, node and score of those to open, by document.
  """
  first_child, label, inner = tree
  log_weights, bounds = weights
  width, floors = limits
  of_document, nodes, _, ends, children = opened
  ids, keys, sums, counts = found
  size = min(width, len(children))
  # The best nodes of a document; without a limit all, as they come.
  best = np.empty(size, np.int32), np.empty(size), np.empty(size)
  next_document = np.empty(len(children), np.int64)
  next_nodes = np.empty(len(children), np.int32)
  next_scores = np.empty(len(children))
  last = n_best = 0
  for p in range(len(nodes)):
    d = of_document[p]
    counts[d] += 1
    for i in range(ends[p + 1] - ends[p]):
      node, score = first_child[nodes[p]] + i, children[ends[p] + i]
      shown = score
      if squash[0]:
        shown = _log_sigmoid(squash[1] * score + squash[2])
      if label[node] != NO_LABEL:
        key = log_weights[label[node]] + shown
        _keep(ids[d], keys[d], sums[d], label[node], key, score)
      bound = bounds[node] + shown
      if inner[node] and bound > -np.inf and bound >= floors[d]:
        n_best = _add(best, n_best, node, bound, score)
    if p + 1 == len(nodes) or of_document[p + 1] != d:
      end = last + n_best
      next_document[last:end] = d
      next_nodes[last:end] = best[0][:n_best]
      next_scores[last:end] = best[2][:n_best]
      last, n_best = end, 0
  return next_document[:last], next_nodes[:last], next_scores[:last]


@njit(**_JIT)
def _add(best, n_best, node, bound, score):
  """Adds a node to the best, in place of the worst where there is no room."""
  nodes, bounds, scores = best
  if n_best < len(nodes):
    nodes[n_best], bounds[n_best], scores[n_best] = node, bound, score
    return n_best + 1
  worst = 0
  for i in range(1, n_best):  # of equal ones the last
    if bounds[i] <= bounds[worst]:
      worst = i
  if bound > bounds[worst]:
    nodes[worst], bounds[worst], scores[worst] = node, bound, score
  return n_best


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
