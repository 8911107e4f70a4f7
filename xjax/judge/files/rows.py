"""Labels of documents, predicted or gold, as one file gives them."""

from array import array
import dataclasses
import os
from typing import NoReturn

import numpy as np

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.formats.svmlight import repeated


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
    self.check(repeated(self.rows), 'label {} stands twice')
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
