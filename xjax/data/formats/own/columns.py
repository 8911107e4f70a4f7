"""Chooses the columns of text and labels, and reads documents from rows."""

import ast
import collections
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import json
import shlex
from typing import Any
import warnings

from absl import logging

from xjax.core.errors import DataError
from xjax.data.files.json_lines import Fields
from xjax.data.schema import Document

_TEXTS = frozenset(
  'title headline heading subject summary abstract description text body '
  'content contents document article sentence message review comment question '
  'full_text fulltext'.split()
)
# The first two names are certain; of the others, a table may have only one.
_CERTAIN = ('labels', 'label')
_LABELS = (
  'tags tag topics topic categories category classes class keywords keyword '
  'subjects genres genre codes'
).split()
_IDS = ('id', 'doc_id', 'document_id')
_SPLITS = ('split', 'fold', 'set')
SPLIT_NAMES = {
  'train': 'train',
  'training': 'train',
  'dev': 'dev',
  'val': 'dev',
  'valid': 'dev',
  'validation': 'dev',
  'test': 'test',
  'testing': 'test',
}
NO_SEPARATOR = 'none'  # a cell has one label
LIST = 'list'  # a cell has a list in brackets
_RARE = ';|'  # characters that are rare in labels
_SEPARATORS = f'{_RARE},'
_OFTEN = 0.2  # share of cells with a rare character, for a warning
_SHOWN = 30  # names of columns in a message


@dataclasses.dataclass(frozen=True)
class Columns:
  """Says what the columns of a table hold."""

  text: tuple[str, ...]  # columns of text, which become zones
  labels: str = ''  # '' if the table has none
  separator: str = NO_SEPARATOR  # of the labels in a cell, or LIST
  id: str = ''  # '' if the table has none
  split: str = ''  # '' if the table has none


def choose_columns(
  wanted: Columns,
  names: Sequence[str],
  rows: Sequence[Mapping[str, Any]],
  where: str,
  need_labels: bool = True,
) -> Columns:
  """Returns the columns of a table; those that are not wanted are guessed.

  The separator is guessed from the first `rows`. A DataError lists the columns
  if one does not exist, or cannot be guessed.
  """
  has = f'; the columns are: {_listed(names)}'
  for field, chosen in (
    ('text', wanted.text),
    ('labels', [wanted.labels] if wanted.labels and need_labels else ()),
    ('id', [wanted.id] if wanted.id and need_labels else ()),
  ):
    for name in chosen:
      if name not in names:
        raise DataError(
          f'{where}: there is no column {name!a} (data.{field}){has}'
        )
  labels = wanted.labels if wanted.labels in names else ''
  labels = labels or ('' if wanted.labels else _usual_labels(names))
  text = wanted.text or tuple(
    name for name in names if name.lower() in _TEXTS and name != labels
  )
  if not text or need_labels and not labels:
    missing = ' and '.join(
      what
      for what, known in (('the text', text), ('the labels', labels))
      if not known
    )
    raise DataError(
      f'{where}: cannot tell which columns hold {missing}{has}. Name them: '
      '--config.data.text=COLUMN[,COLUMN] --config.data.labels=COLUMN'
    )
  cells = [row.get(labels) for row in rows] if labels else []
  return Columns(
    text=tuple(text),
    labels=labels,
    separator=wanted.separator or _separator(cells, labels, where),
    id=_first([wanted.id] if wanted.id else _IDS, names),
    split=_split_column(names, rows, {*text, labels}),
  )


def _listed(names: Sequence[str]) -> str:
  shown = [name if name.isprintable() else ascii(name) for name in names]
  more = [f'... and {len(names) - _SHOWN} more'] if len(names) > _SHOWN else []
  return ', '.join(shown[:_SHOWN] + more)


def _first(usual: Iterable[str], names: Sequence[str]) -> str:
  """Returns the first of the usual names that is a column; '' if none is."""
  lower = {name.lower(): name for name in reversed(names)}
  return next((lower[name] for name in usual if name in lower), '')


def _usual_labels(names: Sequence[str]) -> str:
  """Returns the column of labels; '' if no column or several could be it."""
  if certain := _first(_CERTAIN, names):
    return certain
  usual = [name for name in names if name.lower() in _LABELS]
  return usual[0] if len(usual) == 1 else ''


def _split_column(
  names: Sequence[str], rows: Sequence[Mapping[str, Any]], taken: set[str]
) -> str:
  """Returns the column that names the split of each row; '' if none does."""
  name = _first(_SPLITS, [name for name in names if name not in taken])
  values = {split_of(row.get(name)) for row in rows} if name else set()
  # A column such as `fold` may have numbers instead.
  return name if values and '' not in values else ''


def split_of(value: Any) -> str:
  """Returns train, dev or test for the usual names of a split, else ''."""
  return SPLIT_NAMES.get(str(value).strip().lower(), '')


def _separator(cells: Sequence[Any], column: str, where: str) -> str:
  separator = guess_separator(cells)
  texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
  if separator == NO_SEPARATOR:
    for character in _RARE:
      count = sum(character in text for text in texts)
      if texts and count >= _OFTEN * len(texts):
        logging.warning(
          '%s: each cell of the column %s is one label, because few of the '
          'texts between %a are in several different cells. If %a separates '
          'labels: --config.data.label_separator=%s',
          where,
          column,
          character,
          character,
          shlex.quote(character),
        )
  return separator


def guess_separator(cells: Iterable[Any]) -> str:
  """Guesses what stands between labels: ';', '|', ',', LIST or NO_SEPARATOR.

  A character separates labels if most of the parts between it are in several
  different cells. So "oil, gas" as one label is not divided, however often it
  occurs. Cells that are not texts are ignored.
  """
  texts = [cell.strip() for cell in cells if isinstance(cell, str)]
  texts = [text for text in texts if text]
  if texts and all(parse_list(text) is not None for text in texts):
    return LIST
  for separator in _SEPARATORS:
    distinct = {tuple(_parts(text, separator)) for text in texts}
    uses = collections.Counter(part for row in distinct for part in set(row))
    parts = [part for row in distinct if len(row) > 1 for part in row]
    if parts and 2 * sum(uses[part] > 1 for part in parts) >= len(parts):
      return separator
  return NO_SEPARATOR


def _parts(text: str, separator: str) -> list[str]:
  return [part for part in map(str.strip, text.split(separator)) if part]


def parse_list(text: str) -> list[Any] | None:
  """Reads a list in brackets, as JSON or Python writes it; None if it is none.

  Python's own way of writing a list is common in CSV files of pandas.
  """
  if not (text.startswith('[') and text.endswith(']')):
    return None
  for parse in (json.loads, ast.literal_eval):
    try:
      with warnings.catch_warnings():
        warnings.simplefilter('ignore', SyntaxWarning)  # odd escapes
        values = parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
      continue
    return values if isinstance(values, list) else None
  return None


class RowReader:
  """Reads documents from the rows of a table, and counts mended labels.

  These are labels that a document has already, and empty ones.
  """

  def __init__(self, columns: Columns):
    self.columns = columns
    self.repeated = self.empty = 0

  def read(
    self, fields: Fields, default_id: str, need_labels: bool = True
  ) -> Document:
    """Reads a document from the cells of a row, and adds its faults.

    The default id is for tables without a column of ids. An empty cell of
    labels means no labels if they are needed, else unknown labels (None).
    """
    row, columns = fields.row, self.columns
    before = len(fields.faults)
    zones = {
      name: fields.as_text(_plain(row.get(name)), name) for name in columns.text
    }
    if len(fields.faults) == before and not any(
      text.strip() for text in zones.values()
    ):
      fields.faults.append('the document has no text')
    id_ = default_id
    if columns.id and (need_labels or row.get(columns.id) is not None):
      value = _stripped(row.get(columns.id))
      id_ = fields.as_id('' if _is_missing(value) else value, columns.id)
    labels = self._labels(fields)
    return Document(id_, zones, labels if labels or need_labels else None)

  def _labels(self, fields: Fields) -> tuple[str, ...]:
    """Returns the labels of a row without spaces, empty and repeated ones."""
    name = self.columns.labels
    values = self._label_values(fields.row.get(name), fields)
    labels: dict[str, None] = {}
    for value in values:
      if _stripped(value) == '':
        self.empty += 1
      elif label := fields.as_id(_stripped(value), name):
        self.repeated += label in labels
        labels[label] = None
    return tuple(labels)

  def _label_values(self, value: Any, fields: Fields) -> list[Any]:
    separator = self.columns.separator
    if isinstance(value, list):
      return value
    if _is_missing(value) or _stripped(value) == '':
      return []
    if not isinstance(value, str) or separator == NO_SEPARATOR:
      return [value]
    value = value.strip()
    if separator != LIST:
      return value.split(separator)
    values = parse_list(value)
    if values is None:
      fields.faults.append(
        f'{self.columns.labels} is {value[:40]!a}, not a list in brackets'
      )
    return values or []

  def summary(self) -> str:
    """Returns a sentence about labels that were dropped; '' if none were."""
    dropped = (
      (self.repeated, 'that the document has already'),
      (self.empty, 'that are empty'),
    )
    parts = [f'{count} {what}' for count, what in dropped if count]
    return f'labels left out: {" and ".join(parts)}' if parts else ''


def _is_missing(value: Any) -> bool:
  """Returns whether a cell is missing; pandas writes NaN for such cells."""
  return value is None or value != value


def _plain(value: Any) -> Any:
  """Returns a cell as text: numbers are written out, lists have lines."""
  if _is_missing(value):
    return ''
  if isinstance(value, list) and all(isinstance(v, str) for v in value):
    return '\n'.join(value)
  if isinstance(value, int | float) and not isinstance(value, bool):
    return str(value)
  return value


def _stripped(value: Any) -> Any:
  return value.strip() if isinstance(value, str) else value
