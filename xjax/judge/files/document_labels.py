"""Holds the predicted or gold labels of documents that a file contains."""

from array import array
from collections.abc import Callable, Iterator
import dataclasses
import os
from typing import Any, NoReturn

import numpy as np

from xjax.core.allocation import check_memory
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, offsets_of
from xjax.data.files.faults import Faults
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import read_records
from xjax.data.formats.xc_files import in_pairs, repeated_entries
from xjax.judge.label_lists import LabelLists


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentLabels:
  """Holds a row of labels for each of N documents."""

  path: str | os.PathLike  # for messages
  rows: Ragged  # indices into `labels`, or column numbers
  labels: tuple[str, ...] | None = None
  n_labels: int | None = None  # number of columns, if the file says it
  doc_ids: tuple[str, ...] | None = None
  lines: np.ndarray | None = None  # int64 [N], of a text file
  scores: np.ndarray | None = None  # float32 or float64, for each value
  ranked: bool = False  # whether equal scores keep the file's order

  def __len__(self) -> int:
    return len(self.rows)

  def place(self, row: int) -> str:
    """Returns the path and the line (or row number) of a row, for messages."""
    if self.lines is None:
      return f'{self.path}: row {row}'
    return f'{self.path}:{self.lines[row]}'

  def fail(self, entry: int, message: str) -> NoReturn:
    """Raises a DataError about an entry of rows; the label replaces {}."""
    row = int(np.searchsorted(self.rows.indptr, entry, 'right')) - 1
    raise DataError(f'{self.place(row)}: {message.format(self._name(entry))}')

  def check(self, bad: np.ndarray, message: str) -> None:
    """Raises a DataError about the first bad entry; the label replaces {}."""
    if np.any(bad):
      self.fail(int(np.argmax(bad)), message)

  def check_labels(self, bad: np.ndarray, message: str) -> None:
    """Raises a DataError about the first bad label, bool [labels]."""
    self.check(bad[self.rows.values], message)
    if np.any(bad):  # only a predictions.npz has labels outside of its rows
      id_ = self.labels[int(np.argmax(bad))]
      raise DataError(f'{self.path}: {message.format(ascii(id_))}')

  def validate(self) -> 'DocumentLabels':
    """Checks that labels of a row are distinct and that scores are finite."""
    self.check(repeated_entries(self.rows), 'label {} occurs twice')
    if self.scores is not None:
      self.check(np.isnan(self.scores), 'the score of label {} is NaN')
      with np.errstate(over='ignore'):
        listed = self.scores.astype(np.float32)
      self.check(np.isinf(listed), 'the score of label {} is infinite')
    return self

  def keep(self, kept: np.ndarray) -> 'DocumentLabels':
    """Returns the rows with only the entries of rows.values that are `kept`."""
    scores = None if self.scores is None else self.scores[kept]
    return dataclasses.replace(self, rows=self.rows.keep(kept), scores=scores)

  def with_ranks(self) -> 'DocumentLabels':
    """Returns the rows with scores in the order of labels; the last has 1."""
    ends = np.repeat(self.rows.indptr[1:], self.rows.lengths)
    scores = (ends - np.arange(len(ends))).astype(np.float64)
    return dataclasses.replace(self, scores=scores)

  def take(self, order: np.ndarray) -> 'DocumentLabels':
    """Returns rows without scores in another order."""
    rows = Ragged.of([self.rows[row] for row in order.tolist()])
    doc_ids, lines = self.doc_ids, self.lines
    return dataclasses.replace(
      self,
      rows=rows,
      doc_ids=doc_ids and tuple(doc_ids[row] for row in order.tolist()),
      lines=None if lines is None else lines[order],
    )

  def _name(self, entry: int) -> str:
    value = int(self.rows.values[entry])
    return str(value) if self.labels is None else ascii(self.labels[value])


# Returns the id (or None), the label ids and maybe the scores of a document.
ReadRow = Callable[[Fields], tuple[Any, ...]]


def identifier(fields: Fields, name: str) -> str | None:
  """Reads the id of a document; None if it is known by its row."""
  return fields.identifier(name) if name in fields else None


def read_json_rows(
  path: str | os.PathLike, read: ReadRow, scored: bool = False
) -> DocumentLabels:
  """Reads a document per JSON line; if `scored`, the rows are `ranked`.

  Scores are None if all that `read` returns are NaN.
  All faults of the file, also those that `read` adds, are in one DataError.
  """
  faults = Faults(on_error=None)
  ids: dict[str | None, None] = {}
  known: dict[str, int] = {}
  ends, values = array('q', [0]), array('i')
  lines, scores = array('q'), array('d')
  for number, fields in read_records(path, faults):
    id_, labels, *row_scores = read(fields)
    if id_ and id_ in ids:
      fields.faults.append(f'duplicate document {id_!a}')
    if not fields.faults:
      ids[id_] = None
      lines.append(number)
      values.extend(known.setdefault(label, len(known)) for label in labels)
      ends.append(len(values))
      for numbers in row_scores:
        scores.extend(numbers)
  faults.raise_or_log()
  rows = DocumentLabels(
    path,
    Ragged(np.asarray(ends, np.int64), np.asarray(values, np.int32)),
    tuple(known),
    doc_ids=None if None in ids else tuple(ids),
    lines=np.asarray(lines, np.int64),
    ranked=scored,
  )
  lacking = np.isnan(scores)
  if lacking.all() and len(lacking) or not scored:
    return rows
  rows.check(lacking, 'label {} has no score, but others have')
  return dataclasses.replace(rows, scores=np.asarray(scores, np.float64))


_BLOCK = 1 << 21  # number of entries that are sorted at a time


def best_labels(scored: DocumentLabels, depth: int) -> LabelLists:
  """Returns the best labels of each row, in descending order of score.

  Equal scores are sorted by column, or keep the order of a `ranked` row. Scores
  are compared first, and then rounded to float32.
  """
  check_memory(
    8 * len(scored) * depth,
    f'{scored.path}: lists of {depth} labels for {len(scored)} documents',
    'choose a smaller --depth, or smaller cut-offs in --ks',
  )
  ids = np.full((len(scored), depth), PAD, np.int32)
  scores = np.full((len(scored), depth), -np.inf, np.float32)
  for start, end in _blocks(scored.rows.indptr):
    indptr = scored.rows.indptr[start : end + 1]
    row = np.repeat(np.arange(start, end), np.diff(indptr))
    values = scored.rows.values[indptr[0] : indptr[-1]]
    exact = scored.scores[indptr[0] : indptr[-1]]
    keys = (-exact, row) if scored.ranked else (values, -exact, row)
    order = np.lexsort(keys)
    # The entries of a row stay together, so the rank of an entry is its
    # distance from the start of the row.
    rank = np.arange(len(row)) - (indptr[row - start] - indptr[0])
    kept = rank < depth
    at, order = (row[kept], rank[kept]), order[kept]
    ids[at], scores[at] = values[order], exact[order]
  return LabelLists(ids, scores)


def _blocks(indptr: np.ndarray) -> Iterator[tuple[int, int]]:
  """Yields blocks (start, end) of at most _BLOCK entries, or of one row."""
  start, n = 0, len(indptr) - 1
  while start < n:
    end = int(np.searchsorted(indptr, indptr[start] + _BLOCK, 'right')) - 1
    end = min(max(end, start + 1), n)
    yield start, end
    start = end


def cut_length(scored: DocumentLabels) -> int:
  """Guesses whether the rows are top-k lists; returns their length K, else 0.

  If a system writes its K best labels, many rows have length K and no row is
  longer. With a threshold, rows have many different lengths. So rows are top-k
  lists if they are `ranked`, or if K, the length of the longest row, is below
  the number of labels, and at least half of the non-empty rows have length K.
  Other rows have all predicted labels.
  """
  lengths = scored.rows.lengths
  longest = int(lengths.max(initial=0))
  if scored.ranked:
    return max(longest, 1)
  has_all = scored.n_labels is not None and longest >= scored.n_labels
  is_common = 2 * np.sum(lengths == longest) >= np.sum(lengths > 0)
  return longest if is_common and not has_all else 0


def without_pairs(
  lists: LabelLists, pairs: np.ndarray, path: object
) -> LabelLists:
  """Removes pairs (document row, label), int64 [pairs, 2], from top-k lists.

  Lists that may lack their next label become shorter (LabelLists.shortened).
  """
  listed = lists.ids != PAD
  rows = Ragged(offsets_of(listed.sum(-1)), lists.ids[listed])
  kept = listed.copy()
  kept[listed] = ~in_pairs(rows, pairs)
  short = lists.shortened(kept)
  if not short.ids.shape[1]:
    row = int(np.argmax(listed[:, -1] & ~kept.any(-1)))
    raise DataError(
      f'{path}: row {row}: the filter removes all labels of the list; predict '
      'more labels per document'
    )
  return short
