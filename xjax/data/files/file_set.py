"""Writes files that belong together as one set, and checks such a set.

A set has a mark, which is a JSON file in the same folder. The mark lists the
files of the set. While they are replaced, the mark says that it is unfinished.
"""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import glob
import hashlib
import os
import pathlib
from typing import Any

from xjax.core.atomic import (
  WriteError,
  remove_temporaries,
  temporary_folder,
  write_json,
  writing,
)
from xjax.core.errors import DataError
from xjax.data.files.json_lines import parse_object

_FILES, _UNFINISHED = 'files', 'unfinished'  # fields of a mark


def file_digest(path: str | os.PathLike) -> str:
  """Returns the SHA-256 of a file's content, as hexadecimal digits."""
  try:
    with open(path, 'rb') as file:
      return hashlib.file_digest(file, 'sha256').hexdigest()
  except OSError as error:
    raise DataError(f'{path}: cannot be read: {error.strerror}') from error


def read_json(path: str | os.PathLike) -> dict[str, Any]:
  """Reads a JSON object; an absent or damaged file is a DataError."""
  try:
    return parse_object(pathlib.Path(path).read_bytes())
  except (OSError, ValueError) as error:
    raise DataError(f'{path}: cannot be read: {error}') from error


@contextlib.contextmanager
def writing_set(
  mark: pathlib.Path, facts: Mapping[str, Any]
) -> Iterator[pathlib.Path]:
  """Replaces a set by the files that the `with` block writes.

  The block writes into a temporary folder; if it fails, the old set stays.
  Otherwise the files of the old set are removed or replaced, and the new mark
  gets the `facts`. If the process is killed in between, readers refuse the set.
  The next writer removes what a killed one has left.
  """
  folder = mark.parent
  remove_temporaries(folder, glob.escape(mark.name))
  with temporary_folder(mark) as new:
    try:
      yield new
      names = sorted(path.name for path in new.iterdir())
      write_json(new / mark.name, {**facts, _FILES: names})
      with writing(folder):
        old = _listed(mark)
        listed = sorted(old.union(names))
        write_json(mark, {_UNFINISHED: True, _FILES: listed})
        for name in old.difference(names):
          (folder / name).unlink(missing_ok=True)
        for name in names:
          os.replace(new / name, folder / name)
        os.replace(new / mark.name, mark)
    except WriteError as error:
      # Users know the folder, but not the temporary folder.
      raise WriteError(str(error).replace(f'{new}', f'{folder}')) from error


def check_unlisted(
  mark: pathlib.Path, names: Collection[str], owner: str, remedy: str
) -> None:
  """Raises a WriteError if a new set would replace a file from elsewhere."""
  # Such a file has one of the `names`, but is not listed in the mark.
  for name in set(names) - _listed(mark):
    path = mark.parent / name
    if os.path.lexists(path):
      raise WriteError(f'{path}: is not a file of an earlier {owner}; {remedy}')


def read_mark(mark: pathlib.Path, remedy: str) -> dict[str, Any]:
  """Returns a mark's facts; a DataError if the set lacks it, or a file."""
  facts = read_json(mark) if mark.is_file() else {_UNFINISHED: True}
  if facts.get(_UNFINISHED):
    raise DataError(
      f'{mark.parent}: is not complete, because {mark.name} is missing or '
      'unfinished: the command that writes this folder was interrupted; '
      f'{remedy}'
    )
  for name in _names(facts):
    if not (mark.parent / name).is_file():
      raise DataError(
        f'{mark.parent / name}: is missing, but {mark} lists it; {remedy}'
      )
  return {name: fact for name, fact in facts.items() if name != _FILES}


def _listed(mark: pathlib.Path) -> set[str]:
  """Returns the names in a mark; none if it is missing or damaged."""
  try:
    return _names(read_json(mark))
  except DataError:
    return set()


def _names(facts: Mapping[str, Any]) -> set[str]:
  # A name with a folder could be that of a file outside the set.
  names = facts.get(_FILES, ())
  return {name for name in names if pathlib.PurePath(name).name == name}
