"""Collects the documents and descriptors of a source into a raw corpus."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import errno
import hashlib
import itertools
import json
import os
import pathlib
import re
import tempfile
from typing import IO, Any
import weakref

from absl import logging
import numpy as np

from xjax.core.errors import DataError, UserError
from xjax.core.texts import known_name, plain_name
from xjax.core.types import Ragged
from xjax.data.files.faults import Faults, Grouped, plural
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import TEXTS, only_file, read_records
from xjax.data.files.split_names import splits_of
from xjax.data.formats.label_files import Descriptors
from xjax.data.schema import Document, Label, Labels, Split
from xjax.data.tokens_config import OnError

TRAIN = 'train'
_SHOWN = 3  # labels in a message
USUAL = (TRAIN, 'dev', 'test')  # the splits of most corpora, in this order

# Reads a document from the fields of a JSON object, and adds faults to
# fields.faults. The arguments are the fields, a default id, and whether labels
# are required.
ReadDocument = Callable[[Fields, str | None, bool], Document]


class RecordStore(Sequence):
  """Keeps JSON values in a temporary file, which is deleted with the store."""

  def __init__(self, folder: pathlib.Path | None = None):
    self._folder = folder
    self._file: IO[bytes] | None = None
    self._ends = array('q', [0])

  def append(self, data: bytes) -> None:
    """Adds a value as the bytes of its JSON."""
    try:
      if self._file is None:
        if self._folder is not None:
          self._folder.mkdir(parents=True, exist_ok=True)
        # The file has no name in the folder, so it is deleted even if the run
        # is killed. Without a buffer, all bytes can be read at once.
        self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)
        weakref.finalize(self, self._file.close)
      if self._file.write(data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
      raise UserError(
        f'{self._folder or tempfile.tempdir}: temporary data cannot be written '
        f'({error.strerror}); choose another folder in the config field '
        'data.cache_dir, or in the variable TMPDIR'
      ) from error
    self._ends.append(self._ends[-1] + len(data))

  def __len__(self) -> int:
    return len(self._ends) - 1

  def __getitem__(self, row: int) -> Any:
    row = range(len(self))[row]
    start, end = self._ends[row : row + 2]
    # pread does not move the file position, so several threads can read.
    return json.loads(os.pread(self._file.fileno(), end - start, start))


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


def choose_splits(
  source: str, present: Iterable[str], wanted: Sequence[str], usual: bool
) -> list[str]:
  """Chooses the splits to read: train, dev, test, then others by name.

  The `wanted` splits must exist. If `usual`, train, dev and test are chosen if
  they exist. A DataError says that no split is chosen.
  """
  rank = {name: i for i, name in enumerate(USUAL)}
  ordered = sorted(present, key=lambda name: (rank.get(name, len(rank)), name))
  others = f'; found: {", ".join(ordered)}' if ordered else ''
  for name in wanted:
    if name not in ordered:
      raise DataError(f'{source}: no split {name!r}{others}')
  chosen = {*wanted, *(USUAL if usual else ())}
  if chosen.isdisjoint(ordered):
    raise DataError(
      f'{source}: no files of train, dev or test{others}; docs/data.md has the '
      'names of files in each format'
    )
  return [name for name in ordered if name in chosen]


def log_unread(
  source: str,
  files: Mapping[str, Sequence[pathlib.Path]],
  chosen: Iterable[str],
  unread: Iterable[pathlib.Path] = (),
) -> None:
  """Names the files of splits that are not chosen, and others that are unread.

  It is a warning if one seems to be a split.
  """
  read = {path for name in chosen for path in files.get(name, ())}
  paths = {*unread, *itertools.chain(*files.values())} - read
  if names := ', '.join(sorted(path.name for path in paths)):
    is_split = any(splits_of(re.split(r'[\W_]+', names)).values())
    logging.log(
      logging.WARNING if is_split else logging.INFO,
      '%s: not read: %s. A folder has documents in files such as train.csv and '
      'test.csv, names of labels in labels.csv or --config.data.label_file',
      *(source, names),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class SourceCorpus:
  """Holds all splits of a source, before a label space is made.

  The gold labels of a split are indices into `label_ids`, in any order.
  Documents have all their zones.
  """

  source: str  # its name, for messages
  labels: Labels  # descriptors in the order of the source
  label_ids: tuple[str, ...]  # ids that splits use, by first use
  splits: Mapping[str, Split]
  zones: tuple[str, ...]  # all zone names, in order of first use
  # The order of a label space that has only the labels of the splits: of the
  # descriptors, or else of ids.
  ordered: bool = False
  drawn: tuple[str, ...] = ()  # splits that the source does not have itself
  left_out: str = ''  # says how many faulty records are left out, if any

  def __post_init__(self) -> None:
    object.__setattr__(self, 'labels', Labels.of(self.labels))

  def chosen(self, splits: Sequence[str], usual: bool) -> 'SourceCorpus':
    """Returns a corpus of only some splits (see choose_splits)."""
    names = choose_splits(self.source, self.splits, splits, usual)
    parts = {name: self.splits[name] for name in names}
    return dataclasses.replace(self, splits=parts)

  @classmethod
  def of(
    cls,
    source: str,
    labels: Sequence[Label],
    splits: Mapping[str, Sequence[Document]],
  ) -> 'SourceCorpus':
    """Makes a raw corpus; a repeated id, or label of a document, is refused."""
    builder = CorpusBuilder(source, Faults(on_error=None))
    for name, documents in splits.items():
      split = builder.split(name)
      for document in documents:
        where = f'{source}: {name}: document {document.id!a}'
        if document.id in split.ids:
          raise DataError(f'{source}: {name}: duplicate id {document.id!a}')
        if len(set(document.labels)) < len(document.labels):
          raise DataError(f'{where} has a label twice: {document.labels}')
        builder.note(split, document)
    raw = builder.corpus(labels)
    in_memory = {
      name: dataclasses.replace(split, documents=splits[name])
      for name, split in raw.splits.items()
    }
    return dataclasses.replace(raw, splits=in_memory)


class CorpusBuilder:
  """Collects splits while they are being read, in a RecordStore each."""

  def __init__(
    self, source: str, faults: Faults, folder: pathlib.Path | None = None
  ):
    self.source, self.faults, self._folder = source, faults, folder
    self.facts: Sequence[str] = ()  # fields of records (Fields.facts)
    self.labels: dict[str, Label] = {}  # descriptors
    # The labels that documents may have; None for any labels.
    self._known: Mapping[str, Label] | None = None
    # A file that describes some labels, and the ids that names stand for.
    self._partial: tuple[pathlib.Path, Descriptors] | None = None
    self._renamed: dict[str, str] = {}
    self.splits: dict[str, _SplitBuilder] = {}
    self._index: dict[str, int] = {}  # of label ids, in order of first use
    self.duplicates = ''  # what to do about ids that repeat, for messages
    self._merged = 0  # records that are documents of earlier records
    self._zones: dict[str, None] = {}  # in order of first use

  def describe(
    self,
    read: Callable[[pathlib.Path, Faults], dict[str, Label]],
    paths: Sequence[pathlib.Path],
  ) -> None:
    """Reads descriptors, if any.

    All labels of documents must have one, unless `read` returns Descriptors:
    then the others are named by their ids, and a name stands for its id.
    """
    if not paths:
      return
    before, path = self.faults.count, only_file(paths, self.faults)
    self.labels = read(path, self.faults)
    # If faults are an error, labels without their faulty line are no further.
    if self.faults.count == before or self.faults.on_error is OnError.SKIP:
      if isinstance(self.labels, Descriptors):
        self._partial = path, self.labels
      else:
        self._known = self.labels

  def split(self, name: str) -> '_SplitBuilder':
    """Returns a split, which begins at its first use."""
    if name not in self.splits:
      self.splits[name] = _SplitBuilder(name, RecordStore(self._folder))
    return self.splits[name]

  def read(
    self,
    name: str,
    source: str | os.PathLike,
    records: Iterable[tuple[int | None, Fields]],
    read: ReadDocument,
    lines: str = '',
    split_of: Callable[[Fields], str] | None = None,
    may_skip: bool = False,
  ) -> Sequence[Document]:
    """Reads a source into the split `name`, or into the split of each record.

    With `lines`, such as line-, a document without an id gets the id line-N,
    where N is its line number. Otherwise a missing id is a fault. `split_of`
    tells the split of a record. A source without usable documents is a fault,
    fatal unless it `may_skip`. Returns the documents of `name`.
    """
    before, added = self.faults.count, 0
    for line, fields in records:
      default_id = f'{lines}{line}' if lines else None
      document = read(fields, default_id, True)
      document = document.with_facts(fields.facts(self.facts))
      split = self.split(split_of(fields) if split_of else name)
      # In place: with_faults adds fields.faults later.
      faults = fields.faults
      ids = dict.fromkeys(self._meant(x, faults) for x in document.labels)
      if document.id in split.ids:
        first = split.documents[split.ids[document.id]]
        ids = dict.fromkeys((*first.labels, *ids))
        if document.zones != first.zones:
          faults.append(f'duplicate id {document.id!a}{self.duplicates}')
        self._merged += not faults
      document = dataclasses.replace(document, labels=tuple(ids))
      if not faults:
        split.records.append(self.note(split, document))
        added += 1
    if not added:
      self.faults.add_empty(source, 'document', before, fatal=not may_skip)
    return self.split(name).documents

  def read_files(
    self,
    files: Mapping[str, Sequence[pathlib.Path]],
    splits: Sequence[str],
    usual: bool,
    read: ReadDocument,
    lines: str = '',
    unread: Iterable[pathlib.Path] = (),
  ) -> None:
    """Reads the chosen splits (see choose_splits) from files of JSON lines."""
    names = choose_splits(self.source, files, splits, usual)
    if usual:
      log_unread(self.source, files, names, unread)
    for name in names:
      path = only_file(files[name], self.faults)
      records = read_records(path, self.faults, jq=TEXTS)
      self.read(name, path, records, read, lines)

  def _meant(self, label: str, faults: list[str]) -> str:
    """Returns the id that a label of a document stands for."""
    label = known_name(label, self.labels)
    ids = self.labels.meant(label) if self._partial else ()
    if not label and not faults:
      faults.append('a label has only characters that nobody sees')
    elif label and self._known is not None and label not in self._known:
      faults.append(unknown_label(label))
    if len(ids) > 1:
      shown = ', '.join(map(ascii, ids[:_SHOWN]))
      faults.append(
        Grouped(f'{label!a} is the name of several labels ({shown}): give ids')
      )
    if ids and ids[0] != label:
      self._renamed[label] = ids[0]
    return ids[0] if ids else label

  def _described(self) -> Iterable[Label]:
    """Returns the descriptors, and those of labels that have none, by id."""
    if not self._partial:
      return self.labels.values()
    path, labels = self._partial
    others = sorted(id_ for id_ in self._index if id_ not in labels)
    if self._renamed:
      name, id_ = next(iter(self._renamed.items()))
      n = plural(len(self._renamed), 'label')
      logging.info('%s: %s of documents by name: %a is %a', path, n, name, id_)
    if others:
      message = (
        f'{path}: has {len(self._index) - len(others)} of the '
        f'{plural(len(self._index), "label")} of documents, which have '
        f'{", ".join(map(ascii, others[:_SHOWN]))}; the file has '
        f'{", ".join(map(ascii, itertools.islice(labels, _SHOWN)))}'
      )
      if len(others) == len(self._index) and TRAIN in self.splits:
        raise DataError(f'{message}. Give the file of these labels, or none')
      few = 2 * len(others) > len(self._index)
      level = logging.WARNING if few else logging.INFO
      logging.log(level, '%s. The others are named by their ids', message)
    return [*labels.values(), *(Label(id_, id_) for id_ in others)]

  def note(self, split: '_SplitBuilder', document: Document) -> bytes:
    """Adds a document, and returns the record that its split may keep."""
    texts = {k: v for k, v in document.zones.items() if k not in self.facts}
    known = (name for name in self.facts if document.zones[name])
    self._zones.update(dict.fromkeys((*texts, *known)))
    data = _record(document)
    index = self._index
    gold = [index.setdefault(x, len(index)) for x in document.labels or ()]
    split.ids[document.id] = len(split.text_digests)
    split.text_digests.append(text_digest(texts.values()))
    split.values.extend(gold)
    split.ends.append(len(split.values))
    split.digest.update(len(data).to_bytes(8, 'little') + data)
    return data

  def corpus(
    self, labels: Iterable[Label] | None = None, ordered: bool = False
  ) -> SourceCorpus:
    """Returns the corpus, or raises a DataError if there are faults.

    Without `labels`, the descriptors are those that were read.
    """
    if self._merged:
      n = plural(self._merged, 'record')
      logging.info(
        '%s: %s with the id and text of an earlier record: such records are '
        'one document, with the labels of all',
        *(self.source, n),
      )
    return SourceCorpus(
      source=self.source,
      left_out=self.faults.raise_or_log(),
      labels=self._described() if labels is None else labels,
      label_ids=tuple(self._index),
      splits={name: split.done() for name, split in self.splits.items()},
      zones=tuple(self._zones),
      ordered=ordered,
    )


def stored(documents: Iterable[Document]) -> Sequence[Document]:
  """Keeps documents in a temporary file."""
  store = RecordStore()
  for document in documents:
    store.append(_record(document))
  return StoredDocuments(store, _plain_document)


def unknown_label(label: str) -> str:
  """Returns the fault of a label that has no descriptor."""
  # The message is the same for all documents, so faults are shown by label.
  return Grouped(f'unknown label {label!a}: it has no descriptor')


class _SplitBuilder:
  def __init__(self, name: str, records: RecordStore):
    self.name, self.records = name, records
    self.ids: dict[str, int] = {}  # and the last record of each
    self.ends, self.values = array('q', [0]), array('i')  # of gold labels
    self.text_digests = array('Q')
    self.digest = hashlib.sha256()

  @property
  def documents(self) -> Sequence[Document]:
    return StoredDocuments(self.records, _plain_document)

  def done(self) -> Split:
    ends = np.asarray(self.ends, np.int64)
    gold = Ragged(ends, np.asarray(self.values, np.int32))
    documents = self.documents
    text_digests = np.asarray(self.text_digests, np.uint64)
    if len(self.ids) < len(documents):  # the last record has all labels
      rows = np.fromiter(self.ids.values(), np.int64)
      gold, text_digests = gold.take(rows), text_digests[rows]
      documents = StoredDocuments(rows, documents.__getitem__)
    return Split(
      name=self.name,
      ids=tuple(self.ids),
      gold=gold,
      documents=documents,
      digest=self.digest.hexdigest(),
      text_digests=text_digests,
    )


def _record(document: Document) -> bytes:
  record = [document.id, dict(document.zones), document.labels]
  return json.dumps(record, ensure_ascii=False).encode()


def _plain_document(record: list) -> Document:
  id_, zones, labels = record
  return Document(id_, zones, None if labels is None else tuple(labels))


def text_digest(texts: Iterable[str]) -> int:
  """Returns a number of 64 bits that tells texts apart; 0 if there is no text.

  Texts that differ only in case, white space or Unicode form have the same
  number.
  """
  text = plain_name(''.join(texts)).casefold()
  data = text.encode().translate(None, b' ')
  if not data:
    return 0
  digest = hashlib.blake2b(data, digest_size=8).digest()
  return int.from_bytes(digest, 'little')
