"""Keeps the record of the folder that a transfer writes.

The record is transfer.json. It says what is transferred, and has the digest of
each file that is complete. So a transfer that was killed goes on where it was.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
import contextlib
import dataclasses
import gzip
import os
import pathlib
from typing import Any

from absl import logging

from xjax.core.atomic import atomic_write, remove_temporaries, write_json
from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import locked
from xjax.data.files.file_set import file_digest, read_json

RECORD = 'transfer.json'
_ARGUMENTS, _CORPUS, _FILES = 'arguments', 'corpus', 'files'
_RESULT, _DIGEST = 'result', 'sha256'
_OTHER = 'use another --output, or remove the folder'


@dataclasses.dataclass(eq=False)
class TransferFolder:
  """Writes the files of a transfer, each at once or not at all."""

  path: pathlib.Path
  record: dict[str, Any]  # the content of transfer.json

  @classmethod
  @contextlib.contextmanager
  def opened(
    cls, path: str, arguments: Mapping[str, Any]
  ) -> 'Iterator[TransferFolder]':
    """Locks a new folder, or the folder of an earlier start.

    `arguments` are what decides the files, besides the corpus, as JSON values.

    Raises:
      ConfigError: the folder has other files, or files of a transfer with other
        arguments; or another process writes to it.
    """
    folder = pathlib.Path(os.path.expanduser(path)).absolute()
    if folder.exists() and not folder.is_dir():
      raise ConfigError(f'--output={path}: is a file; give a folder')
    with locked(folder):
      remove_temporaries(folder)
      record = {_ARGUMENTS: dict(arguments), _CORPUS: None, _FILES: {}}
      if (folder / RECORD).is_file():
        record = _same_record(folder / RECORD, record)
      elif names := _visible(folder):
        raise ConfigError(
          f'--output={path}: the folder has files that are not of a transfer, '
          f'such as {names[0]}; {_OTHER}'
        )
      yield cls(folder, record)

  def check_corpus(self, digest: str) -> None:
    if self.record[_CORPUS] not in (None, digest):
      raise DataError(
        f'{self.path}: has files of another corpus, or the corpus has changed '
        f'since an earlier start; {_OTHER}'
      )
    self.record[_CORPUS] = digest

  def start(self) -> None:
    """Writes the record first, so that files of a killed start are known."""
    if not self.record[_FILES]:
      self._save()

  def forget(self) -> None:
    """Records that no file is complete, so that all are written again."""
    self.record[_FILES] = {}
    self.record.pop(_RESULT, None)
    self._save()

  def has(self, name: str) -> bool:
    """Returns whether a file is complete and has not changed."""
    facts, path = self.facts(name), self.path / name
    if not facts or not path.is_file():
      return False
    if file_digest(path) != facts.get(_DIGEST):
      logging.warning('%s: has changed, so it is written again', path)
      return False
    return True

  def facts(self, name: str) -> dict[str, Any]:
    """Returns what the record says about a file; {} if it is not complete."""
    facts = self.record[_FILES].get(name)
    return facts if isinstance(facts, dict) else {}

  def write_lines(
    self,
    name: str,
    lines: Iterable[str],
    counts: Callable[[], Mapping[str, int]] = dict,
  ) -> None:
    """Writes lines of text in UTF-8, unless the file is complete already.

    If the name ends in .gz, the content is gzipped. `lines` have no line
    breaks, and are read only if the file is written. Afterwards, `counts`
    returns numbers about the file, which the record keeps.
    """
    path = self.path / name
    if self.has(name):
      logging.info('%s: is complete already', path)
      return
    self.start()
    with atomic_write(path, 'wb') as file:
      if path.suffix == '.gz':
        # Without the time and the name, equal contents give equal files.
        options = {'mode': 'wb', 'mtime': 0, 'filename': ''}
        with gzip.GzipFile(fileobj=file, **options) as packed:
          packed.writelines(f'{line}\n'.encode() for line in lines)
      else:
        file.writelines(f'{line}\n'.encode() for line in lines)
    self.note(name, counts())

  def note(self, name: str, counts: Mapping[str, int] | None = None) -> None:
    """Records that a file is complete, and numbers about the file."""
    digest = file_digest(self.path / name)
    self.record[_FILES][name] = {_DIGEST: digest, **(counts or {})}
    self._save()

  def finish(self, result: Mapping[str, Any]) -> None:
    self.record[_RESULT] = dict(result)
    self._save()

  def _save(self) -> None:
    write_json(self.path / RECORD, self.record)


def read_result(folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns the arguments and the facts of a complete transfer.

  Raises:
    DataError: there is no complete transfer, or a file has changed.
  """
  path = folder / RECORD
  if not path.is_file():
    raise DataError(
      f'{folder}: no transfer has made this corpus (no {RECORD}), so it has no '
      'original'
    )
  record = read_json(path)
  parts = record.get(_ARGUMENTS), record.get(_RESULT), record.get(_FILES)
  if not all(isinstance(part, dict) for part in parts):
    raise DataError(
      f'{path}: the transfer is not complete; start its command again'
    )
  arguments, result, files = parts
  written = TransferFolder(folder, record)
  for name in files:
    file, digest = folder / name, written.facts(name).get(_DIGEST)
    if not file.is_file() or file_digest(file) != digest:
      raise DataError(
        f'{file}: is not the file that the transfer wrote; transfer the corpus '
        'again'
      )
  return arguments, result


def _same_record(path: pathlib.Path, new: dict[str, Any]) -> dict[str, Any]:
  """Reads the record of an earlier start with the same arguments."""
  record, ours = read_json(path), new[_ARGUMENTS]
  theirs, files = record.get(_ARGUMENTS), record.get(_FILES)
  if not isinstance(theirs, dict) or not isinstance(files, dict):
    raise DataError(f'{path}: is damaged; {_OTHER}')
  for name in {**ours, **theirs}:
    if ours.get(name) != theirs.get(name):
      raise ConfigError(
        f'{path.parent}: was written with {name}={theirs.get(name)!r}, but now '
        f'it is {ours.get(name)!r}; {_OTHER}'
      )
  return {**new, **record}


def _visible(folder: pathlib.Path) -> list[str]:
  names = (path.name for path in folder.iterdir())
  return sorted(name for name in names if not name.startswith('.'))
