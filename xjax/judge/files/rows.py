"""Holds the labels of documents, predicted or gold, as read from one file."""

from array import array
from collections.abc import Iterator
import dataclasses
import os
from typing import NoReturn

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.data.formats.svmlight import repeated_entries
from xjax.data.formats.xc_files import in_pairs
from xjax.judge.predictions import Lists


@dataclasses.dataclass(frozen=True, eq=False)
class LabelRows:
  """Holds a row of labels for each of N documents.

  Attributes:
    path: the file, for messages.
    rows: N rows of labels: indices into `labels`, or column numbers.
    labels: label ids; None: the file has only column numbers.
    n_labels: number of columns; None: the file does not say.
    doc_ids: N document ids; None: the file has none.
    lines: int64 [N], the line of each row; None: the file has no lines.
    scores: float32 or float64, one for each value of rows; None: no scores.
    ranked: whether labels with equal scores keep the order of the file.
  """

  path: str | os.PathLike
  rows: Ragged
  labels: tuple[str, ...] | None = None
  n_labels: int | None = None
  doc_ids: tuple[str, ...] | None = None
  lines: np.ndarray | None = None
  scores: np.ndarray | None = None
  ranked: bool = False

  def __len__(self) -> int:
    return len(self.rows)

  def place(self, row: int) -> str:
    """Returns the place of a row, for messages: the file with line or row."""
    if self.lines is None:
      return f'{self.path}: row {row}'
    return f'{self.path}:{self.lines[row]}'

  def fail(self, entry: int, message: str) -> NoReturn:
    """Raises a DataError about one entry.

    Args:
      entry: index into the values of rows.
      message: the message, where {} stands for the label.
    """
    row = int(np.searchsorted(self.rows.indptr, entry, 'right')) - 1
    raise DataError(f'{self.place(row)}: {message.format(self._name(entry))}')

  def check(self, bad: np.ndarray, message: str) -> None:
    """Raises a DataError about the first entry that is bad, if any is.

    Args:
      bad: bool, one for each value of rows.
      message: the message, where {} stands for the label.
    """
    if np.any(bad):
      self.fail(int(np.argmax(bad)), message)

  def validate(self) -> 'LabelRows':
    """Checks that labels of a row are distinct and scores finite.

    Returns:
      The rows themselves.

    Raises:
      DataError: a check failed; names the row and the label.
    """
    self.check(repeated_entries(self.rows), 'label {} occurs twice')
    if self.scores is not None:
      self.check(np.isnan(self.scores), 'the score of label {} is NaN')
      with np.errstate(over='ignore'):
        listed = self.scores.astype(np.float32)
      self.check(np.isinf(listed), 'the score of label {} is infinite')
    return self

  def keep(self, kept: np.ndarray) -> 'LabelRows':
    """Returns the rows with only some of their labels.

    Args:
      kept: bool, one for each value of rows.
    """
    scores = None if self.scores is None else self.scores[kept]
    return dataclasses.replace(self, rows=self.rows.keep(kept), scores=scores)

  def _name(self, entry: int) -> str:
    value = int(self.rows.values[entry])
    return str(value) if self.labels is None else ascii(self.labels[value])


class RowsDraft:
  """Collects rows of labels while JSON lines are being read."""

  def __init__(self, path: str | os.PathLike):
    """Starts without rows.

    Args:
      path: the file that is read.
    """
    self._path = path
    self._ids: dict[str | None, None] = {}
    self._labels: dict[str, int] = {}
    self._ends, self._values = array('q', [0]), array('i')
    self._lines, self._scores = array('q'), array('d')

  def add_faults(self, id_: str | None, messages: list[str]) -> None:
    """Adds a message if a document with this id was added before."""
    if id_ and id_ in self._ids:
      messages.append(f'duplicate document {id_!a}')

  def add(
    self,
    line: int,
    id_: str | None,
    labels: tuple[str, ...],
    scores: tuple[float, ...] = (),
  ) -> None:
    """Adds a document.

    Args:
      line: number of its line in the file.
      id_: id of the document; None if the format has none.
      labels: its label ids.
      scores: a score for each label; () without scores.
    """
    self._ids[id_] = None
    self._lines.append(line)
    for label in labels:
      self._values.append(self._labels.setdefault(label, len(self._labels)))
    self._ends.append(len(self._values))
    self._scores.extend(scores)

  def finish(self, scored: bool = False) -> LabelRows:
    """Returns the rows.

    Args:
      scored: whether labels have scores; they become float64.
    """
    rows = Ragged(
      np.asarray(self._ends, np.int64), np.asarray(self._values, np.int32)
    )
    return LabelRows(
      self._path,
      rows,
      tuple(self._labels),
      doc_ids=None if None in self._ids else tuple(self._ids),
      lines=np.asarray(self._lines, np.int64),
      scores=np.asarray(self._scores, np.float64) if scored else None,
      ranked=scored,
    )


_BLOCK = 1 << 21  # entries sorted at a time


def best_labels(scored: LabelRows, depth: int) -> Lists:
  """Returns the best labels of each row, by score descending, then by column.

  Scores are compared before they become float32. If the rows are ranked, labels
  with equal scores keep their order instead.

  Args:
    scored: N rows of scored labels; labels not in a row are not predicted.
    depth: K, at least 1.

  Returns:
    Lists [N, K]; a row with fewer labels ends in PAD.
  """
  ids = np.full((len(scored), depth), PAD, np.int32)
  scores = np.full((len(scored), depth), -np.inf, np.float32)
  for start, end in _blocks(scored.rows.indptr):
    indptr = scored.rows.indptr[start : end + 1]
    row = np.repeat(np.arange(start, end), np.diff(indptr))
    values = scored.rows.values[indptr[0] : indptr[-1]]
    exact = scored.scores[indptr[0] : indptr[-1]]
    keys = (-exact, row) if scored.ranked else (values, -exact, row)
    order = np.lexsort(keys)
    # The sort does not move rows, so an entry's rank is its distance from the
    # start of its row.
    rank = np.arange(len(row)) - (indptr[row - start] - indptr[0])
    kept = rank < depth
    at, order = (row[kept], rank[kept]), order[kept]
    ids[at], scores[at] = values[order], exact[order]
  return Lists(ids, scores)


def _blocks(indptr: np.ndarray) -> Iterator[tuple[int, int]]:
  """Yields blocks of rows (start, end) with about _BLOCK entries each.

  Every block has at least one row.
  """
  start, n = 0, len(indptr) - 1
  while start < n:
    end = int(np.searchsorted(indptr, indptr[start] + _BLOCK, 'right')) - 1
    end = min(max(end, start + 1), n)
    yield start, end
    start = end


def cut_length(scored: LabelRows) -> int:
  """Returns the length K at which the rows were cut to top-k lists, if any.

  A file of scores does not say whether a missing label had a lower score or was
  never scored, so this is a guess. Systems that write their K best labels make
  many rows of length K and none that is longer. A threshold, or a tree with few
  candidates, makes rows of many lengths. So rows count as cut at the longest
  length K if K is below L and at least half of the non-empty rows have this
  length; shorter rows then have all predicted labels. Otherwise no row was cut:
  all rows have all predicted labels.

  Args:
    scored: N rows of scored labels; ranked rows always count as cut.

  Returns:
    K, at least 1; 0 if the rows were not cut.
  """
  lengths = scored.rows.lengths
  longest = int(lengths.max(initial=0))
  if scored.ranked:
    return max(longest, 1)
  has_all = scored.n_labels is not None and longest >= scored.n_labels
  is_common = 2 * np.sum(lengths == longest) >= np.sum(lengths > 0)
  return longest if is_common and not has_all else 0


def without_pairs(lists: Lists, pairs: np.ndarray, path: object) -> Lists:
  """Removes pairs of a document and a label from top-k lists.

  The labels that would move up into a list are not known. Therefore all lists
  become as short as the list that loses most. A list that ends in PAD has all
  labels, and makes no other list shorter.

  Args:
    lists: lists of N documents.
    pairs: int64 [pairs, 2], document and label.
    path: the file of the lists, for messages.

  Raises:
    DataError: a list would lose all labels.
  """
  listed = lists.ids != PAD
  rows = Ragged(
    np.concatenate([[0], np.cumsum(listed.sum(-1))]), lists.ids[listed]
  )
  kept = listed.copy()
  kept[listed] = ~in_pairs(rows, pairs)
  whole = ~listed[:, -1]
  left = kept.sum(-1)
  depth = int(left[~whole].min(initial=lists.ids.shape[1]))
  if not depth:
    row = int(np.argmax(~whole & (left == 0)))
    raise DataError(
      f'{path}: row {row}: the filter removes all labels of the list; predict '
      'deeper lists'
    )
  order = np.argsort(~kept, axis=-1, kind='stable')[:, :depth]
  ids = np.where(kept, lists.ids, PAD)
  scores = np.where(kept, lists.scores, np.float32(-np.inf))
  return Lists(
    np.take_along_axis(ids, order, -1), np.take_along_axis(scores, order, -1)
  )
