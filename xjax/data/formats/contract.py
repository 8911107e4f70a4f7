"""What a corpus format is, and what all corpora share."""

import abc
from collections.abc import Callable, Iterator, Sequence
import dataclasses
from typing import Any, ClassVar

from xjax.core.config_part import AT_LEAST_0, ConfigPart, field
from xjax.core.errors import DataError
from xjax.data.config import OnError, TokensConfig, WordsConfig
from xjax.data.files.json_lines import Fields
from xjax.data.formats.draft import RawCorpus
from xjax.data.schema import Document

# Reads a document from an object's fields, whose faults it adds to.
ReadDocument = Callable[[Fields, str | None, bool], Document]


@dataclasses.dataclass
class DataConfig(ConfigPart, abstract=True):
  """A corpus format, and what all corpora share.

  Attributes:
    sparse: whether its documents are rows of sparse features, without text.
    generated: whether its documents are made by the seed, and are in no file.
    label_field: the field of a record that has a document's labels.
    full_text: the zones that make a document where data.zones is empty;
      empty: all of them.
  """

  sparse: ClassVar[bool] = False
  generated: ClassVar[bool] = False
  label_field: ClassVar[str] = 'labels'
  full_text: ClassVar[tuple[str, ...]] = ()

  dir: str = field(
    '', "The folder (or archive) of the user's files.", may_change=True
  )
  cache_dir: str = field(
    '',
    'Where prepared data goes; empty: $XJAX_CACHE_DIR, else ~/.cache/xjax.',
    may_change=True,
  )
  zones: tuple[str, ...] = field(
    (), 'Names of the zones to read, in this order; empty: all.'
  )
  labels: str = field(
    'corpus',
    "'corpus' (what the splits use), 'all' (every descriptor; what the splits "
    'use where there are none), or a file with one label id per line.',
  )
  hold_out_labels: int = field(
    0, 'Labels to hide from training, for zero-shot judging.', AT_LEAST_0
  )
  on_error: OnError = field(
    OnError.RAISE, 'Raise a DataError, or skip the faulty line and count it.'
  )
  workers: int = field(
    2, 'Threads that read batches ahead.', AT_LEAST_0, may_change=True
  )
  tokens: TokensConfig = field(WordsConfig, 'What is read of a document.')

  @abc.abstractmethod
  def read(self, splits: Sequence[str] = (), usual: bool = True) -> RawCorpus:
    """Reads the corpus.

    Args:
      splits: those that must be there.
      usual: whether train, dev and test are read as well, where they are there.

    Raises:
      ConfigError: a field that cannot be met.
      DataError: the files have faults, or one of splits is absent.
    """

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    """Reads a document to be tagged; what is wrong is in fields.faults.

    Args:
      fields: of a JSON object.
      default_id: the document's id, where the object has none.
      need_labels: whether it must have labels.
    """
    return read_document(fields, default_id, need_labels)

  def read_rows(self, source: str) -> Sequence[Document]:
    """Reads sparse documents to be tagged, for formats that have them.

    Args:
      source: a file such as those of the corpus.

    Raises:
      DataError: the file has faults or no documents.
    """
    raise DataError(f'{source}: {type(self).__name__} reads texts')

  def check(self, config: Any, path: str) -> Iterator[str]:
    if len(set(self.zones)) != len(self.zones):
      yield f'{path}.zones={self.zones}: a zone is named twice'
    if not self.labels:
      yield f"{path}.labels='': must be corpus, all, or a file"
    if self.sparse and self.zones:
      yield (f'{path}.zones={self.zones}: files of features have no zones: ()')
    if self.sparse and self.on_error is not OnError.RAISE:
      yield (
        f'{path}.on_error={self.on_error}: a document is its row, so no '
        'row can be left out: OnError.RAISE'
      )


def read_document(
  fields: Fields, default_id: str | None = None, need_labels: bool = True
) -> Document:
  """Reads a document; what is wrong is noted in fields.faults."""
  return Document(
    id=fields.identifier('id', default_id),
    zones=_zones_of(fields),
    labels=fields.identifiers('labels', None if need_labels else ()),
  )


def _zones_of(fields: Fields) -> dict[str, str]:
  before = len(fields.faults)
  if 'text' in fields and 'zones' in fields:
    fields.faults.append('both text and zones: give one')
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
    fields.faults.append('an empty document: no text in it')
  return zones
