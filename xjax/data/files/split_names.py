"""Tells the split of a document by a name: of a file, or in a column."""

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
import os
import re
from typing import Any

from absl import logging

from xjax.core.errors import DataError
from xjax.data.files.cells import is_missing
from xjax.data.files.faults import Grouped
from xjax.data.files.fields import Fields

NO_SPLIT = 'none'  # no column names splits
SPLIT_COLUMNS = 'split fold set subset partition dataset data_split'.split()
_NAMES = {
  name: split
  for split, names in {
    'train': 'train training trn',
    'dev': 'dev devel development val valid validation',
    'test': 'test testing tst',
  }.items()
  for name in names.split()
}
_UNSURE_DEV = ('eval', 'evaluation')  # some call their test split so
_SHOWN = 5  # values of a column in the log


def split_of(value: Any) -> str:
  """Returns train, dev or test for the usual names of a split, else ''."""
  return _NAMES.get(_word(value), '')


def splits_of(values: Iterable[Any]) -> dict[Any, str]:
  """Returns the split that each value names, '' if it names none.

  eval and evaluation are dev if no other value is.
  """
  splits = {value: split_of(value) for value in values}
  if 'dev' not in splits.values():
    splits |= {value: 'dev' for value in splits if _word(value) in _UNSURE_DEV}
  return splits


def _word(value: Any) -> str:
  return re.sub(r'[\W_]*(set|split|data)$', '', str(value).strip().lower())


def split_columns(
  wanted: str, names: Sequence[str], where: str | os.PathLike
) -> list[str]:
  """Returns the columns that may name splits: the wanted one, or usual ones."""
  if wanted == NO_SPLIT:
    return []
  if wanted and wanted not in names:
    raise DataError(f'{where}: there is no column {wanted!a} (data.split)')
  lower = {name.lower(): name for name in names}
  usual = [lower[name] for name in SPLIT_COLUMNS if name in lower]
  return [wanted] if wanted else usual


def find_splits(
  columns: Sequence[str],
  rows: Iterable[Mapping[str, Any]],
  wanted: str,
  where: str | os.PathLike,
) -> Callable[[Fields], str] | None:
  """Returns what tells the split of each row; None if no column does.

  A column does if it is the wanted one, or if any of all its values is the name
  of a split.
  """
  counts = {column: collections.Counter() for column in columns}
  for row in rows:
    for column, count in counts.items():
      count[_text_in(row, column)] += 1
  for column, count in counts.items():
    splits = splits_of(count)
    shown = count.most_common(_SHOWN)
    values = ', '.join(f'{value!a} {n:,} times' for value, n in shown)
    if column == wanted or any(splits.values()):
      logging.info('%s: the column %s names splits: %s', where, column, values)
      return lambda fields: split_in_row([column], splits.get, '', fields)
    logging.info(
      '%s: the column %s is ignored: it has no name of a split, but %s',
      *(where, column, values),
    )
  return None


def split_in_row(
  columns: Sequence[str],
  split_of: Callable[[str], str],
  file: str,
  fields: Fields,
) -> str:
  """Returns the split of a row; `file` is that of its file, '' if it has none.

  Columns may only name the split of a file of train, dev or test.
  """
  for column in columns:
    value = _text_in(fields.row, column)
    split = split_of(value)
    if split and not file:
      return split
    # A file with another name, such as test_easy, has rows of any split.
    if not file or file in _NAMES.values() and split not in ('', file):
      this = f'the file of {file}' if file else 'no name of train, dev or test'
      message = (
        f'the column {column} has {value!a}, but this is {this}. Correct it, '
        f'or ignore the column with --config.data.split={NO_SPLIT}'
      )
      fields.faults.append(Grouped(message))
  # A document with a fault is added to no split, so any name will do.
  return file or 'train'


def _text_in(row: Mapping[str, Any], column: str) -> str:
  return '' if is_missing(value := row.get(column)) else str(value)
