"""Compiles the loop that scores the names that share units with a text."""

from jaxtyping import Int32, Int64
from numba import njit
import numpy as np

# A name whose matched units have this sum of idf gets half of the largest score
# of an incomplete name. Two rare words have about this sum.
_HALF = np.float32(10)


@njit(nogil=True, cache=True, error_model='numpy')
def best_names(
  rows: Int64[np.ndarray, ' U'],
  postings: tuple,
  name_table: tuple,
  phrases: Int32[np.ndarray, ' P'],
  memory: tuple,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Finds the best name of each label that shares units with a text.

  The time depends only on the postings of the text's units, not on the number
  of labels.

  Args:
    rows: units of the text, ascending.
    postings: indptr and indices of the names that have each unit (CSC), and
      float32, the idf of each unit, which is above 0.
    name_table: float32, the sum of idf of each name's units; int32, its label.
    phrases: names whose words follow each other in the text.
    memory: float32 with an entry for each name, and int32 with an entry for
      each label. All entries must be 0, and are 0 at the end.

  Returns:
    The labels, in any order, their scores (float32) and their best names. If
    names have equal scores, the first of them is the best.
  """
  masses, owners = name_table
  sums, best_of = memory
  names = _add_idf(rows, postings, sums)
  for name in names:
    mass = sums[name]
    score = mass * mass / masses[name]
    sums[name] = score / (score + _HALF)
  for name in phrases:
    sums[name] += np.float32(1)
  labels, n = np.empty(len(names), np.int32), 0
  for name in names:
    label = owners[name]
    best = best_of[label] - 1
    if best < 0:
      labels[n] = label
      n += 1
    if best < 0 or (sums[name], best) > (sums[best], name):
      best_of[label] = name + 1
  labels = labels[:n]
  best = best_of[labels] - np.int32(1)
  scores = sums[best]
  best_of[labels] = 0
  sums[names] = 0
  return labels, scores, best


@njit(nogil=True, cache=True, error_model='numpy')
def _add_idf(rows, postings, sums):
  """Adds the idf of units to the names that have them; returns these names."""
  indptr, indices, idf = postings
  n = 0
  for row in rows:
    n += indptr[row + 1] - indptr[row]
  names, size = np.empty(n, np.int32), 0
  for row in rows:
    for name in indices[indptr[row] : indptr[row + 1]]:
      if sums[name] == 0:
        names[size] = name
        size += 1
      sums[name] += idf[row]
  return names[:size]
