"""Collects the documents and descriptors of a source into a raw corpus."""

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
from xjax.data.files.faults import Faults, Grouped
from xjax.data.formats.descriptors import Descriptors
from xjax.data.schema import Document, Label, Labels


def to_bytes(record: Any) -> bytes:
  """Encodes a JSON value as UTF-8; equal values give equal bytes."""
  return json.dumps(record, ensure_ascii=False).encode('utf-8')


class RecordStore(Sequence):
  """Keeps JSON values in a temporary file, which is deleted with the store.

  The file is opened in `folder`, or in the system's folder for temporary files,
  when the first value is added.
  """

  def __init__(self, folder: pathlib.Path | None = None):
    self._folder = folder
    self._file: IO[bytes] | None = None
    self._ends = array('q')
    self._written = True

  def append(self, record: Any) -> bytes:
    data = to_bytes(record)
    with self._user_errors():
      if self._file is None:
        self._file = self._open()
      self._file.write(data)
    self._ends.append((self._ends[-1] if self._ends else 0) + len(data))
    self._written = False
    return data

  def __len__(self) -> int:
    return len(self._ends)

  def __getitem__(self, row: int) -> Any:
    return json.loads(self.data(row))

  def data(self, row: int) -> bytes:
    """Returns the bytes of the value in a row, which `append` returned."""
    row = range(len(self))[row]
    if not self._written:
      with self._user_errors():
        self._file.flush()
      self._written = True
    start = self._ends[row - 1] if row else 0
    # pread does not move the file position, so several threads can read.
    return os.pread(self._file.fileno(), self._ends[row] - start, start)

  def _open(self) -> IO[bytes]:
    if self._folder is not None:
      self._folder.mkdir(parents=True, exist_ok=True)
    # The file has no name in the folder, so it is deleted even if the run is
    # killed.
    file = tempfile.TemporaryFile(dir=self._folder)
    weakref.finalize(self, _close, file)
    return file

  @contextlib.contextmanager
  def _user_errors(self) -> Iterator[None]:
    try:
      yield
    except OSError as error:
      raise UserError(self._failure(error)) from error

  def _failure(self, error: OSError) -> str:
    message = f'temporary data cannot be written ({error.strerror})'
    if self._folder is not None:
      return (
        f'{self._folder}: {message}; choose another folder in the config field '
        'data.cache_dir'
      )
    folder = tempfile.tempdir or 'no temporary folder'
    return f'{folder}: {message}; give another folder in the variable TMPDIR'


def _close(file: IO[bytes]) -> None:
  """Closes the temporary file, even if the disk is full."""
  # If the disk is full, bytes in the buffer cannot be written. They are no
  # longer needed, so this is no error.
  with contextlib.suppress(OSError):
    file.close()


TRAIN = 'train'
USUAL = (TRAIN, 'dev', 'test')  # the splits of most corpora, in this order


@dataclasses.dataclass(frozen=True, eq=False)
class RawSplit:
  """Holds one split as in the source; rows of `gold` need not be sorted."""

  ids: Sequence[str]
  gold: Ragged  # indices into SourceCorpus.label_ids
  documents: Sequence[Document]  # by random access, with all zones
  digest: str  # hex digest of ids, text and gold labels
  text_digests: np.ndarray | None = None  # uint64; None without text


def choose_splits(
  source: str,
  present: Iterable[str],
  wanted: Sequence[str] = (),
  usual: bool = True,
  example: str = 'a train.jsonl or train.jsonl.gz',
) -> list[str]:
  """Chooses the splits to read: train, dev, test, then others by name.

  The `wanted` splits must exist. If `usual`, train, dev and test are chosen if
  they exist. If there are none, a DataError says that the `example` is
  expected.
  """
  rank = {name: i for i, name in enumerate(USUAL)}
  ordered = sorted(present, key=lambda name: (rank.get(name, len(rank)), name))
  others = f'; found: {", ".join(ordered)}' if ordered else ''
  for name in wanted:
    if name not in ordered:
      raise DataError(f'{source}: no split {name!r}{others}')
  chosen = {*wanted, *(USUAL if usual else ())}
  if chosen.isdisjoint(ordered):
    raise DataError(f'{source}: no split to read; expected {example}{others}')
  return [name for name in ordered if name in chosen]


@dataclasses.dataclass(frozen=True, eq=False)
class SourceCorpus:
  """Holds all splits of a source, before a label space is made."""

  source: str  # its name, for messages
  labels: Labels  # descriptors in the order of the source
  label_ids: tuple[str, ...]  # ids that splits use, by first use
  splits: Mapping[str, RawSplit]
  zones: tuple[str, ...]  # all zone names, in order of first use
  full_text: tuple[str, ...] = ()  # zones of the full text; () is all
  # The order of a label space that has only the labels of the splits: of the
  # descriptors, or else of ids.
  ordered: bool = False
  drawn: tuple[str, ...] = ()  # splits that the source does not have itself
  left_out: str = ''  # says how many faulty records are left out, if any

  def __post_init__(self) -> None:
    object.__setattr__(self, 'labels', Labels.of(self.labels))

  @classmethod
  def of(
    cls,
    source: str,
    labels: Sequence[Label],
    splits: Mapping[str, Sequence[Document]],
  ) -> 'SourceCorpus':
    """Makes a raw corpus from documents; reads each document once.

    Raises a DataError if two documents of a split have the same id, or a
    document has the same label twice.
    """
    draft = CorpusBuilder()
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
        split.note(document, to_bytes(plain_record(document)))
    return cls(
      source=source,
      labels=Labels.of(labels),
      label_ids=draft.label_ids,
      splits={n: draft.splits[n].done(splits[n]) for n in splits},
      zones=tuple(zones),
    )


# A document with the file and the line that it comes from, and its faults. The
# line is None if the file is the document.
Record = tuple[str | os.PathLike, int | None, Document, list[str]]


class CorpusBuilder:
  """Collects the splits of a corpus while they are being read.

  All splits share one mapping from label ids to indices. Records are kept in
  temporary files in `folder`, or in the system's folder for such files.
  """

  def __init__(
    self, folder: pathlib.Path | None = None, faults: Faults | None = None
  ):
    self.faults = faults or Faults()
    self.described = Descriptors()
    self.splits: dict[str, SplitBuilder] = {}
    self._labels: dict[str, int] = {}
    self._zones: dict[str, None] = {}  # in order of first use
    self._folder = folder

  @property
  def label_ids(self) -> tuple[str, ...]:
    """Returns the label ids, in order of first use."""
    return tuple(self._labels)

  def begin(self, name: str) -> 'SplitBuilder':
    self.splits[name] = SplitBuilder(self._labels, self._folder)
    return self.splits[name]

  def read(
    self, name: str, source: str | os.PathLike, records: Iterable[Record]
  ) -> 'SplitBuilder':
    """Reads a split; a `source` without usable documents is a fault."""
    before, split = self.faults.count, self.begin(name)
    for record in records:
      self.add(split, *record)
    if not split.ids:
      self.faults.add_empty(source, 'document', before)
    return split

  def add(
    self,
    split: 'SplitBuilder',
    file: str | os.PathLike,
    line: int | None,
    document: Document,
    messages: Sequence[str],
    record: Any = None,
  ) -> bool:
    """Adds a document and keeps its record, or adds the document's faults.

    A label without a descriptor and a repeated id are faults too. The record is
    a JSON value; without it, plain_record makes one.
    """
    unknown = [
      # The message is the same for all documents, so faults are shown by label.
      Grouped(f'unknown label {label!a}: it has no descriptor')
      for label in document.labels or ()
      if label and self.described.is_unknown(label)
    ]
    known = document.id in split.ids
    twice = [f'duplicate id {document.id!a}'] if known else []
    if not self.faults.extend(file, line, [*messages, *unknown, *twice]):
      return False
    self._zones.update(dict.fromkeys(document.zones))
    data = split.records.append(record or plain_record(document))
    split.note(document, data)
    return True

  def corpus(
    self,
    source: str,
    left_out: str,
    labels: Iterable[Label] | None = None,
    ordered: bool = False,
  ) -> SourceCorpus:
    """Returns a raw corpus of all splits, whose records are plain records.

    Without `labels`, the descriptors are those in `described`.
    """
    if labels is None:
      labels = self.described.labels.values()
    return SourceCorpus(
      source=source,
      labels=Labels.of(labels),
      label_ids=self.label_ids,
      splits={
        n: split.done(split.documents) for n, split in self.splits.items()
      },
      zones=tuple(self._zones),
      ordered=ordered,
      left_out=left_out,
    )


class SplitBuilder:
  """Collects one split; `labels` maps label ids to indices for all splits."""

  def __init__(
    self, labels: dict[str, int], folder: pathlib.Path | None = None
  ):
    self.ids: dict[str, None] = {}
    self.records = RecordStore(folder)
    self._labels = labels
    self._ends = array('q', [0])
    self._values = array('i')
    self._text_digests = array('Q')
    self._digest = hashlib.sha256()

  @property
  def documents(self) -> Sequence[Document]:
    """Returns the documents, if all records are plain records."""
    return StoredDocuments(self.records, plain_document)

  def note(self, document: Document, data: bytes) -> None:
    """Adds a document without keeping a record; the digest covers `data`."""
    self.ids[document.id] = None
    self._text_digests.append(text_digest(document.zones.values()))
    for label in document.labels or ():
      self._values.append(self._labels.setdefault(label, len(self._labels)))
    self._end_row(data)

  def part(self, rows: Iterable[int]) -> 'SplitBuilder':
    """Returns a split of some documents, which shares the kept records."""
    ids, rows = list(self.ids), array('q', rows)
    part = SplitBuilder(self._labels)
    part.records = _Rows(self.records, rows)
    for row in rows:
      part.ids[ids[row]] = None
      part._values.extend(self._values[self._ends[row] : self._ends[row + 1]])
      part._text_digests.append(self._text_digests[row])
      part._end_row(self.records.data(row))
    return part

  def _end_row(self, data: bytes) -> None:
    self._ends.append(len(self._values))
    self._digest.update(len(data).to_bytes(8, 'little'))
    self._digest.update(data)

  def done(self, documents: Sequence[Document]) -> RawSplit:
    """Returns the complete split; the documents are in the order of adding."""
    return RawSplit(
      ids=tuple(self.ids),
      gold=Ragged(
        np.asarray(self._ends, np.int64), np.asarray(self._values, np.int32)
      ),
      documents=documents,
      digest=self._digest.hexdigest(),
      text_digests=np.asarray(self._text_digests, np.uint64),
    )


_SPACES = b' \t\n\v\f\r'


def text_digest(texts: Iterable[str]) -> int:
  """Returns a number of 64 bits that tells texts apart; 0 if there is no text.

  Spaces and line breaks do not count, so texts that differ only in these have
  the same number.
  """
  data = ''.join(texts).encode().translate(None, _SPACES)
  if not data:
    return 0
  digest = hashlib.blake2b(data, digest_size=8).digest()
  return int.from_bytes(digest, 'little')


@dataclasses.dataclass(frozen=True, eq=False)
class _Rows(Sequence):
  records: Sequence[Any]
  rows: Sequence[int]

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, row: int) -> Any:
    return self.records[self.rows[row]]


@dataclasses.dataclass(frozen=True, eq=False)
class StoredDocuments(Sequence):
  """Makes a document from its record at each access."""

  records: Sequence[Any]
  parse: Callable[[Any], Document]

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, row: int) -> Document:
    # Iteration ends at an IndexError. The range raises this error, because the
    # records might not raise it.
    return self.parse(self.records[range(len(self))[row]])


def keep_zones(document: Document, zones: Sequence[str]) -> Document:
  """Returns a document with only the named zones, in the order of `zones`."""
  kept = {
    name: document.zones[name] for name in zones if name in document.zones
  }
  return dataclasses.replace(document, zones=kept)


@dataclasses.dataclass(frozen=True, eq=False)
class CutDocuments(Sequence):
  """Gives access to documents with only some of their zones."""

  documents: Sequence[Document]
  zones: tuple[str, ...]

  def __len__(self) -> int:
    return len(self.documents)

  def __getitem__(self, row: int) -> Document:
    return keep_zones(self.documents[row], self.zones)


def plain_record(document: Document) -> list:
  """Returns the JSON value that a RecordStore keeps for a document."""
  return [document.id, dict(document.zones), document.labels]


def plain_document(record: list) -> Document:
  """Makes a document from a value that plain_record returned."""
  id_, zones, labels = record
  return Document(id_, zones, None if labels is None else tuple(labels))
