"""Configures a text corpus of one's own, in a file or a folder.

The contents of data.dir tell its form:

- a file, or a folder with a file per split ({split}.csv etc.): CSV or TSV with
  a header, Parquet, or JSON lines;
- a folder per label with text files: DIR/<label>/*.txt, or
  DIR/<split>/<label>/*.txt.

A folder may have a labels.jsonl with descriptors of labels, as in jsonl.py.
Splits that the source lacks are drawn from train.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import pathlib
import shlex
from typing import Any, BinaryIO, Self

from absl import logging

from xjax.core.config_part import RATE, SEED, field
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields
from xjax.data.files.tables import read_table
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig, read_document
from xjax.data.formats.own.columns import LIST, Columns, RowReader
from xjax.data.formats.own.reading import (
  Source,
  guess_columns,
  read_corpus,
  tagged_rows,
  tagged_texts,
)
from xjax.data.schema import Document
from xjax.data.text.token_cache import default_cache_dir


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
    columns = guess_columns(self._source())
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

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    return read_corpus(self._source(), splits, usual)

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
    return RowReader(columns).read(fields, default_id, need_labels)

  def read_table(
    self, file: BinaryIO, name: str, faults: Faults
  ) -> Sequence[Document]:
    table = read_table(file, name, faults)
    return tagged_rows(self._columns(), name, table, faults)

  def read_folder(
    self, folder: pathlib.Path, faults: Faults
  ) -> Sequence[Document]:
    return tagged_texts(folder, faults)

  def _columns(self) -> Columns:
    return Columns(self.text, self.labels, self.label_separator, self.id)

  def _source(self) -> Source:
    return Source(
      dir=self.dir,
      columns=self._columns(),
      shares={'dev': self.dev_share, 'test': self.test_share},
      seed=self.split_seed,
      on_error=self.on_error,
      cache=default_cache_dir(self),
    )
