"""Compiles the loop that scores the names that share units with a text."""

from jaxtyping import Int32, Int64
from numba import njit
import numpy as np

ONE = np.float32(1)


@njit(nogil=True, cache=True, error_model='numpy')
def best_names(
  rows: Int64[np.ndarray, ' U'],  # units of the text, ascending
  counts: Int32[np.ndarray, ' U'],  # how often each unit is in the text
  postings: tuple,  # CSC indptr, indices: names with a unit; float32, idf > 0
  name_table: tuple,  # float32, sum of idf of a name's units; int32, its label
  phrases: Int32[np.ndarray, ' P'],  # a name for each place that has it
  memory: tuple,  # NameCoverage._memory; zeros, and again zeros at the end
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Finds the best name of each label that shares units with a text.

  The time depends only on the postings of the text's units, not on the number
  of labels. Labels are in any order. If names have equal scores, the first of
  them is the best.
  """
  masses, owners = name_table
  sums, places, best_of = memory
  names = _add_idf(rows, counts, postings, sums)
  for name in phrases:
    places[name] += 1
  # A view: the products below are stored in `sums`.
  scores = sums[:, 0]
  for name in names:
    share = sums[name, 1] / masses[name]
    scores[name] *= share * (ONE + np.log(np.float32(1 + places[name])))
    # The arrays are cleared only where they were used, so that the time of a
    # text does not depend on the number of names.
    places[name] = 0
    sums[name, 1] = 0
  labels, n = np.empty(len(names), np.int32), 0
  for name in names:
    label = owners[name]
    # best_of has the number of a name plus 1, so that 0 stands for none.
    best = best_of[label] - 1
    if best < 0:
      labels[n] = label
      n += 1
    # At equal scores, the name with the lower number wins.
    if best < 0 or (scores[name], best) > (scores[best], name):
      best_of[label] = name + 1
  labels = labels[:n]
  best = best_of[labels] - np.int32(1)
  best_scores = scores[best]
  best_of[labels] = 0
  scores[names] = 0
  return labels, best_scores, best


@njit(nogil=True, cache=True, error_model='numpy')
def _add_idf(rows, counts, postings, sums):
  """Adds idf (1 + ln count) and idf of units to names; returns these names."""
  indptr, indices, idf = postings
  n = 0
  for row in rows:
    n += indptr[row + 1] - indptr[row]
  names, size = np.empty(n, np.int32), 0
  for row, count in zip(rows, counts):
    weight = idf[row] * (ONE + np.log(np.float32(count)))
    for name in indices[indptr[row] : indptr[row + 1]]:
      # idf is above 0, so 0 says that no earlier unit was in the name.
      if sums[name, 1] == 0:
        names[size] = name
        size += 1
      sums[name, 0] += weight
      sums[name, 1] += idf[row]
  return names[:size]
