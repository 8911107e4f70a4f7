"""Reads a corpus of one's own from its files, and draws missing splits."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import pathlib
from typing import Any

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import Fields, open_lines
from xjax.data.files.tables import FileKind, Table, read_table
from xjax.data.formats.corpus_builder import (
  TRAIN,
  CorpusBuilder,
  Record,
  SourceCorpus,
  SplitBuilder,
  choose_splits,
)
from xjax.data.formats.data_config import read_document
from xjax.data.formats.descriptors import read_descriptors
from xjax.data.formats.own.columns import (
  Columns,
  RowReader,
  choose_columns,
  split_of,
)
from xjax.data.formats.own.layout import (
  Layout,
  find_layout,
  read_label_folders,
  read_texts,
)
from xjax.data.schema import Document

_SAMPLED = 1000  # rows from which columns are guessed
_FEWEST = 10  # documents that can be divided
_EXAMPLE = 'a train.csv, train.parquet or train.jsonl'


@dataclasses.dataclass(frozen=True)
class Source:
  """Describes a corpus that is to be read."""

  dir: str
  columns: Columns  # the user's choice; empty fields are guessed
  shares: Mapping[str, float]  # of the splits dev and test, if drawn
  seed: int  # decides which documents are drawn
  on_error: OnError
  cache: pathlib.Path  # folder of temporary files


@dataclasses.dataclass(frozen=True)
class _Rows:
  """Holds the rows of a file, and how documents are read from them."""

  name: str
  rows: Iterator[tuple[int, dict[str, Any]]]  # with their numbers
  read: Callable[[Fields, str], Document]  # a row, with its default id
  reader: RowReader | None = None  # None for JSON lines of the usual form

  def documents(self) -> Iterator[tuple[int, Document, Fields]]:
    for number, row in self.rows:
      fields = Fields(row)
      yield number, self.read(fields, f'line-{number}'), fields
    if self.reader and (summary := self.reader.summary()):
      logging.info('%s: %s', self.name, summary)


@contextlib.contextmanager
def _open(path: pathlib.Path, faults: Faults) -> Iterator[Table]:
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(open_lines(path))
    except Fault as fault:
      raise DataError(f'{path}: {fault}') from fault
    yield read_table(file, str(path), faults)


def _begin(
  wanted: Columns, name: str, table: Table, need_labels: bool = True
) -> _Rows:
  sample = list(itertools.islice(table.rows, _SAMPLED))
  rows = itertools.chain(sample, table.rows)
  if table.kind is FileKind.JSON_LINES and _is_usual(wanted, table.columns):
    return _Rows(name, rows, read_document)
  columns = choose_columns(
    wanted, table.columns, [row for _, row in sample], name, need_labels
  )
  reader = RowReader(columns)
  read = functools.partial(reader.read, need_labels=need_labels)
  return _Rows(name, rows, read, reader)


def _is_usual(wanted: Columns, fields: Sequence[str]) -> bool:
  """Returns whether JSON lines have the fields that JsonlData reads.

  Lines without any field are faulty, and these faults say enough.
  """
  if wanted.text or wanted.labels:
    return False
  has_text = 'text' in fields or 'zones' in fields
  return not fields or has_text and 'labels' in fields


def guess_columns(source: Source) -> Columns | None:
  """Returns the columns of a corpus from the first rows of its train file.

  None means that the corpus has no columns: it is text files, or JSON lines in
  the usual form.
  """
  faults = Faults(source.on_error)  # read_corpus reports the faults of rows
  layout = find_layout(source.dir, faults)
  if layout.by_label or TRAIN not in layout.splits:
    return None
  path = layout.splits[TRAIN]
  with _open(path, faults) as table:
    reader = _begin(source.columns, str(path), table).reader
  return reader.columns if reader else None


def read_corpus(
  source: Source, splits: Sequence[str] = (), usual: bool = True
) -> SourceCorpus:
  """Reads a corpus, and draws the splits that it lacks from train.

  If there is neither a dev nor a test split, both are drawn. If there is a test
  split, only dev is drawn. If there is a dev split, nothing is drawn.
  """
  faults = Faults(source.on_error)
  layout = find_layout(source.dir, faults)
  builder = CorpusBuilder(source.cache, faults)
  if layout.labels:
    builder.described = read_descriptors(layout.labels, faults)
  names = [TRAIN]
  if layout.divided:
    lacks = _missing(source, layout.splits)
    wanted = [name for name in splits if name not in lacks]
    wanted += [TRAIN] if len(wanted) < len(splits) else []
    names = choose_splits(source.dir, layout.splits, wanted, usual, _EXAMPLE)
  keys = array('Q')  # of the documents in train
  for name in names:
    before, path = faults.count, layout.splits[name]
    builder.begin(name)
    for split, record in _records(source, layout, name, faults):
      part = builder.splits.get(split) or builder.begin(split)
      if builder.add(part, *record) and split == TRAIN:
        keys.append(text_key(record[2], source.seed))
    if not any(split.ids for split in builder.splits.values()):
      faults.add_empty(path, 'document', before)
  left_out = faults.settle()
  parts = {name: part for name, part in builder.splits.items() if part.ids}
  present = layout.splits if layout.divided else parts
  drawn = _draw(source, keys, _missing(source, present), parts)
  names = choose_splits(source.dir, parts, splits, usual, _EXAMPLE)
  builder.splits = {name: parts[name] for name in names}
  raw = builder.corpus(source.dir, left_out)
  return dataclasses.replace(raw, drawn=drawn)


def _missing(source: Source, present: Mapping[str, Any]) -> dict[str, float]:
  """Returns the shares of the splits that are drawn."""
  if TRAIN not in present or 'dev' in present:
    return {}
  return {
    name: share
    for name, share in source.shares.items()
    if share and name not in present
  }


def _records(
  source: Source, layout: Layout, name: str, faults: Faults
) -> Iterator[tuple[str, Record]]:
  """Yields the split of each document in a file or folder, and its record.

  A column may name the splits, if the layout does not.
  """
  path = layout.splits[name]
  if layout.by_label:
    for file, document in read_label_folders(path, faults):
      yield name, (file, None, document, [])
    return
  with _open(path, faults) as table:
    rows = _begin(source.columns, str(path), table)
    column = rows.reader.columns.split if rows.reader else ''
    column = '' if layout.divided else column
    if column:
      logging.info('%s: the column %s names the splits', path, column)
    for number, document, fields in rows.documents():
      split = name
      if column and not (split := split_of(value := fields.row.get(column))):
        split = name
        fields.faults.append(f'{column} is {value!a}, not train, dev or test')
      yield split, (path, number, document, fields.faults)


def _draw(
  source: Source,
  keys: array,
  shares: Mapping[str, float],
  parts: dict[str, SplitBuilder],
) -> tuple[str, ...]:
  """Divides train among itself and the missing splits, in `parts`.

  Returns the names of the divided splits.
  """
  if not shares or TRAIN not in parts:
    return ()
  rows = draw_splits(keys, shares, source.dir)
  whole = parts[TRAIN]
  parts |= {name: whole.part(rows[name]) for name in rows}
  sizes = ', '.join(f'{len(rows[name])} for {name}' for name in rows)
  logging.info('%s: documents were drawn: %s', source.dir, sizes)
  return tuple(rows)


def text_key(document: Document, seed: int) -> int:
  """Returns a number below 2**64 that depends only on a text and the seed."""
  key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
  digest = hashlib.blake2b(document.text().encode(), key=key, digest_size=8)
  return int.from_bytes(digest.digest(), 'little')


def draw_splits(
  keys: array, shares: Mapping[str, float], source: str
) -> dict[str, np.ndarray]:
  """Divides documents into train and the named splits, by uint64 text keys.

  The documents are ranked by their keys, so the order of the source does not
  matter, and a few further documents change little. Documents with the same key
  have the same text and come into the same split. Rows ascend, and no split is
  empty; too few documents are a DataError.
  """
  keys_N = np.frombuffer(keys, np.uint64)
  if len(keys_N) < _FEWEST:
    raise DataError(
      f'{source}: {len(keys_N)} documents are too few to draw splits; at least '
      f'{_FEWEST} are needed, or your own split dev'
    )
  _, text_N, count_T = np.unique(
    keys_N, return_inverse=True, return_counts=True
  )
  split_T = np.zeros(len(count_T), np.int8)  # 0 is train
  for number, share in enumerate(shares.values(), 1):
    left = max(1, round(share * len(keys_N)))
    # A text with very many copies would fill the split, so it stays in train.
    fits = np.flatnonzero((split_T == 0) & (count_T <= left))
    # One text is left for each of the splits that follow.
    for text in fits[: len(fits) - (len(shares) - number)]:
      if count_T[text] <= left:
        split_T[text] = number
        left -= count_T[text]
      if not left:
        break
  names = ('train', *shares)
  rows = {n: np.flatnonzero(split_T[text_N] == i) for i, n in enumerate(names)}
  if empty := [name for name in names if not len(rows[name])]:
    raise DataError(
      f'{source}: too few different texts to draw the split {empty[0]}; give '
      'your own split dev'
    )
  return rows


def tagged_rows(
  columns: Columns, name: str, table: Table, faults: Faults
) -> Sequence[Document]:
  """Reads documents to be tagged from a table; their labels may be None."""
  rows = _begin(columns, name, table, need_labels=False)
  records = ((name, n, d, f.faults) for n, d, f in rows.documents())
  return CorpusBuilder(faults=faults).read('input', name, records).documents


def tagged_texts(folder: pathlib.Path, faults: Faults) -> Sequence[Document]:
  """Reads the text files below a folder as documents to be tagged."""
  texts = read_texts(folder, faults)
  records = ((folder, None, document, []) for _, document in texts)
  return CorpusBuilder(faults=faults).read('input', folder, records).documents
