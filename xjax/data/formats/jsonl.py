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

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import dataclasses
import os
import pathlib
import sys
from typing import Any, BinaryIO

from xjax.core.errors import DataError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  find_files,
  find_folder,
  only_file,
  open_lines,
  read_rows,
  unpack,
)
from xjax.data.formats.corpus_builder import (
  CorpusBuilder,
  Record,
  SourceCorpus,
  choose_splits,
)
from xjax.data.formats.data_config import (
  DataConfig,
  ReadDocument,
  read_document,
)
from xjax.data.formats.descriptors import read_descriptors
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
  rows = read_rows(file, faults, name, documents=True)
  records = _records(rows, name, read, name_lines=True, need_labels=False)
  return CorpusBuilder(faults=faults).read('input', name, records).documents


def read_jsonl(
  data: JsonlData, splits: Sequence[str] = (), usual: bool = True
) -> SourceCorpus:
  """Reads a folder of JSON lines."""
  folder = find_folder(data.dir)
  builder = CorpusBuilder(default_cache_dir(data), Faults(data.on_error))
  _check_form(folder)
  files = find_files(folder)
  if LABELS in files:
    path = only_file(files.pop(LABELS), builder.faults)
    builder.described = read_descriptors(path, builder.faults)
  for name in choose_splits(data.dir, files, splits, usual):
    read_split(builder, name, files[name])
  return builder.corpus(data.dir, builder.faults.settle())


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
  builder: CorpusBuilder,
  name: str,
  paths: Sequence[pathlib.Path],
  read: ReadDocument = read_document,
  name_lines: bool = False,
) -> None:
  """Reads a split from its only file of JSON lines.

  With name_lines, a document without an id gets the id line-N, where N is its
  line number. Otherwise a missing id is a fault.
  """
  path = only_file(paths, builder.faults)
  rows = read_rows(path, builder.faults, documents=True)
  builder.read(name, path, _records(rows, path, read, name_lines))


def _records(
  rows: Iterable[tuple[int, dict[str, Any]]],
  file: str | os.PathLike,
  read: ReadDocument,
  name_lines: bool,
  need_labels: bool = True,
) -> Iterator[Record]:
  for number, row in rows:
    fields = Fields(row)
    default_id = f'line-{number}' if name_lines else None
    document = read(fields, default_id, need_labels)
    yield file, number, document, fields.faults
