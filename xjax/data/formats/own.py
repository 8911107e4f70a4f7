"""Configures a text corpus of one's own, in a file or a folder.

The contents of data.dir tell its form:

- a file, or a folder with a file per split ({split}.csv etc.): CSV or TSV with
  a header, Parquet, or JSON lines;
- a folder per label with text files: DIR/<label>/*.txt, or
  DIR/<split>/<label>/*.txt.

A folder may have a labels.jsonl with descriptors of labels, as in jsonl.py.
Splits that the source lacks are drawn from train.
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import pathlib
import shlex
from typing import Any, Self

from absl import logging

from xjax.core.config_part import RATE, SEED, field
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  STREAM,
  Fields,
  open_text,
  with_faults,
)
from xjax.data.files.tables import FileKind, Table, kind_of, read_table
from xjax.data.formats.columns import (
  LIST,
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
  read_document,
  source_name,
)
from xjax.data.formats.drawing import divided, missing_shares
from xjax.data.formats.label_files import read_descriptors
from xjax.data.formats.own_files import find_layout, read_texts
from xjax.data.schema import Document


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
    if self.dev_share + self.test_share >= 1:
      yield (
        f'{path}.test_share={self.test_share}: must leave documents for train, '
        f'with {path}.dev_share={self.dev_share}'
      )

  def settled(self) -> Self:
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
    faults = Faults(self.on_error)  # `read` reports the faults of rows
    layout = find_layout(self.dir, faults)
    if layout.by_label or TRAIN not in layout.splits:
      return None
    with _opened(layout.splits[TRAIN], faults) as table:
      return self._columns_of(table, str(layout.splits[TRAIN]))

  def _columns_of(self, table: Table, name: str) -> Columns | None:
    """Returns the columns; None for JSON lines that JsonlData reads."""
    if table.kind is FileKind.JSON_LINES and not self.text and not self.labels:
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
    faults = Faults(self.on_error)
    layout = find_layout(self.dir, faults)
    builder = CorpusBuilder(self.dir, faults, self.cache_folder)
    if layout.labels:
      builder.describe(read_descriptors, layout.labels)
    shares = {'dev': self.dev_share, 'test': self.test_share}
    names, drawn = [TRAIN], {}
    if layout.divided:
      drawn = missing_shares(layout.splits, shares)
      present = {*layout.splits, *drawn}
      names = choose_splits(self.dir, present, splits, usual)
    for name in dict.fromkeys(TRAIN if n in drawn else n for n in names):
      path = layout.splits[name]
      if layout.by_label:
        records = read_texts(path, faults, by_label=True)
        builder.read(name, path, records, read_document)
      else:
        self._read_table(builder, name, path, layout.divided)
    raw = builder.corpus()
    if not layout.divided:
      drawn = missing_shares(raw.splits, shares)
    raw = divided(raw, drawn, functools.partial(_keys, self.split_seed))
    return raw.chosen(splits, usual)

  def _read_table(
    self, builder: CorpusBuilder, name: str, path: pathlib.Path, divided: bool
  ) -> None:
    """Reads the file of a split; if not `divided`, a column may name splits."""
    with _opened(path, builder.faults) as table:
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
        name, path, records, read, name_lines=True, split_of=split_in_column
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

  def read_input(self, source: str, faults: Faults) -> Sequence[Document]:
    """Reads a table, JSON lines, or a folder of text files."""
    name, path = source_name(source)
    builder = CorpusBuilder(name, faults)
    if path is not None and path.is_dir():
      records = read_texts(path, faults, by_label=False)
      return builder.read(
        'input', path, records, self.read_input_record, need_labels=False
      )
    with open_text(path or STREAM) as file:
      if kind_of(file, name) is FileKind.JSON_LINES:
        return self.parse_input(file, name, faults)
      table = read_table(file, name, faults)
      columns = choose_columns(
        self._columns(), table.columns, table.sample, name, need_labels=False
      )
      return builder.read(
        'input',
        name,
        with_faults(table.rows, faults, name),
        functools.partial(read_row, columns),
        name_lines=True,
        need_labels=False,
      )

  def _columns(self) -> Columns:
    return Columns(self.text, self.labels, self.label_separator, self.id)


@contextlib.contextmanager
def _opened(path: pathlib.Path, faults: Faults) -> Iterator[Table]:
  with open_text(path) as file:
    yield read_table(file, str(path), faults)


def _split_in_column(column: str, fields: Fields) -> str:
  value = fields.row.get(column)
  if split := split_of(value):
    return split
  fields.faults.append(f'{column} is {value!a}, not train, dev or test')
  return TRAIN


def _keys(seed: int, documents: Iterable[Document]) -> Iterator[int]:
  return (text_key(document, seed) for document in documents)


def text_key(document: Document, seed: int) -> int:
  """Returns a number below 2**64 that depends only on a text and the seed."""
  key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
  digest = hashlib.blake2b(document.text().encode(), key=key, digest_size=8)
  return int.from_bytes(digest.digest(), 'little')
