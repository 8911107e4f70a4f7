"""Reads your own text from {split}.jsonl[.gz] and labels.jsonl[.gz].

Each line is a JSON object:

- A document is {"id", "text" or "zones": {name: text}, "labels": [ids]}.
- A label is {"id", "name", "alt": [...], "parents": [ids], "description"}. Only
  the id is required.

Other fields are ignored. The file labels.jsonl is optional. Without this file,
a label's id is its name. With this file, all labels of documents must be in the
file. The usual splits are train, dev and test. Any other split is read only if
it is requested.
"""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import pathlib
import sys
from typing import BinaryIO

from xjax.core.errors import DataError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  find_files,
  find_folder,
  only_file,
  open_lines,
  parse_rows,
  read_rows,
  unpack,
)
from xjax.data.formats.corpus_builder import (
  CorpusBuilder,
  SourceCorpus,
  SplitBuilder,
  StoredDocuments,
  choose_splits,
  plain_document,
  plain_record,
)
from xjax.data.formats.data_config import (
  DataConfig,
  ReadDocument,
  read_document,
)
from xjax.data.formats.descriptors import Descriptors, read_descriptors
from xjax.data.schema import Document
from xjax.data.text.token_cache import default_cache_dir


@dataclasses.dataclass
class JsonlData(DataConfig):
  """Configures a corpus of your own text in {split}.jsonl and labels.jsonl."""

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    return read_jsonl(self, splits, usual)


STREAM = '-'  # standard input
LABELS = 'labels'  # the file of labels; no split can have this name


@contextlib.contextmanager
def open_source(source: str) -> Iterator[tuple[BinaryIO, str]]:
  """Opens a file or standard input; yields the open file and its name."""
  if source == STREAM:
    if sys.stdin is None:
      raise DataError('standard input is closed; give a file')
    yield unpack(sys.stdin.buffer), 'standard input'
    return
  with contextlib.ExitStack() as stack:
    try:
      path = pathlib.Path(source).expanduser()
      file = stack.enter_context(open_lines(path))
    except Fault as fault:
      raise DataError(f'{source}: {fault}') from fault
    yield file, source


def parse_documents(
  file: BinaryIO,
  name: str,
  faults: Faults,
  read: ReadDocument = read_document,
) -> Sequence[Document]:
  """Reads documents to be tagged from an open file of JSON lines."""
  before = faults.count
  split = CorpusBuilder().begin('input')
  for number, row in parse_rows(file, name, faults, documents=True):
    fields = Fields(row)
    document = read(fields, f'line-{number}', False)
    messages = split.document_faults(document.id, (), Descriptors())
    if faults.extend(name, number, fields.faults + messages):
      split.add(document.id, document.labels or (), plain_record(document))
  if not split.ids:
    faults.add_empty(name, 'document', before)
  return StoredDocuments(split.records, plain_document)


def read_jsonl(
  data: JsonlData, splits: Sequence[str] = (), usual: bool = True
) -> SourceCorpus:
  """Reads a folder of JSON lines."""
  folder = find_folder(data.dir)
  faults = Faults(data.on_error)
  _check_form(folder)
  files = find_files(folder)
  described = Descriptors()
  if LABELS in files:
    path = only_file(files.pop(LABELS), faults)
    described = read_descriptors(path, faults)
  draft = CorpusBuilder(default_cache_dir(data))
  zones: dict[str, None] = {}
  for name in choose_splits(data.dir, files, splits, usual):
    path = only_file(files[name], faults)
    zones |= read_split(path, draft.begin(name), described, faults)
  left_out = faults.settle()
  raw = draft.corpus(data.dir, described.labels.values(), zones)
  return dataclasses.replace(raw, left_out=left_out)


def _check_form(folder: pathlib.Path) -> None:
  """Checks that data.dir is a folder of JSON lines, not of tables."""
  hint = '; --config=own_linear reads files, tables and text files'
  if folder.is_file():
    raise DataError(f'{folder}: is a file, not a folder of JSON lines{hint}')
  tables = find_files(folder, 'csv|tsv|parquet')
  if tables and not find_files(folder).keys() - {LABELS}:
    names = ', '.join(path.name for paths in tables.values() for path in paths)
    raise DataError(f'{folder}: has tables ({names}), no JSON lines{hint}')


def read_split(
  path: pathlib.Path,
  split: SplitBuilder,
  described: Descriptors,
  faults: Faults,
  read: ReadDocument = read_document,
  name_lines: bool = False,
) -> dict[str, None]:
  """Adds the documents in a file of JSON lines to a split.

  Returns the names of the zones, as keys, in order of first use. With
  name_lines, a document without an id gets the id line-N, where N is its line
  number. Otherwise a missing id is a fault.
  """
  zones: dict[str, None] = {}
  before = faults.count
  for number, row in read_rows(path, faults, documents=True):
    fields = Fields(row)
    document = read(fields, f'line-{number}' if name_lines else None, True)
    messages = split.document_faults(document.id, document.labels, described)
    if faults.extend(path, number, fields.faults + messages):
      zones.update(dict.fromkeys(document.zones))
      split.add(document.id, document.labels, plain_record(document))
  if not split.ids:
    faults.add_empty(path, 'document', before)
  return zones
