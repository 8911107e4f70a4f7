"""Defines the interface of corpus formats, and their common config."""

import abc
from collections.abc import Callable, Iterator, Sequence
import dataclasses
import pathlib
from typing import Any, BinaryIO, ClassVar, Self

from xjax.core.config_part import AT_LEAST_0, ConfigPart, field
from xjax.core.errors import DataError
from xjax.data.config import OnError, TokensConfig, WordsConfig
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.schema import Document

# Reads a document from the fields of a JSON object, and adds faults to
# fields.faults. The arguments are the fields, a default id, and whether labels
# are required.
ReadDocument = Callable[[Fields, str | None, bool], Document]


@dataclasses.dataclass
class DataConfig(ConfigPart, abstract=True):
  """Configures a corpus; this is the base class of all corpus formats."""

  sparse: ClassVar[bool] = False  # rows of sparse features, without text
  generated: ClassVar[bool] = False  # from a seed, not read from files
  tables: ClassVar[bool] = False  # documents to be tagged may be rows
  label_field: ClassVar[str] = 'labels'  # of a record
  # The zones that are read if data.zones is empty; () means all zones.
  full_text: ClassVar[tuple[str, ...]] = ()

  dir: str = field(
    '', "The folder (or archive) with the user's files.", may_change=True
  )
  cache_dir: str = field(
    '',
    'The folder for prepared data. If empty, $XJAX_CACHE_DIR is used, or else '
    '~/.cache/xjax.',
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
    2,
    'Number of threads that prepare batches in advance.',
    AT_LEAST_0,
    may_change=True,
  )
  tokens: TokensConfig = field(
    WordsConfig, 'The form in which models read documents.'
  )

  @property
  def label_space(self) -> str:
    """Returns which labels a model has; see the field `labels`."""
    return self.labels

  def settled(self) -> Self:
    """Returns this config with the values that the files decide.

    A run saves these values, so that later documents are read in the same way.
    """
    return self

  @abc.abstractmethod
  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    """Reads the corpus.

    Args:
      splits: names of splits that must exist.
      usual: whether to read train, dev and test too, if they exist.

    Raises:
      ConfigError: a field of the config does not fit the files.
      DataError: the files have faults, or one of `splits` is missing.
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

  def read_rows(self, source: str) -> Sequence[Document]:
    """Reads sparse documents whose labels are to be predicted, from a file."""
    raise DataError(
      f'{source}: {type(self).__name__} reads texts, not features'
    )

  def read_table(
    self, file: BinaryIO, name: str, faults: Faults
  ) -> Sequence[Document]:
    """Reads documents whose labels are to be predicted from a table.

    Only formats with `tables` are asked. The file can be rewound. The documents
    have random access; faulty rows are added to `faults`.
    """
    raise NotImplementedError

  def read_folder(
    self, folder: pathlib.Path, faults: Faults
  ) -> Sequence[Document]:
    """Reads documents whose labels are to be predicted from a folder.

    Formats without such folders raise a DataError.
    """
    raise DataError(f'{folder}: is a folder; give a file of JSON lines')

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if len(set(self.zones)) != len(self.zones):
      yield f'{path}.zones={self.zones}: a zone occurs twice'
    if not self.label_space:
      yield f"{path}.labels='': must be corpus, all, or a file"
    if self.sparse and self.zones:
      yield (
        f'{path}.zones={self.zones}: must be (), since files of features have '
        'no zones'
      )
    if self.sparse and self.on_error is not OnError.RAISE:
      yield (
        f'{path}.on_error={self.on_error}: must be OnError.RAISE, since row '
        'numbers are document ids, which would change if rows were skipped'
      )


def read_document(
  fields: Fields, default_id: str | None = None, need_labels: bool = True
) -> Document:
  """Reads a document of the jsonl format and adds faults to fields.faults."""
  return Document(
    id=fields.identifier('id', default_id),
    zones=_zones_of(fields),
    labels=fields.identifiers('labels', None if need_labels else ()),
  )


def _zones_of(fields: Fields) -> dict[str, str]:
  before = len(fields.faults)
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
  if len(fields.faults) == before and not any(
    text.strip() for text in zones.values()
  ):
    fields.faults.append('the document has no text')
  return zones
