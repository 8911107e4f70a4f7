"""Tells the split of a document by a name: of a file, or in a column."""

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
import functools
import os
import re
import shlex
from typing import Any

from absl import logging

from xjax.core.errors import DataError
from xjax.core.texts import plain_name
from xjax.data.files.cells import as_flag, is_missing
from xjax.data.files.faults import Grouped
from xjax.data.files.fields import Fields

NO_SPLIT = 'none'  # no column names splits
_NAMES = {
  name: split
  for split, names in {
    'train': 'train training trn',
    'dev': 'dev devel development val valid validation',
    'test': 'test testing tst',
  }.items()
  for name in names.split()
}
# Names that count only if no other name is that of their split: some call their
# test split eval.
_UNSURE = _NAMES | dict.fromkeys(('eval', 'evaluation'), 'dev')
_UNSURE |= dict.fromkeys(('holdout', 'heldout'), 'test')
# Other texts beside these may be languages, such as Turkish and Telugu.
_SHORT = {'tr': 'train', 'va': 'dev', 'vl': 'dev', 'te': 'test', 'ts': 'test'}
# What columns are called, by _plain: those with names, and those with 0 or 1.
_USUAL_FLAGS = {
  form.format(name): split
  for name, split in _UNSURE.items()
  for form in ('is{}', 'in{}', '{}flag')
}
_FLAGS = _UNSURE | _USUAL_FLAGS
_COLUMNS = (
  'split splits datasplit traintest traintestsplit fold set subset partition '
  'dataset phase'
).split() + [*_USUAL_FLAGS]
_SPLITS = re.compile(r'(?=.*\btrain(ing)?\b).*(test|dev|val)')
_SHOWN = 5  # values of a column in the log


def split_of(
  value: Any, names: Mapping[str, str] = _NAMES, end: str = ''
) -> str:
  """Returns train, dev or test for the usual names of a split, else ''."""
  return names.get(re.sub(rf'(set|split|data)?{end}$', '', _plain(value)), '')


def _plain(value: Any) -> str:
  return _words(value).replace(' ', '')


def _words(value: Any) -> str:
  return re.sub(r'[\W_]+', ' ', plain_name(str(value)).casefold())


def names_splits(column: str) -> bool:
  """Returns whether a column is called as usual for names of splits."""
  return _plain(column) in _COLUMNS


def splits_of(
  values: Iterable[Any], more: Mapping[str, str] = _NAMES
) -> dict[Any, str]:
  """Returns the split that each value names, '' if it names none.

  A name with a number, such as test1, eval, holdout and `more` names count if
  no other value names their split.
  """
  splits = {value: split_of(value) for value in values}
  sure = {*splits.values()}
  for value in [value for value, split in splits.items() if not split]:
    unsure = split_of(value, _UNSURE | more, r'\d*')
    splits[value] = unsure * (unsure not in sure)
  return splits


def split_columns(
  wanted: str,
  names: Sequence[str],
  rows: Iterable[Mapping[str, Any]],
  where: str | os.PathLike,
) -> list[tuple[str, ...]]:
  """Returns the columns that may name splits: the wanted one, or usual ones.

  Columns such as is_train and is_test name splits together. If another column
  seems to, from some rows, a warning says how to read it.
  """
  if wanted == NO_SPLIT:
    return []
  if wanted and wanted not in names:
    raise DataError(f'{where}: there is no column {wanted!a} (data.split)')
  if wanted:
    return [(wanted,)]
  for name in names:
    cells = {str(row.get(name)) for row in rows}
    words = ' '.join(map(_words, cells)) if len(cells) <= _SHOWN else ''
    flags = split_of(name, _UNSURE) and None not in map(as_flag, cells)
    if (_SPLITS.search(words) or flags) and not names_splits(name):
      logging.warning(
        '%s: the column %s is not read, but seems to name splits: '
        '--config.data.split=%s reads it',
        *(where, name, shlex.quote(name)),
      )
  plain = {_plain(name): name for name in reversed(names)}
  found = [(plain[name],) for name in _COLUMNS if name in plain]
  flags = [column for column in found if _plain(column[0]) in _FLAGS]
  single = [column for column in found if column not in flags]
  return [*single, sum(flags, ())] if flags else single


def find_splits(
  columns: Sequence[tuple[str, ...]],
  rows: Iterable[Mapping[str, Any]],
  wanted: str,
  where: str | os.PathLike,
) -> Callable[[Fields], str] | None:
  """Returns what tells the split of each row; None if no column does.

  The first column counts that is the wanted one, is called split or is_train
  etc., or has names of splits, train among them or no other text.
  """
  counts = {column: collections.Counter() for column in columns}
  for row in rows:
    for column, count in counts.items():
      count[_value(row, column, '')] += 1
  told = None
  for column, count in counts.items():
    splits = splits_of(count, _SHORT)
    if '' in splits.values():
      splits = splits_of(count)
    named = {*splits.values()}
    plain = _plain(column[0])
    is_sure = column == (wanted,) or plain in _FLAGS
    is_sure |= 'train' in named or named > {''} and 'split' in plain
    words = ' '.join(map(_words, count)) if len(count) <= _SHOWN else ''
    is_sure |= bool(_SPLITS.search(words))
    texts = filter(str.strip, count)
    is_sure |= plain == 'split' and not all(map(str.isdigit, texts))
    name = ' and '.join(column)
    shown = count.most_common(_SHOWN)
    values = ', '.join(f'{value!a} {n:,} times' for value, n in shown)
    if told:
      message = '%s: the column %s is ignored, since another names splits: %s'
      logging.warning(message, where, name, values)
    elif is_sure or '' not in named:
      logging.info('%s: the column %s names splits: %s', where, name, values)
      told = functools.partial(split_in_row, [column], splits.get, '')
    else:
      logging.info(
        '%s: the column %s is ignored: it has no name of a split, but %s',
        *(where, name, values),
      )
  return told


def split_in_row(
  columns: Sequence[tuple[str, ...]],
  split_of: Callable[[str], str],
  file: str,
  fields: Fields,
) -> str:
  """Returns the split of a row; `file` is that of its file, '' if it has none.

  Columns may only name the split of a file of train, dev or test.
  """
  for column in columns:
    value = _value(fields.row, column, file)
    split = split_of(value)
    if split and not file:
      return split
    # A file with another name, such as test_easy, has rows of any split.
    if not file or file in _NAMES.values() and split not in ('', file):
      this = f'the file of {file}' if file else 'no name of train, dev or test'
      message = (
        f'the column {" and ".join(column)} has {value!a}, but this is {this}. '
        f'Correct it, or ignore the column with --config.data.split={NO_SPLIT}'
      )
      fields.faults.append(Grouped(message))
  # A document with a fault is added to no split, so any name will do.
  return file or 'train'


def _value(row: Mapping[str, Any], columns: tuple[str, ...], file: str) -> str:
  """Returns the text of a column, or the splits whose columns have a 1."""
  flags = {_FLAGS.get(_plain(name)): as_flag(row.get(name)) for name in columns}
  if None in (*flags, *flags.values()):
    cells = (row.get(name) for name in columns)
    return ' '.join('' if is_missing(cell) else str(cell) for cell in cells)
  # Only zeros are a split without a column, such as test if there is is_train.
  others = (x for x in (file, 'train', 'test', 'dev') if x and x not in flags)
  return ' and '.join(x for x in flags if flags[x]) or next(others, '')
