"""Finds the files of a corpus of one's own, and reads those that are texts."""

from collections.abc import Iterable, Iterator
import dataclasses
import io
import pathlib
import re

from xjax.core.errors import ConfigError, DataError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  check_rereadable,
  find_files,
  only_file,
)
from xjax.data.files.tables import encoding_of
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.formats.jsonl import LABELS
from xjax.data.formats.own.columns import SPLIT_NAMES, split_of
from xjax.data.schema import Document

_ENDINGS = 'jsonl|ndjson|json|csv|tsv|parquet'
_EXPECTED = (
  'a file or a folder of CSV, TSV, Parquet or JSON lines, such as train.csv, '
  'or a folder per label with text files, such as sport/1.txt'
)


@dataclasses.dataclass(frozen=True)
class Layout:
  """Says where the documents of a corpus are."""

  # Each split's file, or its folder of label folders.
  splits: dict[str, pathlib.Path]
  by_label: bool = False  # a folder of files per label
  # Whether the source says which documents are in which split. If not, train
  # has all documents.
  divided: bool = True
  labels: pathlib.Path | None = None  # descriptors, if any


def find_layout(source: str, faults: Faults) -> Layout:
  """Finds the documents of a corpus, in a file or a folder.

  A split with two files is a fault. A path without documents is a DataError.
  """
  if not source:
    raise ConfigError(
      'data.dir is not set: give your file or folder as '
      '--config.data.dir=FILE_OR_FOLDER'
    )
  path = pathlib.Path(source).expanduser()
  if not path.exists():
    raise DataError(f'{source}: no such file or folder (data.dir)')
  check_rereadable(path)
  if not path.is_dir():
    return Layout({TRAIN: path}, divided=False)
  files = find_files(path, _ENDINGS)
  labels = None
  if LABELS in files:
    labels = only_file(files.pop(LABELS), faults)
  if files:
    return _of_files(files, labels, faults)
  folders = label_folders(path)
  if not folders:
    raise DataError(f'{source}: no documents in it; expected {_EXPECTED}')
  splits = {_split_in(folder.name): folder for folder in folders}
  # Only if each folder is a split, its folders are the labels.
  if TRAIN in splits and '' not in splits and len(splits) == len(folders):
    if all(map(label_folders, folders)):
      return Layout(splits, by_label=True, labels=labels)
  return Layout({TRAIN: path}, by_label=True, divided=False, labels=labels)


def _of_files(
  files: dict[str, list[pathlib.Path]],
  labels: pathlib.Path | None,
  faults: Faults,
) -> Layout:
  if len(files) == 1 and not _split_in(*files):
    [paths] = files.values()
    only = only_file(paths, faults)
    return Layout({TRAIN: only}, divided=False, labels=labels)
  splits: dict[str, list[pathlib.Path]] = {}
  for stem, paths in files.items():
    splits.setdefault(SPLIT_NAMES.get(stem, stem), []).extend(paths)
  if TRAIN not in splits:  # names such as news_train.csv
    for stem, paths in files.items():
      if name := _split_in(stem):
        splits.setdefault(name, []).extend(paths)
  chosen = {name: only_file(paths, faults) for name, paths in splits.items()}
  return Layout(chosen, labels=labels)


def _split_in(name: str) -> str:
  """Returns the split that the last word of a name means; '' if it is none."""
  return split_of(re.split(r'[\W_]+', name)[-1])


def label_folders(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the folders in a folder that have documents, sorted by name."""
  inner = sorted(p for p in _entries(folder) if p.is_dir())
  return [path for path in inner if next(text_files(path), None)]


def text_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the text files below a folder, sorted by path.

  Their names end in .txt or have no ending. Hidden files and folders are left
  out. A broken link is kept, so that reading it is an error.
  """
  for path in sorted(_entries(folder), key=lambda p: p.name):
    if path.is_dir():
      if not path.is_symlink():  # a link may lead back to this folder
        yield from text_files(path)
    elif path.suffix.lower() in ('', '.txt'):
      if path.is_file() or not path.exists():
        yield path


def _entries(folder: pathlib.Path) -> Iterable[pathlib.Path]:
  try:
    return [p for p in folder.iterdir() if not p.name.startswith('.')]
  except OSError as error:
    raise DataError(f'{folder}: not a folder that can be read') from error


def read_label_folders(
  folder: pathlib.Path, faults: Faults
) -> Iterator[tuple[pathlib.Path, Document]]:
  """Yields the documents FOLDER/<label>/.../*.txt, with their files.

  The id of a document is its path in the folder. Faulty files are left out.
  """
  for inner in label_folders(folder):
    yield from _read(text_files(inner), folder, inner.name, faults)


def read_texts(
  folder: pathlib.Path, faults: Faults
) -> Iterator[tuple[pathlib.Path, Document]]:
  """Yields the text files below a folder as documents without labels."""
  yield from _read(text_files(folder), folder, None, faults)


def _read(
  paths: Iterator[pathlib.Path],
  folder: pathlib.Path,
  label: str | None,
  faults: Faults,
) -> Iterator[tuple[pathlib.Path, Document]]:
  for path in paths:
    try:
      text = _text(path)
    except Fault as fault:
      faults.add(path, fault.line, str(fault))
      continue
    fields = Fields({})
    document = Document(
      id=fields.as_id(path.relative_to(folder).as_posix(), 'the path'),
      zones={'text': text},
      labels=(fields.as_id(label, 'the label'),) if label else None,
    )
    if not text.strip():
      fields.faults.append('the document has no text')
    if faults.extend(path, 1, fields.faults):
      yield path, document


def _text(path: pathlib.Path) -> str:
  """Reads a text file, whose encoding its bytes tell."""
  try:
    data = path.read_bytes()
    return data.decode(encoding_of(io.BytesIO(data)))
  except OSError as error:
    raise Fault(f'cannot be read: {error.strerror}', None) from error
  except UnicodeDecodeError as error:
    raise Fault(f'the text is damaged: {error.reason}') from error
