"""Reads a corpus of one's own from its files, and draws missing splits."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import itertools
import pathlib
from typing import Any

from absl import logging

from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import Fields, open_lines
from xjax.data.files.tables import FileKind, Table, read_table
from xjax.data.formats.corpus_builder import (
  TRAIN,
  CorpusBuilder,
  SourceCorpus,
  SplitBuilder,
  StoredDocuments,
  choose_splits,
  plain_document,
  plain_record,
)
from xjax.data.formats.data_config import read_document
from xjax.data.formats.descriptors import Descriptors, read_descriptors
from xjax.data.formats.own.columns import (
  Columns,
  RowReader,
  choose_columns,
  split_of,
)
from xjax.data.formats.own.layout import find_layout
from xjax.data.formats.own.splits import draw_splits, text_key
from xjax.data.formats.own.text_files import read_label_folders, read_texts
from xjax.data.schema import Document

_SAMPLED = 1000  # rows from which columns are guessed
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
  """Holds the rows of a file, and how documents are read from them.

  Attributes:
    rows: number and fields of each row.
    read: reads a document from a row, with its default id.
    reader: reads rows by their columns; None for JSON lines of the usual form.
  """

  name: str
  rows: Iterator[tuple[int, dict[str, Any]]]
  read: Callable[[Fields, str], Document]
  reader: RowReader | None = None

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

  Raises:
    ConfigError: data.dir is not set.
    DataError: a column or a split is missing, there are too few documents to
      draw splits, or the files have faults.
  """
  reading = _Reading(source)
  reading.read(splits, usual)
  return reading.corpus(splits, usual)


class _Reading:
  def __init__(self, source: Source):
    self._source = source
    self._faults = Faults(source.on_error)
    self._layout = find_layout(source.dir, self._faults)
    self._described = Descriptors()
    self._draft = CorpusBuilder(source.cache)
    self._zones: dict[str, None] = {}
    self._left_out = ''
    self._keys = array('Q')  # of the documents in train

  def read(self, splits: Sequence[str], usual: bool) -> None:
    layout = self._layout
    if layout.labels:
      self._described = read_descriptors(layout.labels, self._faults)
    names = [TRAIN]
    if layout.divided:
      lacks = self._missing(layout.splits)
      wanted = [name for name in splits if name not in lacks]
      wanted += [TRAIN] if len(wanted) < len(splits) else []
      names = choose_splits(
        self._source.dir, layout.splits, wanted, usual, _EXAMPLE
      )
    for name in names:
      self._read_split(name, layout.splits[name])
    self._left_out = self._faults.settle()

  def _missing(self, present: Mapping[str, Any]) -> dict[str, float]:
    """Returns the shares of the splits that are drawn."""
    shares = dict(self._source.shares)
    if TRAIN not in present or 'dev' in present:
      return {}
    if 'test' in present:
      del shares['test']
    return {name: share for name, share in shares.items() if share}

  def _read_split(self, name: str, path: pathlib.Path) -> None:
    before, faults = self._faults.count, self._faults
    split = self._draft.begin(name)
    if self._layout.by_label:
      for file, document in read_label_folders(path, faults):
        self._add(split, file, None, document, [])
    else:
      with _open(path, faults) as table:
        rows = _begin(self._source.columns, str(path), table)
        self._add_rows(rows, name, path)
    if not any(split.ids for split in self._draft.splits.values()):
      faults.add_empty(path, 'document', before)

  def _add_rows(self, rows: _Rows, name: str, path: pathlib.Path) -> None:
    """Adds the documents of a file; a column may name their splits."""
    column = rows.reader.columns.split if rows.reader else ''
    column = '' if self._layout.divided else column
    if column:
      logging.info('%s: the column %s names the splits', path, column)
    for number, document, fields in rows.documents():
      split = name
      if column and not (split := split_of(value := fields.row.get(column))):
        split = name
        fields.faults.append(f'{column} is {value!a}, not train, dev or test')
      draft = self._draft.splits.get(split) or self._draft.begin(split)
      self._add(draft, path, number, document, fields.faults)

  def _add(
    self,
    split: SplitBuilder,
    path: pathlib.Path,
    line: int | None,
    document: Document,
    messages: list[str],
  ) -> None:
    messages = messages + split.document_faults(
      document.id, document.labels, self._described
    )
    if not self._faults.extend(path, line, messages):
      return
    self._zones.update(dict.fromkeys(document.zones))
    split.add(document.id, document.labels, plain_record(document))
    if split is self._draft.splits.get(TRAIN):
      self._keys.append(text_key(document, self._source.seed))

  def corpus(self, splits: Sequence[str], usual: bool) -> SourceCorpus:
    source, drafts = self._source.dir, self._draft.splits
    for name in [name for name, split in drafts.items() if not split.ids]:
      del drafts[name]
    present = self._layout.splits if self._layout.divided else drafts
    shares, drawn = self._missing(present), ()
    if shares and TRAIN in drafts:
      rows = draw_splits(self._keys, shares, source)
      whole, drawn = drafts[TRAIN], tuple(rows)
      drafts |= {name: whole.part(rows[name]) for name in drawn}
      sizes = ', '.join(f'{len(rows[name])} for {name}' for name in drawn)
      logging.info('%s: documents were drawn: %s', source, sizes)
    names = choose_splits(source, drafts, splits, usual, _EXAMPLE)
    self._draft.splits = {name: drafts[name] for name in names}
    labels = self._described.labels.values()
    raw = self._draft.corpus(source, labels, self._zones)
    return dataclasses.replace(raw, drawn=drawn, left_out=self._left_out)


def tagged_rows(
  columns: Columns, name: str, table: Table, faults: Faults
) -> Sequence[Document]:
  """Reads documents to be tagged from a table; their labels may be None."""
  rows = _begin(columns, name, table, need_labels=False).documents()
  return _tagged(((n, d, f.faults) for n, d, f in rows), name, faults)


def tagged_texts(folder: pathlib.Path, faults: Faults) -> Sequence[Document]:
  """Reads the text files below a folder as documents to be tagged."""
  documents = (document for _, document in read_texts(folder, faults))
  return _tagged(((None, d, []) for d in documents), str(folder), faults)


def _tagged(
  rows: Iterator[tuple[int | None, Document, list[str]]],
  name: str,
  faults: Faults,
) -> Sequence[Document]:
  """Keeps documents whose ids differ and that have no faults."""
  split, before = CorpusBuilder().begin('input'), faults.count
  for number, document, messages in rows:
    messages += split.document_faults(document.id, (), Descriptors())
    if faults.extend(name, number, messages):
      split.add(document.id, document.labels or (), plain_record(document))
  if not split.ids:
    faults.add_empty(name, 'document', before)
  return StoredDocuments(split.records, plain_document)
