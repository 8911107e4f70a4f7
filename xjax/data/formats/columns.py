"""Chooses the columns of text and labels, and reads documents from rows."""

import ast
import collections
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import json
from typing import Any
import warnings

from xjax.core.errors import DataError
from xjax.core.texts import plain_name
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
_SEPARATORS = ';|,'
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
  shown = [name if name.isprintable() else ascii(name) for name in names]
  has = f'; the columns are: {", ".join(shown[:_SHOWN])}'
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
    separator=wanted.separator or guess_separator(cells),
    id=_first([wanted.id] if wanted.id else _IDS, names),
    split=_split_column(names, rows, {*text, labels}),
  )


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
  """Reads a list in brackets, of JSON or pandas; None if it is none."""
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


def read_row(
  columns: Columns, fields: Fields, default_id: str, need_labels: bool = True
) -> Document:
  """Reads a document from the cells of a row, and adds its faults.

  The default id is for tables without a column of ids. An empty cell of labels
  means no labels if they are needed, else unknown labels (None).
  """
  row = fields.row
  zones = {
    name: fields.as_text(_plain(row.get(name)), name) for name in columns.text
  }
  fields.check_text(zones.values())
  id_ = default_id
  if columns.id and (need_labels or row.get(columns.id) is not None):
    value = _stripped(row.get(columns.id))
    id_ = fields.as_id('' if _is_missing(value) else value, columns.id)
  values = map(_stripped, _label_values(columns, fields))
  seen = (v for v in values if plain_name(str(v)))  # others are no label
  ids = (fields.as_id(v, columns.labels) for v in seen)
  labels = tuple(dict.fromkeys(filter(None, ids)))
  return Document(id_, zones, labels if labels or need_labels else None)


def _label_values(columns: Columns, fields: Fields) -> list[Any]:
  value = _stripped(fields.row.get(columns.labels))
  if isinstance(value, list):
    return value
  if _is_missing(value) or value == '':
    return []
  if not isinstance(value, str) or columns.separator == NO_SEPARATOR:
    return [value]
  if columns.separator != LIST:
    return value.split(columns.separator)
  values = parse_list(value)
  if values is None:
    message = f'{columns.labels} is {value[:40]!a}, not a list in brackets'
    fields.faults.append(message)
  return values or []


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
