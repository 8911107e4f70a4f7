"""Writes files that belong together as one set, and checks such a set.

A set has a mark, a JSON file in the same folder with the SHA-256 of each file.
If all files are as it says, the set is complete, and from one command.
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

FILES = 'files'  # the field of a mark with the digests
_AT_ONCE = 'another process wrote here at the same time; start again'


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
  mark: pathlib.Path, facts: Mapping[str, Any], kept: Collection[str] = ()
) -> Iterator[pathlib.Path]:
  """Replaces a set by the files that the `with` block writes.

  The block writes into a temporary folder; if it fails, the old set stays.
  Otherwise unchanged files that only the old set has are removed, except those
  of the names `kept`, then the new mark, with the `facts`, and then the new
  files replace the old ones. So if the
  process is killed, the set is complete, or a file is not as the mark says. The
  next writer removes what a killed one has left. A DataError says that another
  process has written the set at the same time.
  """
  folder = mark.parent
  remove_temporaries(folder, glob.escape(mark.name))
  with temporary_folder(mark) as new:
    try:
      yield new
      digests = {p.name: file_digest(p) for p in sorted(new.iterdir())}
      write_json(new / mark.name, {**facts, FILES: digests})
      with writing(folder):
        for path in _unlisted(mark, {*digests, *kept}):
          path.unlink()
        os.replace(new / mark.name, mark)
        try:
          for name in digests:
            os.replace(new / name, folder / name)
        except OSError:
          mark.unlink()
          raise
    except WriteError as error:
      # Users know the folder, but not the temporary folder.
      raise WriteError(str(error).replace(f'{new}', f'{folder}')) from error
  read_mark(mark, _AT_ONCE)


def check_unlisted(
  mark: pathlib.Path, names: Collection[str], owner: str, remedy: str
) -> None:
  """Raises a WriteError if a new set would replace a file from elsewhere."""
  # Such a file has one of the `names`, but is not listed in the mark.
  try:
    listed = _digests(read_json(mark), mark)
  except DataError:
    listed = {}
  for name in names:
    path = mark.parent / name
    if name not in listed and os.path.lexists(path):
      raise WriteError(f'{path}: is not a file of an earlier {owner}; {remedy}')


def read_mark(mark: pathlib.Path, remedy: str) -> dict[str, Any]:
  """Returns a mark's facts; a DataError with `remedy` if a file differs."""
  if not mark.is_file():
    raise DataError(
      f'{mark.parent}: is not complete, because {mark.name} is missing: the '
      f'command that writes this folder was interrupted; {remedy}'
    )
  facts = read_json(mark)
  for name, digest in _digests(facts, mark, f'; {remedy}').items():
    path = mark.parent / name
    if not path.is_file():
      raise DataError(f'{path}: is missing, but {mark} lists it; {remedy}')
    if file_digest(path) != digest:
      raise DataError(
        f'{path}: is not the file that was written with {mark}; {remedy}'
      )
  facts.pop(FILES)
  return facts


def _digests(
  facts: Mapping[str, Any], mark: pathlib.Path, remedy: str = ''
) -> dict[str, str]:
  digests = facts.get(FILES)
  if not isinstance(digests, dict) or not all(
    isinstance(digest, str) and pathlib.PurePath(name).name == name
    for name, digest in digests.items()
  ):
    raise DataError(
      f'{mark}: {FILES} must have the digest of each file{remedy}'
    )
  return digests


def _unlisted(mark: pathlib.Path, names: Collection[str]) -> list[pathlib.Path]:
  """Returns the unchanged files of a set that are not in `names`."""
  try:
    digests = _digests(read_json(mark), mark)
    old = {mark.parent / n: d for n, d in digests.items() if n not in names}
    return [p for p, d in old.items() if p.is_file() and file_digest(p) == d]
  except DataError:
    return []
