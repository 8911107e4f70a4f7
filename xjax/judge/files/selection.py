"""The best labels of each document, from sparse scores."""

from collections.abc import Iterator

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.data.formats.xc_sidecars import among
from xjax.judge.files.rows import LabelRows
from xjax.judge.lists import Lists

_BLOCK = 1 << 21  # entries sorted at a time


def best_labels(found: LabelRows, depth: int) -> Lists:
  """The first labels of each row, by score descending, then by column.

  Scores are compared as they are given, before they become float32. Where
  found is ranked, labels of one score stay in their order.

  Args:
    found: N rows of scored labels; those not in a row are not predicted.
    depth: K, at least 1.

  Returns:
    Lists [N, K]; a row with fewer labels ends in PAD.
  """
  ids = np.full((len(found), depth), PAD, np.int32)
  scores = np.full((len(found), depth), -np.inf, np.float32)
  for start, end in _blocks(found.rows.indptr):
    indptr = found.rows.indptr[start : end + 1]
    row = np.repeat(np.arange(start, end), np.diff(indptr))
    values = found.rows.values[indptr[0] : indptr[-1]]
    given = found.scores[indptr[0] : indptr[-1]]
    keys = (-given, row) if found.ranked else (values, -given, row)
    order = np.lexsort(keys)
    # Rows stay where they are: a place's rank is its distance from the start.
    rank = np.arange(len(row)) - (indptr[row - start] - indptr[0])
    kept = rank < depth
    at, order = (row[kept], rank[kept]), order[kept]
    ids[at], scores[at] = values[order], given[order]
  return Lists(ids, scores)


def _blocks(indptr: np.ndarray) -> Iterator[tuple[int, int]]:
  """Rows (start, end) of about _BLOCK entries, at least one row each."""
  start, n = 0, len(indptr) - 1
  while start < n:
    end = int(np.searchsorted(indptr, indptr[start] + _BLOCK, 'right')) - 1
    end = min(max(end, start + 1), n)
    yield start, end
    start = end


def cut_length(found: LabelRows) -> int:
  """The number of labels K at which the rows were cut, if they were.

  A file of scores does not say whether what it lacks scored less or was never
  scored. Where one system after the other writes its best K labels, rows of K
  abound, and none is longer; a threshold, or a tree's few candidates, leave
  rows of many lengths. So rows are lists cut at K, the longest length, if K is
  below L and at least half of the rows that are not empty have it. Shorter
  ones ended by themselves. Where that is not so, rows hold all that is
  predicted.

  Args:
    found: N rows of scored labels; ranked ones are lists always.

  Returns:
    K, at least 1; 0: they were not cut.
  """
  lengths = found.rows.lengths
  longest = int(lengths.max(initial=0))
  if found.ranked:
    return max(longest, 1)
  of_all = found.n_labels is not None and longest >= found.n_labels
  abound = 2 * np.sum(lengths == longest) >= np.sum(lengths > 0)
  return longest if abound and not of_all else 0


def without_pairs(lists: Lists, pairs: np.ndarray, path: object) -> Lists:
  """Lists that were cut before, without pairs of a document and a label.

  What would have moved up is not known, so that all become as short as the
  one that loses most; but a list that ended in PAD was whole.

  Args:
    lists: [N, K].
    pairs: int64 [pairs, 2], document and label.
    path: the file of the lists, for messages.

  Raises:
    DataError: nothing would be left.
  """
  listed = lists.ids != PAD
  rows = Ragged(
    np.concatenate([[0], np.cumsum(listed.sum(-1))]), lists.ids[listed]
  )
  kept = listed.copy()
  kept[listed] = ~among(rows, pairs)
  whole = ~listed[:, -1]
  left = kept.sum(-1)
  depth = int(left[~whole].min(initial=lists.ids.shape[1]))
  if not depth:
    row = int(np.argmax(~whole & (left == 0)))
    raise DataError(
      f'{path}: row {row}: the filter takes out all that is listed: predict '
      'deeper lists'
    )
  order = np.argsort(~kept, axis=-1, kind='stable')[:, :depth]
  ids = np.where(kept, lists.ids, PAD)
  scores = np.where(kept, lists.scores, np.float32(-np.inf))
  return Lists(
    np.take_along_axis(ids, order, -1), np.take_along_axis(scores, order, -1)
  )
