"""Defines the interface of corpus formats, and their common config."""

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import hashlib
import os
import pathlib
from typing import Any, BinaryIO, ClassVar, Self

from xjax.core.config_part import AT_LEAST_0, ConfigPart, field
from xjax.core.errors import DataError
from xjax.data.files.faults import Faults
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import (
  STREAM,
  TEXTS,
  open_text,
  read_records,
)
from xjax.data.files.tables import TableFormat, table_format
from xjax.data.formats.corpus_builder import (
  CorpusBuilder,
  ReadDocument,
  SourceCorpus,
)
from xjax.data.schema import Document
from xjax.data.tokens_config import OnError, TokensConfig, WordsConfig

# Describes the field `facts`, which some formats have.
FACTS = (
  'Fields or columns that are no text, such as journal, authors or date. Only '
  'stacks read them (docs/stacks.md). A cell may have several values.'
)


@dataclasses.dataclass
class DataConfig(ConfigPart, abstract=True):
  """Configures a corpus; this is the base class of all corpus formats."""

  sparse: ClassVar[bool] = False  # rows of sparse features, without text
  generated: ClassVar[bool] = False  # from a seed, not read from files
  tables: ClassVar[bool] = False  # documents to be tagged may be rows
  label_field: ClassVar[str] = 'labels'  # of a record
  # The zones that are read if data.zones is empty; () means all zones.
  full_text: ClassVar[tuple[str, ...]] = ()

  facts = ()  # fields of a record (FACTS)

  dir: str = field('', 'The folder or archive of the corpus.', may_change=True)
  cache_dir: str = field(
    '',
    'The folder for prepared data. If empty, $XJAX_CACHE_DIR or ~/.cache/xjax.',
    may_change=True,
  )
  zones: tuple[str, ...] = field(
    (),
    'Names of the zones to read, in reading order. If empty, the zones of the '
    'full text are read (in most formats, all zones).',
  )
  labels: str = field(
    'corpus',
    "The labels of a model: 'corpus' (all labels that the splits use), 'all' "
    '(all labels with a descriptor), or a file with one label id per line. If '
    "there are no descriptors, 'all' means the same as 'corpus'.",
  )
  hold_out_labels: int = field(
    0,
    'Number of labels that training treats as unseen, for zero-shot judging.',
    AT_LEAST_0,
  )
  on_error: OnError = field(
    OnError.RAISE,
    'Whether faulty lines raise an error, or are skipped and counted.',
  )
  workers: int = field(
    2, 'Threads that prepare batches in advance.', AT_LEAST_0, may_change=True
  )
  tokens: TokensConfig = field(WordsConfig, 'How models read documents.')

  @property
  def label_space(self) -> str:
    """Returns which labels a model has; see the field `labels`."""
    return self.labels

  @property
  def text_zones(self) -> tuple[str, ...]:
    """Returns the zones of text that are read; () means all zones."""
    text = ('text',) if self.facts else ()
    return tuple(self.zones) or self.full_text or text

  @property
  def kept_zones(self) -> tuple[str, ...]:
    """Returns the zones that documents keep; () means all zones."""
    return self.text_zones + self.facts

  @property
  def cache_folder(self) -> pathlib.Path:
    """Returns the folder for prepared data; by default the user's folder."""
    return user_cache_dir(self.cache_dir)

  def builder(self) -> CorpusBuilder:
    """Returns an empty builder of this corpus."""
    faults = Faults(self.on_error)
    builder = CorpusBuilder(self.dir, faults, self.cache_folder)
    builder.facts = self.facts
    return builder

  def with_guesses(self) -> Self:
    """Returns this config with the values that the files decide.

    A run saves these values, so that later documents are read in the same way.
    """
    return self

  @abc.abstractmethod
  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    """Reads `splits`, which must exist, and if `usual` train, dev and test.

    A ConfigError says that a field does not fit the files; a DataError, that
    the files have faults, or that a split is missing.
    """

  def is_record(self, fields: Fields) -> bool:
    """Returns whether a JSON object is a record in the format of the corpus.

    If not, the object has the form that JsonlData reads.
    """
    return 'text' not in fields and 'zones' not in fields

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    """Reads a document whose labels are to be predicted.

    Faults are added to fields.faults. If default_id is None, an object without
    an id is faulty; otherwise this is its id.
    """
    return read_document(fields, default_id, need_labels)

  def read_input_record(
    self, fields: Fields, default_id: str | None, need_labels: bool = False
  ) -> Document:
    """Reads a document to be tagged; it may have the form of JsonlData."""
    # The labels are None if there is no field for labels, or it is empty.
    read, names = read_document, {'labels'}
    if self.is_record(fields):
      read, names = self.read_record, {'labels', self.label_field}
    document = read(fields, default_id, need_labels)
    if all(fields.row.get(name) in (None, '') for name in names):
      document = dataclasses.replace(document, labels=None)
    return document.with_facts(fields.facts(self.facts))

  def stream_input(
    self, source: str, faults: Faults, on_wait: Callable[[], None] | None = None
  ) -> Iterator[Document]:
    """Yields the documents of a file, whose labels are to be predicted.

    `source` is the user's path, or STREAM. Documents without an id have the id
    line-N. Their labels are None without a field for them. After a fault that
    is an error, no document follows; of a pipe, such a fault is raised at once,
    and `on_wait` is called before it is waited for.
    """
    is_stream = source == STREAM
    name = 'standard input' if is_stream else source
    path = pathlib.Path(source).expanduser()
    if not is_stream and path.is_dir():
      records = self.folder_records(path, faults)
      yield from input_documents(name, records, self.read_input_record, faults)
      return
    path = STREAM if is_stream else path
    with open_text(path, as_it_comes=True, on_wait=on_wait) as file:
      faults.at_once = not file.seekable()
      records, read = self.input_records(file, name, faults)
      yield from input_documents(name, records, read, faults)

  def folder_records(
    self, folder: pathlib.Path, faults: Faults
  ) -> Iterator[tuple[int, Fields]]:
    """Yields the records of documents in a folder that are to be tagged."""
    raise DataError(f'{folder}: is a folder; give a file of JSON lines')

  def input_records(
    self, file: BinaryIO, name: str, faults: Faults
  ) -> tuple[Iterator[tuple[int, Fields]], ReadDocument]:
    """Returns records of documents to be tagged, and what reads each."""
    if (kind := table_format(file, name)) is not TableFormat.JSON_LINES:
      raise DataError(
        f'{name}: is {kind.value}, but this run reads JSON lines; '
        '--config=own_linear reads tables'
      )
    records = read_records(file, faults, name, jq=TEXTS)
    return records, self.read_input_record

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if len(set(self.zones)) != len(self.zones):
      yield f'{path}.zones={self.zones}: a zone occurs twice'
    if self.facts and not config.model.reads_facts:
      yield f'{path}.facts={self.facts}: only a StackModel reads facts'
    text = {*self.text_zones, self.label_field, 'labels', 'id'}
    if len({*self.facts} - text) < len(self.facts):
      yield (
        f'{path}.facts={self.facts}: must be different, and no text, labels '
        'or ids'
      )
    if not self.label_space:
      yield f"{path}.labels='': must be corpus, all, or a file"
    if self.sparse and self.zones:
      yield f'{path}.zones={self.zones}: must be (), as features have no zones'
    if self.sparse and self.on_error is not OnError.RAISE:
      yield (
        f'{path}.on_error={self.on_error}: must be OnError.RAISE, since row '
        'numbers are document ids, which would change if rows were skipped'
      )


def input_documents(
  name: str,
  records: Iterable[tuple[int, Fields]],
  read: ReadDocument,
  faults: Faults,
) -> Iterator[Document]:
  """Yields documents to be tagged; `name` is that of their source."""
  before, found = faults.count, False
  seen: set[bytes] = set()  # digests, since ids may be long
  for line, fields in records:
    fields.may_be_empty = True  # each document is answered
    document = read(fields, f'line-{line}', False)
    if not fields.faults:
      digest = hashlib.blake2b(document.id.encode(), digest_size=8).digest()
      if digest in seen:
        fields.faults.append(f'duplicate id {document.id!a}')
      seen.add(digest)
    found |= not fields.faults
    if not fields.faults and not faults.failed:
      yield document
    elif faults.at_once and faults.on_error is not OnError.SKIP:
      # `records` would add them when the next line comes.
      faults.add(name, line, *fields.faults)
  if not found:
    faults.add_empty(name, 'document', before)


def user_cache_dir(chosen: str = '') -> pathlib.Path:
  """Returns the chosen folder, or else $XJAX_CACHE_DIR or ~/.cache/xjax."""
  path = chosen or os.environ.get('XJAX_CACHE_DIR') or '~/.cache/xjax'
  return pathlib.Path(path).expanduser()


def read_document(
  fields: Fields, default_id: str | None, need_labels: bool = True
) -> Document:
  """Reads a document of the jsonl format and adds faults to fields.faults."""
  return Document(
    id=fields.identifier('id', default_id),
    zones=_zones_of(fields),
    labels=fields.identifiers('labels', None if need_labels else ()),
  )


def _zones_of(fields: Fields) -> dict[str, str]:
  if 'text' in fields and 'zones' in fields:
    fields.faults.append('has both text and zones; give only one of them')
    return {}
  if 'zones' not in fields:
    zones = {'text': fields.text('text')}
  elif not isinstance(fields.row['zones'], dict):
    fields.faults.append('zones is not an object {name: text}')
    return {}
  else:
    zones = {
      fields.as_id(name, 'the name of a zone'): fields.as_text(text, name)
      for name, text in fields.row['zones'].items()
    }
  fields.check_text(zones.values())
  return zones
