"""What a source hands over: documents and descriptors as they were found."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
from typing import IO, Any
import weakref

import numpy as np

from xjax.core.errors import DataError, UserError
from xjax.core.types import Ragged
from xjax.data.formats.descriptors import Descriptors
from xjax.data.schema import Document, Label, Labels


def to_bytes(record: Any) -> bytes:
  """A JSON value as UTF-8, the same for the same value."""
  return json.dumps(record, ensure_ascii=False).encode('utf-8')


class RecordStore(Sequence):
  """JSON values in a temporary file, which goes when the store goes.

  Args:
    folder: where the temporary file is made, once there is a value; None: the
      system's place.
  """

  def __init__(self, folder: pathlib.Path | None = None):
    self._folder = folder
    self._file: IO[bytes] | None = None
    self._ends = array('q')
    self._written = True

  def append(self, record: Any) -> bytes:
    """Adds a JSON value; returns its bytes.

    Raises:
      UserError: the file cannot be made or written.
    """
    data = to_bytes(record)
    with self._told():
      if self._file is None:
        self._file = self._open()
      self._file.write(data)
    self._ends.append((self._ends[-1] if self._ends else 0) + len(data))
    self._written = False
    return data

  def __len__(self) -> int:
    return len(self._ends)

  def __getitem__(self, row: int) -> Any:
    row = range(len(self))[row]
    if not self._written:
      with self._told():
        self._file.flush()
      self._written = True
    start = self._ends[row - 1] if row else 0
    # pread moves no file position, so that threads can read at once.
    data = os.pread(self._file.fileno(), self._ends[row] - start, start)
    return json.loads(data)

  def _open(self) -> IO[bytes]:
    if self._folder is not None:
      self._folder.mkdir(parents=True, exist_ok=True)
    # Without a name in the folder, so that not even a killed run leaves it.
    file = tempfile.TemporaryFile(dir=self._folder)
    weakref.finalize(self, _close, file)
    return file

  @contextlib.contextmanager
  def _told(self) -> Iterator[None]:
    try:
      yield
    except OSError as error:
      raise UserError(self._failure(error)) from error

  def _failure(self, error: OSError) -> str:
    what = f'temporary data cannot be written ({error.strerror})'
    if self._folder is not None:
      return f'{self._folder}: {what}; see --config.data.cache_dir'
    folder = tempfile.tempdir or 'no temporary folder'
    return f'{folder}: {what}; give another folder in the variable TMPDIR'


def _close(file: IO[bytes]) -> None:
  # What a full disk left in the buffer is not wanted any more.
  with contextlib.suppress(OSError):
    file.close()


TRAIN = 'train'
USUAL = (TRAIN, 'dev', 'test')  # the splits of most corpora, in this order


@dataclasses.dataclass(frozen=True, eq=False)
class RawSplit:
  """One split as found.

  Attributes:
    ids: N document ids.
    gold: N rows of indices into the corpus's label_ids, as given.
    documents: N documents by random access, with every zone.
    digest: hex digest of ids, text and gold.
  """

  ids: Sequence[str]
  gold: Ragged
  documents: Sequence[Document]
  digest: str


def choose_splits(
  source: str,
  present: Iterable[str],
  wanted: Sequence[str] = (),
  usual: bool = True,
  example: str = 'a train.jsonl or train.jsonl.gz',
) -> list[str]:
  """Names of the splits to read: train, dev, test, then others by name.

  Args:
    source: what to call it in messages.
    present: all names there are.
    wanted: those that must be there.
    usual: whether train, dev and test are read as well, where they are there.
    example: files of splits as this source calls them, for messages.

  Raises:
    DataError: there is none, or one that is wanted is not there.
  """
  rank = {name: i for i, name in enumerate(USUAL)}
  ordered = sorted(present, key=lambda name: (rank.get(name, len(rank)), name))
  there = f'; there are: {", ".join(ordered)}' if ordered else ''
  for name in wanted:
    if name not in ordered:
      raise DataError(f'{source}: no split {name!r}{there}')
  chosen = {*wanted, *(USUAL if usual else ())}
  if chosen.isdisjoint(ordered):
    raise DataError(f'{source}: no split here: there must be {example}{there}')
  return [name for name in ordered if name in chosen]


@dataclasses.dataclass(frozen=True, eq=False)
class RawCorpus:
  """All splits of a source, before there is a label space.

  Attributes:
    source: what to call it in messages.
    labels: descriptors in the given order; empty where none are given.
    label_ids: label ids that the splits use, in the order they were met.
    splits: name -> split; an absent split is absent.
    zones: all zone names, in the order they were met.
    full_text: the zones that make the full text; empty: all of them.
    ordered: whether the descriptors' order is the labels' even where only
      those that the splits use are wanted.
  """

  source: str
  labels: Labels
  label_ids: tuple[str, ...]
  splits: Mapping[str, RawSplit]
  zones: tuple[str, ...]
  full_text: tuple[str, ...] = ()
  ordered: bool = False

  def __post_init__(self) -> None:
    object.__setattr__(self, 'labels', Labels.of(self.labels))

  @classmethod
  def of(
    cls,
    source: str,
    labels: Sequence[Label],
    splits: Mapping[str, Sequence[Document]],
  ) -> 'RawCorpus':
    """From documents that are already by random access: reads each once.

    Raises:
      DataError: two documents of a split have one id, or a document has a label
        twice.
    """
    draft = Draft()
    zones: dict[str, None] = {}
    for name, documents in splits.items():
      split = draft.begin(name)
      for document in documents:
        if document.id in split.ids:
          raise DataError(f'{source}: {name}: duplicate id {document.id!a}')
        if len(set(document.labels)) < len(document.labels):
          where = f'{source}: {name}: document {document.id!a}'
          raise DataError(f'{where} has a label twice: {document.labels}')
        zones.update(dict.fromkeys(document.zones))
        data = to_bytes(plain_record(document))
        split.note(document.id, document.labels, data)
    return cls(
      source=source,
      labels=Labels.of(labels),
      label_ids=draft.label_ids,
      splits={n: draft.splits[n].done(splits[n]) for n in splits},
      zones=tuple(zones),
    )


class Draft:
  """Splits while they are being read, and the label ids they share.

  Args:
    folder: where records are kept meanwhile; None: the system's place.
  """

  def __init__(self, folder: pathlib.Path | None = None):
    self.splits: dict[str, SplitDraft] = {}
    self._labels: dict[str, int] = {}
    self._folder = folder

  @property
  def label_ids(self) -> tuple[str, ...]:
    """Label ids in the order they were met."""
    return tuple(self._labels)

  def begin(self, name: str) -> 'SplitDraft':
    """A new split."""
    self.splits[name] = SplitDraft(self._labels, self._folder)
    return self.splits[name]

  def corpus(
    self,
    source: str,
    labels: Iterable[Label],
    zones: Iterable[str],
    ordered: bool = False,
  ) -> RawCorpus:
    """All that was read, where records are those of plain_record.

    Args:
      source: what to call it in messages.
      labels: descriptors in the given order.
      zones: all zone names, in the order they were met.
      ordered: as of RawCorpus.
    """
    return RawCorpus(
      source=source,
      labels=Labels.of(labels),
      label_ids=self.label_ids,
      splits={
        name: split.done(StoredDocuments(split.records, plain_document))
        for name, split in self.splits.items()
      },
      zones=tuple(zones),
      ordered=ordered,
    )


class SplitDraft:
  """One split while it is being read.

  Args:
    labels: label id -> index, shared with the other splits; grows.
    folder: where records are kept; None: the system's place.

  Attributes:
    ids: document ids, as keys.
    records: what add was given, by random access.
  """

  def __init__(
    self, labels: dict[str, int], folder: pathlib.Path | None = None
  ):
    self.ids: dict[str, None] = {}
    self.records = RecordStore(folder)
    self._labels = labels
    self._ends = array('q', [0])
    self._values = array('i')
    self._digest = hashlib.sha256()

  def document_faults(
    self, id_: str, labels: Sequence[str], described: Descriptors
  ) -> list[str]:
    """What is wrong with a document among the others and the labels."""
    whats = [
      f'unknown label {label!a}: it has no descriptor'
      for label in labels
      if label and described.is_unknown(label)
    ]
    if id_ in self.ids:
      whats.append(f'duplicate id {id_!a}')
    return whats

  def add(self, id_: str, labels: Sequence[str], record: Any) -> None:
    """Adds a document, and keeps a record of it (a JSON value)."""
    self.note(id_, labels, self.records.append(record))

  def note(self, id_: str, labels: Sequence[str], data: bytes) -> None:
    """Adds a document without a record; data is all there is to it."""
    self.ids[id_] = None
    for label in labels:
      self._values.append(self._labels.setdefault(label, len(self._labels)))
    self._ends.append(len(self._values))
    self._digest.update(len(data).to_bytes(8, 'little'))
    self._digest.update(data)

  def done(self, documents: Sequence[Document]) -> RawSplit:
    """The split, with documents in the order they were added."""
    return RawSplit(
      ids=tuple(self.ids),
      gold=Ragged(
        np.asarray(self._ends, np.int64), np.asarray(self._values, np.int32)
      ),
      documents=documents,
      digest=self._digest.hexdigest(),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class StoredDocuments(Sequence):
  """Documents made anew from their records each time they are asked for.

  Attributes:
    records: N records by random access.
    parse: record -> document.
  """

  records: Sequence[Any]
  parse: Callable[[Any], Document]

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, row: int) -> Document:
    # Records may know no IndexError, with which iteration ends.
    return self.parse(self.records[range(len(self))[row]])


def keep_zones(document: Document, zones: Sequence[str]) -> Document:
  """A document with no more than the named zones, in that order."""
  kept = {
    name: document.zones[name] for name in zones if name in document.zones
  }
  return dataclasses.replace(document, zones=kept)


@dataclasses.dataclass(frozen=True, eq=False)
class CutDocuments(Sequence):
  """Documents with no more than some of their zones."""

  documents: Sequence[Document]
  zones: tuple[str, ...]

  def __len__(self) -> int:
    return len(self.documents)

  def __getitem__(self, row: int) -> Document:
    return keep_zones(self.documents[row], self.zones)


def plain_record(document: Document) -> list:
  """The JSON value a RecordStore keeps of a document."""
  return [document.id, dict(document.zones), document.labels]


def plain_document(record: list) -> Document:
  """The document of a plain_record."""
  id_, zones, labels = record
  return Document(id_, zones, None if labels is None else tuple(labels))
