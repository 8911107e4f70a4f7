"""Configures a text corpus of one's own, in a file or a folder.

The contents of data.dir tell its form:

- a file, or a folder with a file per split ({split}.csv etc.): CSV or TSV with
  a header, Parquet, or JSON lines;
- a folder per label with text files: DIR/<label>/*.txt, or
  DIR/<split>/<label>/*.txt.

A folder may have a labels.jsonl with descriptors of labels, as in jsonl.py.
Splits that the source lacks are drawn from train.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
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
from xjax.data.formats.drawing import divided
from xjax.data.formats.label_files import read_descriptors
from xjax.data.formats.own_files import Layout, find_layout, read_texts
from xjax.data.schema import Document

_EXAMPLE = 'a train.csv, train.parquet or train.jsonl'


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
    names = [TRAIN]
    if layout.divided:
      lacks = self._missing(layout.splits)
      wanted = [name for name in splits if name not in lacks]
      # Splits that are missing are drawn from train, so train is read for them.
      wanted += [TRAIN] if len(wanted) < len(splits) else []
      names = choose_splits(self.dir, layout.splits, wanted, usual, _EXAMPLE)
    keys = array('Q')  # of the documents in train
    for name in names:
      before = faults.count
      builder.begin(name)
      for split, document, messages in self._documents(layout, name, faults):
        part = builder.splits.get(split) or builder.begin(split)
        if builder.add(part, document, messages) and split == TRAIN:
          keys.append(text_key(document, self.split_seed))
      if not any(split.ids for split in builder.splits.values()):
        faults.add_empty(layout.splits[name], 'document', before)
    raw = builder.corpus()
    parts = {name: part for name, part in raw.splits.items() if len(part)}
    raw = dataclasses.replace(raw, splits=parts)
    missing = self._missing(layout.splits if layout.divided else parts)
    if missing and TRAIN in parts:
      raw = divided(raw, keys, missing)
    names = choose_splits(self.dir, raw.splits, splits, usual, _EXAMPLE)
    chosen = {name: raw.splits[name] for name in names}
    return dataclasses.replace(raw, splits=chosen)

  def _missing(self, present: Mapping[str, Any]) -> dict[str, float]:
    """Returns the shares of the splits that are drawn."""
    if TRAIN not in present or 'dev' in present:
      return {}
    shares = {'dev': self.dev_share, 'test': self.test_share}
    return {n: x for n, x in shares.items() if x and n not in present}

  def _documents(
    self, layout: Layout, name: str, faults: Faults
  ) -> Iterator[tuple[str, Document, list[str]]]:
    """Yields the split of each document of a file or folder, and its faults.

    A column may name the splits, if the layout does not.
    """
    path = layout.splits[name]
    if layout.by_label:
      for document, messages in read_texts(path, faults, by_label=True):
        yield name, document, messages
      return
    with _opened(path, faults) as table:
      columns = self._columns_of(table, str(path))
      read, column = read_document, ''
      if columns is not None:
        read = functools.partial(read_row, columns)
        column = '' if layout.divided else columns.split
      if column:
        logging.info('%s: the column %s names the splits', path, column)
      for number, fields in with_faults(table.rows, faults, path):
        document, split = read(fields, f'line-{number}'), name
        if column and not (split := split_of(value := fields.row.get(column))):
          split = name
          message = f'{column} is {value!a}, not train, dev or test'
          fields.faults.append(message)
        yield split, document, fields.faults

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
      before, split = faults.count, builder.begin('input')
      for document, messages in read_texts(path, faults, by_label=False):
        builder.add(split, document, messages)
      if not split.ids:
        faults.add_empty(path, 'document', before)
      return split.documents
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


def text_key(document: Document, seed: int) -> int:
  """Returns a number below 2**64 that depends only on a text and the seed."""
  key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
  digest = hashlib.blake2b(document.text().encode(), key=key, digest_size=8)
  return int.from_bytes(digest.digest(), 'little')
