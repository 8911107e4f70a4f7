"""Labels of documents, predicted or gold, as one file gives them."""

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
  """A row of labels for each of N documents.

  Attributes:
    path: the file, for messages.
    rows: N rows of labels: indices into labels, or columns.
    labels: label ids; None: the file knows no more than columns.
    n_labels: number of columns; None: the file does not say.
    doc_ids: N document ids; None: the file has none.
    lines: int64 [N], the line of each row; None: it has no lines.
    scores: float32 or float64, of the values of rows; None: they have none.
    ranked: whether labels of one score stand in the order they are to have.
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
    """Where a row is, for messages."""
    if self.lines is None:
      return f'{self.path}: row {row}'
    return f'{self.path}:{self.lines[row]}'

  def fail(self, entry: int, what: str) -> NoReturn:
    """Raises the error of one label; {} in what is the label."""
    row = int(np.searchsorted(self.rows.indptr, entry, 'right')) - 1
    raise DataError(f'{self.place(row)}: {what.format(self._name(entry))}')

  def check(self, bad: np.ndarray, what: str) -> None:
    """Fails where any of bad, bool over the values of rows, is True."""
    if np.any(bad):
      self.fail(int(np.argmax(bad)), what)

  def checked(self) -> 'LabelRows':
    """Itself, once no row has a label twice and every score is finite.

    Raises:
      DataError: names the row and the label.
    """
    self.check(repeated_entries(self.rows), 'label {} stands twice')
    if self.scores is not None:
      self.check(np.isnan(self.scores), 'the score of label {} is NaN')
      with np.errstate(over='ignore'):
        listed = self.scores.astype(np.float32)
      self.check(np.isinf(listed), 'the score of label {} is infinite')
    return self

  def kept(self, kept: np.ndarray) -> 'LabelRows':
    """The labels where kept, bool over the values of rows, is True."""
    scores = None if self.scores is None else self.scores[kept]
    return dataclasses.replace(self, rows=self.rows.keep(kept), scores=scores)

  def _name(self, entry: int) -> str:
    value = int(self.rows.values[entry])
    return str(value) if self.labels is None else ascii(self.labels[value])


class RowsDraft:
  """Rows of labels while JSON lines are being read.

  Args:
    path: the file.
  """

  def __init__(self, path: str | os.PathLike):
    self._path = path
    self._ids: dict[str | None, None] = {}
    self._labels: dict[str, int] = {}
    self._ends, self._values = array('q', [0]), array('i')
    self._lines, self._scores = array('q'), array('d')

  def misfits(self, id_: str | None, whats: list[str]) -> None:
    """Notes in whats a document that is there already."""
    if id_ and id_ in self._ids:
      whats.append(f'duplicate document {id_!a}')

  def add(
    self,
    line: int,
    id_: str | None,
    labels: tuple[str, ...],
    scores: tuple[float, ...] = (),
  ) -> None:
    """Adds a document: its labels, each once, and perhaps their scores."""
    self._ids[id_] = None
    self._lines.append(line)
    for label in labels:
      self._values.append(self._labels.setdefault(label, len(self._labels)))
    self._ends.append(len(self._values))
    self._scores.extend(scores)

  def done(self, scored: bool = False) -> LabelRows:
    """The rows, with scores float64 where each label has one."""
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
  kept[listed] = ~in_pairs(rows, pairs)
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
