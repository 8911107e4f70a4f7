"""Configures a text corpus of one's own, in a file or a folder.

The contents of data.dir tell its form:

- a file, or a folder with a file per split ({split}.csv etc.): CSV or TSV with
  a header, Parquet, or JSON lines;
- a folder per label with text files: DIR/<label>/*.txt, or
  DIR/<split>/<label>/*.txt.

A folder may have a file with descriptors of labels (label_files.py): JSON lines
as in jsonl.py, a table or SKOS, named labels.jsonl, labels.csv, labels.ttl etc.
Splits that the source lacks are drawn from train.
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import pathlib
import shlex
from typing import Any, BinaryIO, Self

from absl import logging

from xjax.core.config_part import RATE, SEED, field
from xjax.data.files.cells import LIST
from xjax.data.files.csv_table import Quoting
from xjax.data.files.faults import Faults, plural
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import (
  TEXTS,
  open_text,
  read_records,
  with_faults,
)
from xjax.data.files.split_names import (
  find_splits,
  split_columns,
  split_in_row,
  split_of,
)
from xjax.data.files.tables import (
  FASTTEXT_LABEL,
  TableFormat,
  TableReader,
  read_table,
  table_format,
)
from xjax.data.formats.columns import (
  NO_ID,
  USUAL_TEXTS,
  Columns,
  are_whole,
  choose_columns,
  csv_line,
  label_cells,
  list_labels,
  read_row,
  read_usual,
  with_names,
  with_separator,
)
from xjax.data.formats.corpus_builder import (
  TRAIN,
  USUAL,
  CorpusBuilder,
  ReadDocument,
  SourceCorpus,
  choose_splits,
  log_unread,
)
from xjax.data.formats.data_config import FACTS, DataConfig, read_document
from xjax.data.formats.drawing import draw_missing, missing_shares
from xjax.data.formats.label_files import read_descriptors
from xjax.data.formats.own_files import files_of, find_layout, read_texts
from xjax.data.quality import find_repeats, pairs_text
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
  facts: tuple[str, ...] = field((), FACTS)
  labels: str = field(
    '',
    'The column of labels. If empty, a column with a usual name is read, such '
    'as labels or tags. Or several columns, separated by commas, each of a '
    'label, with 0 or 1; if empty, such columns are found too.',
  )
  label_separator: str = field(
    '',
    "The characters between the labels of a cell; 'none' if a cell has one "
    "label, 'list' if a cell has a list in brackets, '0/1' if such a list has "
    'zeros and ones. If empty, it is guessed, and data that leave it open are '
    'an error.',
  )
  whole_labels: bool = field(
    False,
    'Whether labels such as 1.0 are integers, as pandas writes them beside '
    'missing cells. So it is, too, if all labels of train are such.',
  )
  id: str = field(
    '',
    'The column of ids. If empty, a column id, doc_id or document_id is read, '
    "or else the id is line-N; so it is with 'none'.",
  )
  label_file: str = field(
    '',
    'The file that names labels: JSON lines, a table or SKOS. If empty, it is '
    'labels.jsonl, labels.csv, labels.ttl etc. in the folder of the corpus.',
    may_change=True,
  )
  label_language: str = field(
    '',
    'The language of names of labels, such as en or fi, if the file of labels '
    'has several. If empty, English, or else the language of most names.',
  )
  split: str = field(
    '',
    'The column that names the split of each document. If empty, a column with '
    'a usual name is read, such as split, set or is_train, if it names splits; '
    "'none' reads none.",
  )
  encoding: str = field(
    '',
    'The encoding of tables, text files and JSON that are not UTF-8, such as '
    'cp1251. If empty, it is guessed, but not of JSON and of pipes.',
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
    0.1, 'The share that is drawn if there is no dev and no test.', RATE
  )
  split_seed: int = field(0, 'Decides which documents are drawn.', SEED)

  @property
  def label_space(self) -> str:
    return 'all'

  @property
  def full_text(self) -> tuple[str, ...]:
    return self.text  # other zones of a document are not read

  @property
  def _lines(self) -> tuple[bool, frozenset[str]]:
    """Returns `fasttext` and `texts` of table_format."""
    texts = USUAL_TEXTS | {name.lower() for name in self.text}
    return self.label_separator == FASTTEXT_LABEL, texts

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
    layout = find_layout(self.dir, self.label_file)
    if layout.by_label:
      return self
    splits = [name for name in USUAL if name in layout.splits] or layout.splits
    first, *others = (p for name in splits for p in sorted(layout.splits[name]))
    # `read` reports the faults of rows.
    with self._open(first) as table:
      columns = self._columns_of(table, str(first))
      cells = {}
      if columns.is_open:
        cells[first] = label_cells(columns, table.sample, table.rows)
        for path in others:
          with self._open(path) as other:
            cells[path] = label_cells(columns, other.sample, other.rows)
        columns = with_separator(columns, cells)
      rest = (row.get(columns.labels) for _, row in table.rows)
      seen = itertools.chain(cells.get(first, ()), rest)
      more = itertools.chain(*(cells[path] for path in cells if path != first))
      whole = columns.whole or are_whole(columns, seen, more)
    guesses = {
      'text': columns.text,
      # Lines in the form of JsonlData are read so if no column is named.
      'labels': columns.labels if columns.text else '',
      'label_separator': columns.separator,
      'whole_labels': whole,
      'id': columns.id,
    }
    new = {k: v for k, v in guesses.items() if v and v != getattr(self, k)}
    if new:
      flags = (
        f'--config.data.{name}='
        + shlex.quote(csv_line(value) if name == 'text' else str(value))
        for name, value in new.items()
      )
      logging.info('%s: guessed: %s', self.dir, ' '.join(flags))
    return dataclasses.replace(self, **new)

  def _columns_of(self, table: TableReader, name: str) -> Columns:
    """Returns the columns, without text for JSON lines as of JsonlData."""
    fields, columns = table.columns, self._columns()
    if table.kind is TableFormat.JSON_LINES and not (self.text or self.labels):
      is_usual = 'labels' in fields and (
        'zones' in fields or 'text' in fields and not self.id
      )
      # Lines without any field are faulty, and these faults say enough.
      if is_usual or not fields:
        return dataclasses.replace(columns, labels='labels', id='')
    fields = [x for x in fields if x not in self.facts]
    columns = choose_columns(columns, fields, table.sample, name)
    if table.kind is TableFormat.FASTTEXT:  # new lines need no labels
      columns = dataclasses.replace(columns, separator=FASTTEXT_LABEL)
    return columns

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    """Reads a corpus, and draws the splits that it lacks from train.

    If there is neither a dev nor a test split, both are drawn. If there is a
    test split, only dev is drawn. If there is a dev split, nothing is drawn.
    """
    layout = find_layout(self.dir, self.label_file)
    builder = self.builder()
    advice = '; give --config.data.id=none if they are no ids of documents'
    builder.duplicates = advice
    describe = functools.partial(
      read_descriptors,
      language=self.label_language,
      encoding=self.encoding,
      quoting=self.quoting,
    )
    builder.describe(describe, layout.labels)
    shares = {'dev': self.dev_share, 'test': self.test_share}
    names, drawn = [TRAIN], {}
    if layout.divided:
      drawn = missing_shares(layout.splits, shares)
      present = {*layout.splits, *drawn}
      names = choose_splits(self.dir, present, splits, usual)
    if usual:
      log_unread(self.dir, layout.splits, names, layout.unread)
    names = dict.fromkeys(TRAIN if name in drawn else name for name in names)
    data = self.with_guesses()  # all files have the form of train
    for name in names:
      if layout.by_label:
        (path,) = layout.splits[name]
        records = read_texts(path, builder.faults, True, self.encoding)
        may_skip = bool(builder.splits)
        builder.read(name, path, records, read_document, may_skip=may_skip)
        continue
      paths = files_of(layout.splits[name], builder.faults)
      for path in paths:
        data._read_table(builder, name, path, layout.divided, len(paths) > 1)
    raw = builder.corpus()
    # A column may name no documents of train, or only faulty ones of a split.
    parts = {name: split for name, split in raw.splits.items() if len(split)}
    raw = dataclasses.replace(raw, splits=parts)
    _warn_of_rows(raw)
    if not layout.divided:
      drawn = missing_shares(raw.splits, shares)
    raw = draw_missing(raw, drawn, functools.partial(_keys, self.split_seed))
    return raw.chosen(splits, usual)

  def _read_table(
    self,
    builder: CorpusBuilder,
    name: str,
    path: pathlib.Path,
    divided: bool,
    is_shard: bool,
  ) -> None:
    """Reads a file of a split; if not `divided`, a column may name splits."""
    with open_text(path) as file:
      table = self._table(file, str(path), builder.faults)
      columns = self._columns_of(table, str(path))
      columns = with_names(columns, builder.labels, str(path))
      read = functools.partial(
        read_row if columns.text else read_usual, columns
      )
      taken = {*columns.text, columns.labels, columns.id, *columns.flags}
      taken |= {*self.facts}
      names = [x for x in table.columns if x not in taken or x == self.split]
      names = split_columns(self.split, names, table.sample, path)
      split_in_file = None
      if divided:
        split_in_file = functools.partial(split_in_row, names, split_of, name)
      elif names:
        with self._open(path) as again:  # all rows count, not only the first
          rows = (row for _, row in again.rows)
          split_in_file = find_splits(names, rows, self.split, path)
      records = with_faults(table.rows, builder.faults, path)
      lines = f'{path.name}/' * is_shard + 'line-'
      may_skip = bool(builder.splits)
      builder.read(name, path, records, read, lines, split_in_file, may_skip)

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
      usual = 'id' if 'id' in fields and columns.id != NO_ID else ''
      columns = dataclasses.replace(columns, id=usual)
    if columns.labels not in fields:
      columns = dataclasses.replace(columns, labels='labels', separator=LIST)
    return read_row(columns, fields, default_id, need_labels)

  def folder_records(
    self, folder: pathlib.Path, faults: Faults
  ) -> Iterator[tuple[int, Fields]]:
    return read_texts(folder, faults, False, self.encoding)

  def input_records(
    self, file: BinaryIO, name: str, faults: Faults
  ) -> tuple[Iterator[tuple[int, Fields]], ReadDocument]:
    if table_format(file, name, *self._lines) is TableFormat.JSON_LINES:
      records = read_records(file, faults, name, '', self.encoding, TEXTS)
      return records, self.read_input_record
    table = self._table(file, name, faults, blank=True)
    names = [x for x in table.columns if x not in self.facts]
    columns = choose_columns(
      self._columns(), names, table.sample, name, need_labels=False
    )
    if columns.is_open:
      cells = label_cells(columns, table.sample, enumerate(table.sample))
      columns = with_separator(columns, {name: cells})
    records = with_faults(table.rows, faults, name)

    def read(fields: Fields, default_id: str, need_labels: bool) -> Document:
      document = read_row(columns, fields, default_id, need_labels)
      return document.with_facts(fields.facts(self.facts))

    return records, read

  @contextlib.contextmanager
  def _open(self, path: pathlib.Path) -> Iterator[TableReader]:
    """Opens a file whose faults are noted when it is read again."""
    with open_text(path) as file:
      yield self._table(file, str(path), Faults(self.on_error))

  def _table(
    self, file: BinaryIO, name: str, faults: Faults, blank: bool = False
  ) -> TableReader:
    how = self.encoding, self.quoting, *self._lines, blank
    return read_table(file, name, faults, *how)

  def read_input_record(
    self, fields: Fields, default_id: str | None, need_labels: bool = False
  ) -> Document:
    # The places of zeros and ones are not known here, so labels are unknown.
    list_labels(self._columns(), fields)
    return super().read_input_record(fields, default_id, need_labels)

  def _columns(self) -> Columns:
    separator, whole = self.label_separator, self.whole_labels
    return Columns(self.text, self.labels, separator, self.id, whole)


def _warn_of_rows(raw: SourceCorpus) -> None:
  """Warns of documents that seem to be in several rows."""
  if TRAIN not in raw.splits:
    return
  train = raw.splits[TRAIN]
  _, examples, n = find_repeats(train)
  has_lines = n and 'line-' in examples[0][0]  # instead of ids
  if has_lines and train.gold.lengths.max() == 1:
    logging.warning(
      '%s: %s of train, each with one label; %s the text of an earlier one, '
      'such as %s, but another label. If these are labels of one document, '
      'name a column that is the same in its rows, and only there, as in '
      '--config.data.id=COLUMN: rows with one id and one text are one document',
      *(raw.source, plural(len(train), 'document'), f'{n:,} with'),
      pairs_text(examples[:1]),
    )


def _keys(seed: int, documents: Iterable[Document]) -> Iterator[int]:
  return (text_key(document, seed) for document in documents)


def text_key(document: Document, seed: int) -> int:
  """Returns a number below 2**64 that depends only on a text and the seed."""
  key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
  digest = hashlib.blake2b(document.text().encode(), key=key, digest_size=8)
  return int.from_bytes(digest.digest(), 'little')
