"""Configures a text corpus of one's own, in a file or a folder.

The contents of data.dir tell its form:

- a file, or a folder with a file per split ({split}.csv etc.): CSV or TSV with
  a header, Parquet, or JSON lines;
- a folder per label with text files: DIR/<label>/*.txt, or
  DIR/<split>/<label>/*.txt.

A folder may have a labels.jsonl with descriptors of labels, as in jsonl.py.
Splits that the source lacks are drawn from train.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import pathlib
import re
import shlex
from typing import Any, BinaryIO, Self

from absl import logging

from xjax.core.config_part import RATE, SEED, field
from xjax.core.errors import DataError
from xjax.data.files.csv_table import Quoting
from xjax.data.files.encodings import is_utf8
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  STREAM,
  Fields,
  check_rereadable,
  find_files,
  find_source,
  only_file,
  open_text,
  read_records,
  with_faults,
)
from xjax.data.files.tables import (
  TableFormat,
  TableReader,
  read_table,
  table_format,
)
from xjax.data.formats.columns import (
  LIST,
  SPLIT_NAMES,
  Columns,
  choose_columns,
  read_row,
  split_of,
)
from xjax.data.formats.corpus_builder import (
  TRAIN,
  CorpusBuilder,
  SourceCorpus,
  choose_splits,
)
from xjax.data.formats.data_config import (
  DataConfig,
  input_documents,
  read_document,
  source_name,
)
from xjax.data.formats.drawing import divided, missing_shares
from xjax.data.formats.jsonl import LABELS
from xjax.data.formats.label_files import read_descriptors
from xjax.data.formats.text_files import label_folders, read_texts
from xjax.data.schema import Document

_ENDINGS = 'jsonl|ndjson|json|csv|tsv|parquet'


@dataclasses.dataclass
class OwnData(DataConfig):
  """Configures a text corpus of one's own; the module lists its forms."""

  tables = True

  dir: str = field('', 'The file or folder of the corpus.', may_change=True)
  text: tuple[str, ...] = field(
    (),
    'The columns of text, in reading order. They become zones. If empty, '
    'columns with usual names are read, such as title and body.',
  )
  labels: str = field(
    '',
    'The column of labels. If empty, a column with a usual name is read, such '
    'as labels or tags.',
  )
  label_separator: str = field(
    '',
    "The characters between the labels of a cell; 'none' if a cell has one "
    "label, 'list' if a cell has a list in brackets. If empty, ; | , a list or "
    'none is guessed.',
  )
  id: str = field(
    '',
    'The column of ids. If empty, a column id, doc_id or document_id is read, '
    'or else the id is line-N.',
  )
  encoding: str = field(
    '',
    'The encoding of tables and text files, such as cp1251. If empty, it is '
    'UTF-8, or else guessed. Lines of JSON that are not UTF-8 need it.',
  )
  quoting: Quoting = field(
    Quoting.AUTO,
    'Quotes around the cells of CSV and TSV: usual (csv), with a backslash '
    'before a quote in a cell (backslash), or without a meaning (none). If '
    'auto, they are usual, but a cell that seems to hold rows is a fault.',
  )
  dev_share: float = field(
    0.1, 'The share of documents that are drawn if there is no dev.', RATE
  )
  test_share: float = field(
    0.1,
    'The share of documents that are drawn if there is no dev and no test.',
    RATE,
  )
  split_seed: int = field(0, 'Decides which documents are drawn.', SEED)

  @property
  def label_space(self) -> str:
    return 'all'

  @property
  def label_field(self) -> str:
    return self.labels or 'labels'

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if len(set(self.text)) != len(self.text):
      yield f'{path}.text={self.text}: a column occurs twice'
    try:
      'a'.encode(self.encoding or 'utf-8').decode(self.encoding or 'utf-8')
    except (LookupError, ValueError):
      yield (
        f'{path}.encoding={self.encoding!r}: is no encoding of texts that '
        'Python knows, such as utf-8, cp1251 or gbk'
      )
    if self.dev_share + self.test_share >= 1:
      yield (
        f'{path}.test_share={self.test_share}: must leave documents for train, '
        f'with {path}.dev_share={self.dev_share}'
      )

  def with_guesses(self) -> Self:
    columns = self._guessed_columns()
    if columns is None:
      return self
    guesses = {
      'text': columns.text,
      'labels': columns.labels,
      'label_separator': columns.separator,
      'id': columns.id,
    }
    new = {k: v for k, v in guesses.items() if v and v != getattr(self, k)}
    if new:
      flags = (
        f'--config.data.{name}='
        + shlex.quote(','.join(value) if name == 'text' else value)
        for name, value in new.items()
      )
      logging.info('%s: guessed: %s', self.dir, ' '.join(flags))
    return dataclasses.replace(self, **new)

  def _guessed_columns(self) -> Columns | None:
    """Returns the columns of the train file, guessed from its first rows."""
    layout = find_layout(self.dir)
    if layout.by_label or TRAIN not in layout.splits:
      return None
    path = layout.splits[TRAIN][0]
    with open_text(path) as file:
      # `read` reports the faults of rows.
      table = self._table(file, str(path), Faults(self.on_error))
      return self._columns_of(table, str(path))

  def _columns_of(self, table: TableReader, name: str) -> Columns | None:
    """Returns the columns; None for JSON lines that JsonlData reads."""
    if (
      table.kind is TableFormat.JSON_LINES and not self.text and not self.labels
    ):
      fields = table.columns
      # Lines without any field are faulty, and these faults say enough.
      has_text = 'text' in fields or 'zones' in fields
      if not fields or has_text and 'labels' in fields:
        return None
    return choose_columns(self._columns(), table.columns, table.sample, name)

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    """Reads a corpus, and draws the splits that it lacks from train.

    If there is neither a dev nor a test split, both are drawn. If there is a
    test split, only dev is drawn. If there is a dev split, nothing is drawn.
    """
    layout = find_layout(self.dir)
    builder = self.builder()
    builder.describe(read_descriptors, layout.labels)
    shares = {'dev': self.dev_share, 'test': self.test_share}
    names, drawn = [TRAIN], {}
    if layout.divided:
      drawn = missing_shares(layout.splits, shares)
      present = {*layout.splits, *drawn}
      names = choose_splits(self.dir, present, splits, usual)
    for name in dict.fromkeys(TRAIN if n in drawn else n for n in names):
      path = only_file(layout.splits[name], builder.faults)
      if layout.by_label:
        records = read_texts(path, builder.faults, True, self.encoding)
        may_skip = bool(builder.splits)
        builder.read(name, path, records, read_document, may_skip=may_skip)
      else:
        self._read_table(builder, name, path, layout.divided)
    raw = builder.corpus()
    # A column may name no documents of train, or only faulty ones of a split.
    parts = {name: split for name, split in raw.splits.items() if len(split)}
    raw = dataclasses.replace(raw, splits=parts)
    if not layout.divided:
      drawn = missing_shares(raw.splits, shares)
    raw = divided(raw, drawn, functools.partial(_keys, self.split_seed))
    return raw.chosen(splits, usual)

  def _read_table(
    self, builder: CorpusBuilder, name: str, path: pathlib.Path, divided: bool
  ) -> None:
    """Reads the file of a split; if not `divided`, a column may name splits."""
    with open_text(path) as file:
      table = self._table(file, str(path), builder.faults)
      columns = self._columns_of(table, str(path))
      read, split_in_column = read_document, None
      if columns is not None:
        read = functools.partial(read_row, columns)
        if columns.split and not divided:
          logging.info(
            '%s: the column %s names the splits', path, columns.split
          )
          split_in_column = functools.partial(_split_in_column, columns.split)
      records = with_faults(table.rows, builder.faults, path)
      builder.read(
        name,
        path,
        records,
        read,
        name_lines=True,
        split_of=split_in_column,
        may_skip=bool(builder.splits),
      )

  def is_record(self, fields: Fields) -> bool:
    if self.text and all(name in fields for name in self.text):
      return True
    return super().is_record(fields)

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    if not self.text:
      return read_document(fields, default_id, need_labels)
    for name in self.text:
      if name not in fields:
        fields.faults.append(f'no field {name!a} (data.text)')
    columns = self._columns()
    if columns.id not in fields:  # new documents may have the usual field
      columns = dataclasses.replace(columns, id='id' if 'id' in fields else '')
    if columns.labels not in fields and isinstance(
      fields.row.get('labels'), list
    ):
      columns = dataclasses.replace(columns, labels='labels', separator=LIST)
    return read_row(columns, fields, default_id, need_labels)

  def stream_input(
    self,
    source: str,
    faults: Faults,
    on_wait: Callable[[], None] | None = None,
  ) -> Iterator[Document]:
    """Reads a table, JSON lines, or a folder of text files."""
    name, path = source_name(source)
    if path is not None and path.is_dir():
      records = read_texts(path, faults, False, self.encoding)
      yield from input_documents(name, records, self.read_input_record, faults)
      return
    with open_text(path or STREAM, as_it_comes=True, on_wait=on_wait) as file:
      faults.at_once = not file.seekable()
      if table_format(file, name) is TableFormat.JSON_LINES:
        records = read_records(file, faults, name, encoding=self.encoding)
        read = self.read_input_record
      else:
        # The documents of the corpus may have had another encoding.
        utf8 = file.seekable() and self.encoding and is_utf8(file)
        table = self._table(file, name, faults, 'utf-8' if utf8 else '')
        records = with_faults(table.rows, faults, name)
        columns = choose_columns(
          self._columns(), table.columns, table.sample, name, need_labels=False
        )
        read = functools.partial(read_row, columns)
      yield from input_documents(name, records, read, faults)

  def _table(
    self, file: BinaryIO, name: str, faults: Faults, encoding: str = ''
  ) -> TableReader:
    encoding = encoding or self.encoding
    return read_table(file, name, faults, encoding, self.quoting)

  def _columns(self) -> Columns:
    return Columns(self.text, self.labels, self.label_separator, self.id)


def _split_in_column(column: str, fields: Fields) -> str:
  value = fields.row.get(column)
  if split := split_of(value):
    return split
  # A document with a fault is added to no split, so any name will do.
  fields.faults.append(f'{column} is {value!a}, not train, dev or test')
  return TRAIN


def _keys(seed: int, documents: Iterable[Document]) -> Iterator[int]:
  return (text_key(document, seed) for document in documents)


def text_key(document: Document, seed: int) -> int:
  """Returns a number below 2**64 that depends only on a text and the seed."""
  key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
  digest = hashlib.blake2b(document.text().encode(), key=key, digest_size=8)
  return int.from_bytes(digest.digest(), 'little')


@dataclasses.dataclass(frozen=True)
class CorpusFiles:
  """Says where the documents of a corpus are."""

  # Each split's files (there should be one), or its folder of label folders.
  splits: dict[str, list[pathlib.Path]]
  by_label: bool = False  # a folder of files per label
  # Whether the source says which documents are in which split. If not, train
  # has all documents.
  divided: bool = True
  labels: Sequence[pathlib.Path] = ()  # files of descriptors


def find_layout(source: str) -> CorpusFiles:
  """Finds the documents of a corpus, in a file or a folder."""
  path = find_source(source)
  check_rereadable(path)
  if not path.is_dir():
    return CorpusFiles({TRAIN: [path]}, divided=False)
  files = find_files(path, _ENDINGS)
  labels = files.pop(LABELS, ())
  if files:
    # The only file is train, whatever its name, unless it is another split.
    is_one = len(files) == 1 and not _split_in(*files)
    splits = {TRAIN: files.popitem()[1]} if is_one else name_splits(files)
    return CorpusFiles(splits, divided=not is_one, labels=labels)
  folders = label_folders(path)
  if not folders:
    raise DataError(
      f'{source}: no documents in it; expected a file or a folder of CSV, TSV, '
      'Parquet or JSON lines, such as train.csv, or a folder per label with '
      'text files, such as sport/1.txt'
    )
  splits = {_split_in(folder.name): [folder] for folder in folders}
  # Only if each folder is a split, its folders are the labels.
  if TRAIN in splits and '' not in splits and len(splits) == len(folders):
    if all(map(label_folders, folders)):
      return CorpusFiles(splits, by_label=True, labels=labels)
  splits = {TRAIN: [path]}
  return CorpusFiles(splits, by_label=True, divided=False, labels=labels)


def name_splits(
  files: dict[str, list[pathlib.Path]],
) -> dict[str, list[pathlib.Path]]:
  """Names files by split; every other file is a split of its own.

  If no file is called train, a word in the name is the split, best the last
  one, as in wos_train.json and nyt_train_all.json. The words of a name are
  separated by `_`, `-`, `.` or spaces.
  """
  splits: dict[str, list[pathlib.Path]] = {}
  for stem, paths in files.items():
    splits.setdefault(SPLIT_NAMES.get(stem, stem), []).extend(paths)
  for first in (-1, 0) if TRAIN not in splits else ():
    named: dict[str, list[pathlib.Path]] = {}
    for stem, paths in files.items():
      if name := _split_in(stem, first):
        named.setdefault(name, []).extend(paths)
    splits = named | splits
  return splits


def _split_in(name: str, first: int = -1) -> str:
  """Returns the only split that words of a name mean; '' for none or several.

  `first` is the first word that counts; -1 is the last word.
  """
  words = re.split(r'[\W_]+', name)[first:]
  named = {*map(split_of, words)} - {''}
  return named.pop() if len(named) == 1 else ''
