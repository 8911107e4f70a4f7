"""Chooses the columns of text and labels, and reads documents from rows."""

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import csv
import dataclasses
import io
import json
import re
from typing import Any

from absl import logging

from xjax.core.errors import DataError
from xjax.core.texts import plain_name
from xjax.data.files.cells import (
  FLAGS,
  LIST,
  NO_SEPARATOR,
  USUAL,
  as_flag,
  as_plain,
  divisible,
  guess_separator,
  have_flags,
  is_empty,
  is_missing,
  split_cell,
  split_flags,
)
from xjax.data.files.csv_table import Rows
from xjax.data.files.fields import Fields
from xjax.data.files.split_names import names_splits
from xjax.data.formats.data_config import read_document
from xjax.data.schema import Document

USUAL_TEXTS = frozenset(
  'title headline heading subject summary abstract description text body '
  'content contents document article sentence message review comment question '
  'full_text fulltext comment_text'.split()
)
# The first names are certain; of the others, a table may have only one.
SURE_LABELS = ('labels', 'label', 'subject_uris')
_LABELS = (
  'tags tag topics topic categories category classes class keywords keyword '
  'subjects genres genre codes cats'
).split()
_KEYS = ('id', 'uri', 'label', 'name')  # of an object that is a label
_IDS = ('id', 'doc_id', 'document_id')
NO_ID = 'none'  # no column has ids of documents
# pandas writes integers so if a cell of their column is missing.
_WHOLE = re.compile(r'\A(-?\d+)(?:\.0+|,00?)?\Z')
_MANY = 10_000  # integers, after which none is written as 1.0
_SAY = '--config.data.label_separator='
_SEPARATED = (
  f"If it is the same, say it: {_SAY}',' (or another text, ' ' for a space), "
  f'or {NO_SEPARATOR} if each text is one label'
)
_JUDGED = 'Put a semicolon between them, or write lists of JSON'
_SHOWN = 30  # names of columns in a message
_SHOWN_CELL = 60  # characters of a cell in a message


@dataclasses.dataclass(frozen=True)
class Columns:
  """Says what the columns of a table hold."""

  text: tuple[str, ...]  # columns of text, which become zones
  # The column of labels, or columns with 0 or 1 as a row of CSV; '' if the
  # table has none.
  labels: str = ''
  separator: str = ''  # of the labels in a cell, or LIST, FLAGS etc.
  id: str = ''  # '' if the table has none
  whole: bool = False  # labels are integers, written as 1.0
  flags: tuple[str, ...] = ()  # columns with 0 or 1, each of a label
  names: tuple[str, ...] = ()  # of the labels, for FLAGS

  @property
  def is_open(self) -> bool:
    """Returns whether the form of labels in a cell is not known yet."""
    return not self.separator and not self.flags


def choose_columns(
  wanted: Columns,
  names: Sequence[str],
  rows: Sequence[Mapping[str, Any]],
  where: str,
  need_labels: bool = True,
  is_judged: bool = False,
) -> Columns:
  """Returns the columns of a table; those that are not wanted are guessed.

  A table that `is_judged` has labels, which xjax has no flags for. A DataError
  lists the columns if one does not exist, or cannot be guessed.
  """
  shown = [name if name.isprintable() else ascii(name) for name in names]
  has = f'; the columns are: {", ".join(shown[:_SHOWN])}'
  for name in names if len(wanted.text) > 1 else ():
    if wanted.text == tuple(map(str.strip, name.split(','))):
      wanted = dataclasses.replace(wanted, text=(name,))
  labels, flags, hint = _label_columns(wanted, names, rows, need_labels)
  for field, chosen in (
    ('text', wanted.text),
    ('labels', flags or [wanted.labels] if wanted.labels else ()),
    ('id', [wanted.id] if wanted.id not in ('', NO_ID) else ()),
  ):
    for name in chosen:
      if name not in names and (need_labels or field == 'text'):
        raise DataError(
          f'{where}: there is no column {name!a} (data.{field}){has}'
        )
  others = [name for name in names if name not in (labels, *flags)]
  text = wanted.text or tuple(x for x in others if x.lower() in USUAL_TEXTS)
  has_text = bool(text) or is_judged
  if not has_text or need_labels and not labels:
    missing = ['the text'] * (not has_text) + ['the labels'] * (not labels)
    how = (
      ': --config.data.text=COLUMN[,COLUMN] --config.data.labels=COLUMN (or '
      'COLUMN,COLUMN,... with 0 or 1 each)'
    )
    raise DataError(
      f'{where}: cannot tell which columns hold {" and ".join(missing)}{has}'
      f'{hint}. Name them{" labels" if is_judged else how}'
    )
  id_ = wanted.id or _first(_IDS, others)
  id_ = id_ if id_ in names else ''
  return dataclasses.replace(
    wanted, text=text, labels=labels, id=id_, flags=flags
  )


def label_cells(
  columns: Columns, sample: Sequence[Mapping[str, Any]], rows: Rows
) -> Collection[Any]:
  """Returns the texts of cells with labels, and how often each occurs.

  If the first rows have no texts, but lists etc., these are returned instead. A
  DataError says that each is a list of one text, which seems to have several
  labels.
  """
  cells = (row.get(columns.labels) for row in sample)
  first = [cell for cell in cells if not is_missing(cell)]
  if first and not any(isinstance(cell, str) for cell in first):
    lists = [cell for cell in first if cell and isinstance(cell, list)]
    texts = [x[0] for x in lists if [*map(type, x)] == [str]]
    separator = guess_separator(texts if len(texts) == len(lists) else ())
    if separator not in ('', LIST, NO_SEPARATOR):
      name, mark = columns.labels, json.dumps(separator)
      raise DataError(
        f'{name} has lists of one text, such as {max(texts, key=len)!a}, which '
        f'seems to have several labels: divide it, as `jq -c \'.["{name}"] |= '
        f"map(split({mark})[])'` does, or keep it so with {_SAY}{LIST}"
      )
    return first
  cells = (row.get(columns.labels) for _, row in rows)
  return collections.Counter(x for x in cells if isinstance(x, str) and x)


def with_separator(
  columns: Columns,
  files: Mapping[Any, Collection[Any]],
  is_judged: bool = False,
) -> Columns:
  """Returns columns with the form of labels, guessed from the cells of files.

  A DataError says that the files differ, or why labels in a cell cannot be told
  apart.
  """
  texts = {k: x for k, x in files.items() if isinstance(x, collections.Counter)}
  cells = sum(texts.values(), collections.Counter())
  if have_flags(cells or [x for part in files.values() for x in part]):
    return dataclasses.replace(columns, separator=FLAGS)
  if not cells:
    return columns
  separator = guess_separator(cells)
  for part in texts.values() if len(texts) > 1 else ():
    own = guess_separator(part)
    found = separator == NO_SEPARATOR or any(separator in x for x in part)
    if own not in ('', NO_SEPARATOR, separator) or not (own or found):
      separator = ''
  if is_judged and separator in ('', NO_SEPARATOR):  # a few rows tell little
    usual = (mark for mark in ';|' if any(mark in text for text in cells))
    separator = next(usual, separator)
  could = divisible(cells) if separator in ('', NO_SEPARATOR) else ()
  could = could or [*cells] * (not separator)
  if could:  # they may be several labels, but are one each
    ends = dict.fromkeys((could[0], could[-1]))  # which may differ
    where = ', '.join(map(str, [*texts][:3]))
    message = (
      f'{where}: column {columns.labels}: {cells.total():,} cells have '
      f'{len(cells):,} different texts, such as '
      + ' and '.join(ascii(text[:_SHOWN_CELL]) for text in ends)
    )
    if not separator:
      raise DataError(
        f'{message}, and it is not clear what separates labels in all of them. '
        + (_JUDGED if is_judged else _SEPARATED)
      )
    logging.info('%s; each of them is read as one label', message)
  return dataclasses.replace(columns, separator=separator)


def are_whole(
  columns: Columns, train: Iterable[Any], others: Iterable[Any] = ()
) -> bool:
  """Returns whether the labels of train are integers, and some are as 1.0.

  Only those of `others` may be so. Of many integers, the first ones tell.
  """

  def matches(cells: Iterable[Any]) -> Iterator[re.Match | None]:
    lists = (_values(cell, columns.separator) for cell in cells)
    values = (value for values in lists for value in values or ())
    return (_WHOLE.match(value) for value in values if isinstance(value, str))

  found = False
  for count, match in enumerate(matches(train)):
    if not match:
      return False
    found = found or match[0] != match[1]
    if count == _MANY and not found:
      break
  return found or any(m and m[0] != m[1] for m in matches(others))


def _label_columns(
  wanted: Columns,
  names: Sequence[str],
  rows: Sequence[Mapping[str, Any]],
  need_labels: bool,
) -> tuple[str, tuple[str, ...], str]:
  """Returns the fields `labels` and `flags` of Columns, and a hint for both."""
  if wanted.labels in names:
    return wanted.labels, (), ''
  if wanted.labels:
    flags = tuple(next(csv.reader([wanted.labels])))
    if len(flags) > 1 and (need_labels or {*flags} <= {*names}):
      return wanted.labels, flags, ''
    return '', (), ''
  labels = usual_labels(names)
  if not need_labels:
    return labels, (), ''
  flags = tuple(name for name in names if _is_flag(name, rows))
  known = {wanted.id, *wanted.text, *flags}
  others = [x for x in names if x not in known and not names_splits(x)]
  others = [x for x in others if x.lower() not in (*USUAL_TEXTS, *_IDS)]
  is_sure = labels.lower() in SURE_LABELS
  # A label may be named topic.
  if labels and (labels not in flags or len(flags) < 3 or is_sure and others):
    return labels, (), ''
  line = csv_line(flags)
  # Other columns may be the labels, and flags something else.
  if len(flags) > 1 and not others and not is_sure:
    return line, flags, ''
  hint = f'. Columns with only 0 and 1 are {line}'
  return '', (), hint if flags else ''


def _is_flag(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
  """Returns whether a column has only 0 and 1, and no ids or splits."""
  cells = [row[name] for row in rows if not is_empty(row.get(name))]
  is_id = name.lower() in _IDS and len({*map(str, cells)}) == len(cells)
  if not cells or is_id or names_splits(name):
    return False
  return all(as_flag(cell) is not None for cell in cells)


def csv_line(names: Sequence[str]) -> str:
  """Returns names of columns as one text, which flags have."""
  line = io.StringIO()
  csv.writer(line, lineterminator='').writerow(names)
  return line.getvalue()


def with_names(columns: Columns, labels: Iterable[str], where: str) -> Columns:
  """Returns columns with the labels, if lists have 0 or 1 for each of them."""
  if columns.separator != FLAGS:
    return columns
  names = tuple(labels)
  if not names:
    raise DataError(
      f'{where}: {columns.labels} has lists of zeros and ones, such as '
      '[0, 1, 0], with a place for each label, but no names of labels: put a '
      'file labels.jsonl beside the documents, with a line for each label in '
      'the order of the lists, or make a column of zeros and ones for each '
      f'label. If these are ids: {_SAY}{LIST}, {NO_SEPARATOR} or what is '
      'between them'
    )
  return dataclasses.replace(columns, names=names)


def _first(usual: Iterable[str], names: Sequence[str]) -> str:
  """Returns the first of the usual names that is a column; '' if none is."""
  lower = {name.lower(): name for name in reversed(names)}
  return next((lower[name] for name in usual if name in lower), '')


def usual_labels(names: Sequence[str]) -> str:
  """Returns the column of labels; '' if no column or several could be it."""
  if certain := _first(SURE_LABELS, names):
    return certain
  usual = [name for name in names if name.lower() in _LABELS]
  return usual[0] if len(usual) == 1 else ''


def read_row(
  columns: Columns, fields: Fields, default_id: str, need_labels: bool = True
) -> Document:
  """Reads a document from the cells of a row, and adds its faults.

  The default id is for tables without a column of ids. An empty cell of labels
  means no labels if they are needed, else unknown labels (None).
  """
  row = fields.row
  zones = {x: fields.as_text(as_plain(row.get(x)), x) for x in columns.text}
  fields.check_text(zones.values())
  id_ = default_id
  if columns.id and (need_labels or row.get(columns.id) is not None):
    value = row.get(columns.id)
    value = '' if is_missing(value) else _stripped(value)
    id_ = fields.as_id(value, columns.id)
  values = map(_stripped, _label_values(columns, fields))
  seen = (v for v in values if plain_name(str(v)))  # others are no label
  ids = (fields.as_id(v, columns.labels) for v in seen)
  labels = tuple(dict.fromkeys(filter(None, ids)))
  known = need_labels or not all(map(is_empty, map(row.get, columns.flags)))
  return Document(id_, zones, labels if labels or known else None)


def read_usual(
  columns: Columns, fields: Fields, default_id: str, need_labels: bool = True
) -> Document:
  """Reads a line of JsonlData, whose labels may have any form of a cell."""
  list_labels(columns, fields)
  return read_document(fields, default_id, need_labels)


def list_labels(columns: Columns, fields: Fields) -> None:
  """Makes the field `labels` of a line of JsonlData a list."""
  cell = fields.row.get('labels')
  # Of a list of texts, read_document tells the faults.
  is_plain = isinstance(cell, list) and dict not in map(type, cell)
  if is_plain and columns.separator != FLAGS and not columns.whole:
    return
  columns = dataclasses.replace(columns, labels='labels', flags=())
  if 'labels' in fields:
    labels = _label_values(columns, fields) or None
    fields.row = {**fields.row, 'labels': labels}


def _label_values(columns: Columns, fields: Fields) -> list[Any]:
  name, cell = columns.labels, fields.row.get(columns.labels)
  if columns.flags:
    cells = [fields.row.get(name) for name in columns.flags]
    cells = [False if is_empty(cell) else cell for cell in cells]
    advice = '; such columns are guessed, if not given as --config.data.labels'
    return _flagged(cells, columns.flags, fields, advice)
  values = _values(cell, columns.separator)
  if values is None:
    fault = f'is {cell[:_SHOWN_CELL]!a}, not a list in brackets'
  elif columns.is_open and isinstance(cell, str) and {*USUAL} & {*cell}:
    fault = (
      f'is {cell[:_SHOWN_CELL]!a}, but the first rows have lists: say what '
      f"separates labels: {_SAY}';' (or another text), or {NO_SEPARATOR}"
    )
  elif dict in map(type, values):
    keys = next(value for value in values if isinstance(value, dict))
    key = next((x for x in _KEYS if x in keys), next(iter(keys), 'id'))
    jq = f', as jq does with `.{_jq(name)} |= map(.{_jq(key)})`'
    fault = (
      'has objects that are not {label: 0 or 1}: write a list of the labels'
      + jq * isinstance(cell, list)
    )
  elif Ellipsis in values:
    fault = (
      f'is {cell[:_SHOWN_CELL]!a}, where ... stands for labels that are lost; '
      'write all labels, as in values.tolist()'
    )
  elif columns.separator == FLAGS:
    return _flagged(values, columns.names, fields)
  elif columns.whole:
    return [_WHOLE.sub(r'\1', v) if isinstance(v, str) else v for v in values]
  else:
    return values
  fields.faults.append(f'{name} {fault}')
  return []


def _flagged(
  values: Sequence[Any], names: Sequence[str], fields: Fields, advice: str = ''
) -> list[str]:
  """Returns the names that have a 1; other values than 0 and 1 are faults.

  If the names are not known, no label is.
  """
  if names and len(values) != len(names):
    fields.faults.append(
      f'{len(values)} zeros and ones, but there are {len(names)} labels'
    )
  flags = [(name, value, as_flag(value)) for name, value in zip(names, values)]
  fields.faults += [
    f'{name} is {value!a}, not 0 or 1{advice}'
    for name, value, flag in flags
    if flag is None
  ]
  return [name for name, _, flag in flags if flag]


def _values(cell: Any, separator: str) -> list[Any] | None:
  """Returns the values of a cell; None if it should be a list, but is not."""
  if isinstance(cell, dict):
    flags = {k: as_flag(v) for k, v in cell.items() if not is_missing(v)}
    if None not in flags.values():
      return [name for name, flag in flags.items() if flag]
  if is_empty(cell):
    return []
  if separator == FLAGS:
    return split_flags(cell)
  if isinstance(cell, list):
    return [value for value in cell if not is_missing(value)]
  if not isinstance(cell, str) or separator in ('', NO_SEPARATOR):
    return [cell]
  return split_cell(cell, separator)


def _jq(key: str) -> str:
  return key if re.fullmatch(r'[A-Za-z_]\w*', key, re.A) else json.dumps(key)


def _stripped(value: Any) -> Any:
  return value.strip() if isinstance(value, str) else value
