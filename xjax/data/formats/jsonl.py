"""Your own text as JSON lines: {split}.jsonl[.gz] and labels.jsonl[.gz].

A document is {"id", "text" or "zones": {name: text}, "labels": [ids]}, a label
{"id", "name", "alt": [...], "parents": [ids], "description"}, of which only the
id must be there. Further fields are ignored. labels.jsonl is optional: without
it a label's id is its name; with it every label of a document must be in it.
Splits are train, dev and test; another file is read when a split is named so.
"""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import pathlib
import sys
from typing import BinaryIO

from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  find_files,
  find_folder,
  only_file,
  open_lines,
  parse_rows,
  read_rows,
)
from xjax.data.formats.contract import DataConfig, ReadDocument, read_document
from xjax.data.formats.descriptors import Descriptors, read_descriptors
from xjax.data.formats.draft import (
  Draft,
  RawCorpus,
  SplitDraft,
  StoredDocuments,
  choose_splits,
  plain_document,
  plain_record,
)
from xjax.data.schema import Document
from xjax.data.text.token_cache import default_cache_dir


@dataclasses.dataclass
class JsonlData(DataConfig):
  """Your own text: {split}.jsonl[.gz] and labels.jsonl[.gz] in dir."""

  def read(self, splits: Sequence[str] = (), usual: bool = True) -> RawCorpus:
    return read_jsonl(self, splits, usual)


LABELS = 'labels'  # the name that no split may have


def read_documents(
  source: str,
  on_error: OnError = OnError.RAISE,
  read: ReadDocument = read_document,
) -> Sequence[Document]:
  """Reads documents to be tagged: ids and labels may be missing.

  Args:
    source: a file of JSON lines, perhaps gzipped; '-' is standard input.
    on_error: what a faulty line does.
    read: reads a document from an object's fields.

  Returns:
    The documents by random access; one without an id is line-N of the source.

  Raises:
    DataError: the source cannot be read, has no documents, or has faults.
  """
  faults = Faults(on_error)
  try:
    with _open_source(source) as (file, name):
      documents = parse_documents(file, name, faults, read)
  except Fault as fault:
    raise DataError(f'{source}: {fault}') from fault
  faults.settle()
  return documents


@contextlib.contextmanager
def _open_source(source: str) -> Iterator[tuple[BinaryIO, str]]:
  if source == '-':
    yield sys.stdin.buffer, 'standard input'
    return
  with open_lines(pathlib.Path(source).expanduser()) as file:
    yield file, source


def parse_documents(
  file: BinaryIO,
  name: str,
  faults: Faults,
  read: ReadDocument = read_document,
) -> Sequence[Document]:
  """Reads documents to be tagged from an open file; notes the faulty lines."""
  before = faults.count
  split = Draft().begin('input')
  for number, row in parse_rows(file, name, faults):
    fields = Fields(row)
    document = read(fields, f'line-{number}', False)
    whats = split.document_faults(document.id, (), Descriptors())
    if faults.extend(name, number, fields.faults + whats):
      split.add(document.id, document.labels or (), plain_record(document))
  if not split.ids:
    faults.add_empty(name, 'document', before)
  return StoredDocuments(split.records, plain_document)


def read_jsonl(
  data: JsonlData, splits: Sequence[str] = (), usual: bool = True
) -> RawCorpus:
  """Reads a folder of JSON lines.

  Args:
    data: where, and what a faulty line does.
    splits: those that must be there.
    usual: whether train, dev and test are read as well, where they are there.

  Raises:
    DataError: no such folder, no split, one of splits is absent, or the files
      have faults: all of them, in one message.
  """
  folder = find_folder(data.dir)
  faults = Faults(data.on_error)
  files = find_files(folder)
  described = Descriptors()
  if LABELS in files:
    path = only_file(files.pop(LABELS), faults)
    described = read_descriptors(path, faults)
  draft = Draft(default_cache_dir(data))
  zones: dict[str, None] = {}
  for name in choose_splits(data.dir, files, splits, usual):
    path = only_file(files[name], faults)
    zones |= read_split(path, draft.begin(name), described, faults)
  faults.settle()
  return draft.corpus(data.dir, described.labels.values(), zones)


def read_split(
  path: pathlib.Path,
  split: SplitDraft,
  described: Descriptors,
  faults: Faults,
  read: ReadDocument = read_document,
  name_lines: bool = False,
) -> dict[str, None]:
  """Fills a split from a file of JSON lines; notes the faulty ones.

  Args:
    path: the file.
    split: what the documents are added to.
    described: the labels there are.
    faults: what is wrong is noted here.
    read: reads a document from an object's fields.
    name_lines: whether a document without an id is line-N.

  Returns:
    The names of its zones, as keys in order.
  """
  zones: dict[str, None] = {}
  before = faults.count
  for number, row in read_rows(path, faults):
    fields = Fields(row)
    document = read(fields, f'line-{number}' if name_lines else None, True)
    whats = split.document_faults(document.id, document.labels, described)
    if faults.extend(path, number, fields.faults + whats):
      zones.update(dict.fromkeys(document.zones))
      split.add(document.id, document.labels, plain_record(document))
  if not split.ids:
    faults.add_empty(path, 'document', before)
  return zones
