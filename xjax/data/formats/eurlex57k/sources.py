"""Finds the files of EURLEX57K: an archive, its folder, or JSON lines."""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import pathlib
from typing import Any
import zipfile

from xjax.core.errors import DAMAGE, DataError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  find_files,
  only_file,
  parse_object,
  read_rows,
)
from xjax.data.formats.corpus_builder import USUAL

CONCEPTS = 'eurovoc_en.json'
EXPECTED = (
  'expected the official archive datasets.zip, its files '
  'dataset/{train,dev,test}/*.json, or {train,dev,test}.jsonl[.gz]'
)

# Yields the file name, line number and object of each record of a split. The
# argument collects what is wrong with the records.
ReadRows = Callable[[Faults], Iterator[tuple[str, int, dict[str, Any]]]]


@dataclasses.dataclass(frozen=True)
class Source:
  """Holds the files of one copy of EURLEX57K, and readers of its splits."""

  splits: Mapping[str, ReadRows]
  files: tuple[pathlib.Path, ...]
  concepts: pathlib.Path | None

  def stamp(self) -> list[tuple[str, int, int]]:
    """Returns each file's name, size and time of the last change."""
    stats = [(str(path), path.stat()) for path in self.files]
    return [(name, s.st_size, s.st_mtime_ns) for name, s in stats]


def find_source(path: pathlib.Path, faults: Faults) -> Source:
  """Finds the copy of EURLEX57K at a path.

  The path is the archive, or a folder that contains the archive, the files of
  the archive, or JSON lines. A split with two files is a fault.
  """
  if path.is_file():
    return _archive(path, path.parent)
  files = find_files(path)
  if any(name in files for name in USUAL):
    splits = {n: only_file(files[n], faults) for n in USUAL if n in files}
    return _json_lines(path, splits)
  for folder in (path / 'dataset', path):
    if any((folder / name).is_dir() for name in USUAL):
      return _folder(folder, path)
  archives = sorted(path.glob('*.zip'))
  if len(archives) == 1:
    return _archive(archives[0], path)
  raise DataError(f'{path}: no EURLEX57K here; {EXPECTED}')


def _concepts(*folders: pathlib.Path) -> pathlib.Path | None:
  paths = (folder / CONCEPTS for folder in folders)
  return next((path for path in paths if path.is_file()), None)


def _source(
  splits: dict[str, ReadRows],
  files: list[pathlib.Path],
  concepts: pathlib.Path | None,
) -> Source:
  """Makes a source; its files include the file of descriptors, if any."""
  return Source(splits, (*files, *([concepts] if concepts else [])), concepts)


def _json_lines(
  folder: pathlib.Path, files: Mapping[str, pathlib.Path]
) -> Source:
  def read(path: pathlib.Path) -> ReadRows:
    return lambda faults: (
      (str(path), line, row) for line, row in read_rows(path, faults)
    )

  return _source(
    {name: read(path) for name, path in files.items()},
    list(files.values()),
    _concepts(folder),
  )


def _folder(folder: pathlib.Path, top: pathlib.Path) -> Source:
  """Makes the source of the unpacked archive; the user gave `top`."""

  def read(paths: list[pathlib.Path]) -> ReadRows:
    return lambda faults: _read_each(
      ((str(path), path.read_bytes) for path in paths), faults
    )

  splits = {
    name: sorted(
      path
      for path in (folder / name).glob('*.json')
      if not path.name.startswith('.')
    )
    for name in USUAL
    if (folder / name).is_dir()
  }
  return _source(
    {name: read(paths) for name, paths in splits.items()},
    [path for paths in splits.values() for path in paths],
    _concepts(folder, top, top.parent),
  )


def _archive(path: pathlib.Path, folder: pathlib.Path) -> Source:
  """Makes the source of a zip archive; `folder` may contain the concepts."""
  try:
    with zipfile.ZipFile(path) as archive:
      members = [pathlib.PurePosixPath(name) for name in archive.namelist()]
  except DAMAGE as error:
    message = f'not a zip archive: {str(error)[:80]}'
    raise DataError(f'{path}: {message}') from error
  splits: dict[str, list[str]] = {}
  for member in sorted(members):
    # macOS adds files __MACOSX/.../._name, which are not documents.
    hidden = any(part.startswith(('.', '__MACOSX')) for part in member.parts)
    if member.suffix == '.json' and not hidden and len(member.parts) >= 2:
      splits.setdefault(member.parts[-2], []).append(str(member))
  splits = {name: splits[name] for name in USUAL if name in splits}
  if not splits:
    raise DataError(f'{path}: no documents of EURLEX57K in it; {EXPECTED}')

  def read(names: list[str]) -> ReadRows:
    return lambda faults: _read_members(path, names, faults)

  return _source(
    {name: read(names) for name, names in splits.items()},
    [path],
    _concepts(folder),
  )


def _read_members(
  path: pathlib.Path, names: list[str], faults: Faults
) -> Iterator[tuple[str, int, dict[str, Any]]]:
  with zipfile.ZipFile(path) as archive:
    yield from _read_each(
      (
        (f'{path}/{name}', lambda name=name: archive.read(name))
        for name in names
      ),
      faults,
    )


def _read_each(
  files: Iterator[tuple[str, Callable[[], bytes]]], faults: Faults
) -> Iterator[tuple[str, int, dict[str, Any]]]:
  """Yields the name, the line number 1 and the JSON object of each file."""
  for name, read in files:
    try:
      row = parse_object(read())
    except Fault as fault:
      faults.add(name, fault.line, str(fault))
    except DAMAGE as error:
      # The fault is fatal, because the file may be one of many that are lost.
      # The message is cut, since zipfile quotes the damaged bytes.
      message = f'cannot be read: {str(error)[:80]}'
      faults.add(name, None, message, fatal=True)
    else:
      yield name, 1, row
