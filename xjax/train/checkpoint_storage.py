"""Lists and cleans the files of checkpoints; failing storage is one line.

If a file cannot be written, Orbax and TensorStore raise errors of many types,
and print the same errors as tracebacks of their threads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import functools
import json
import logging
import os
import pathlib
import re
import shutil
import sys
from typing import Any
import zlib

from xjax.core.atomic import writing
from xjax.core.errors import DataError

FILES = 'files.json'  # lists the files of a checkpoint, and is written last
_STEP = re.compile('0|[1-9][0-9]*')
_UNFINISHED = re.compile(r'[0-9]+\.orbax-checkpoint-tmp(-[0-9]+)?')
_ORBAX_FILES = '_CHECKPOINT_METADATA', 'commit_success.txt'

# TensorStore adds the number of the system's error to its messages.
_NUMBER = re.compile(r"os_error_code='([0-9]+)'")
_ORBAX = re.compile('[/ ]orbax/|OCDBT')  # in messages of Orbax's tasks
_CLOSED = 'Event loop is closed'
_SHOWN = 200  # characters of a message without such a number


def is_step(name: str) -> bool:
  """Returns whether a name is that of a checkpoint's folder."""
  return bool(_STEP.fullmatch(name))


def remove_unfinished(
  folder: pathlib.Path, last: str, items: Sequence[str]
) -> None:
  """Removes checkpoints that a killed run has not completed.

  Such a checkpoint lacks the file `last` and has only `items` and files of
  Orbax. Raises DataError if something else has the name of a checkpoint.
  """
  for path in sorted(folder.iterdir()):
    is_folder = path.is_dir() and not path.is_symlink()
    if is_step(path.name) and not (path / last).exists():
      own = {*items, *_ORBAX_FILES}
      if not is_folder or {p.name for p in path.iterdir()} - own:
        raise DataError(
          f'{path}: is no checkpoint of this run, but has the name of one; '
          'move it to another folder'
        )
    elif not is_folder or not _UNFINISHED.fullmatch(path.name):
      continue
    with writing(path):
      shutil.rmtree(path)


@contextlib.contextmanager
def saving(folder: pathlib.Path) -> Iterator[None]:
  """Turns errors of the storage in this context into a WriteError."""
  with writing(folder):
    try:
      yield
    except ValueError as error:
      # TensorStore raises no other type. Orbax also raises it for files that
      # have vanished.
      text = str(error)
      number = _NUMBER.search(text)
      why = os.strerror(int(number[1])) if number else text[:_SHOWN]
      raise OSError(why if folder.is_dir() else 'it was deleted') from error


@functools.cache
def hide_tracebacks() -> None:
  """Hides tracebacks of Orbax's threads and tasks from now on.

  Orbax raises the same errors in the main thread too. Some of its tasks print a
  traceback only when Python exits, so the tracebacks stay hidden.
  """
  for name in ('absl', 'asyncio'):
    logging.getLogger(name).addFilter(_is_shown)
  sys.unraisablehook = functools.partial(_show, sys.unraisablehook)


def _is_shown(record: logging.LogRecord) -> bool:
  source = f'{record.pathname} {record.getMessage()}'
  return not record.exc_info or not _ORBAX.search(source)


def _show(shown: Callable[[Any], object], error: Any) -> None:
  """Shows an error that nothing can catch, unless it is one of Orbax."""
  closed = error.object is None and str(error.exc_value) == _CLOSED
  if not closed and 'async_serialize' not in repr(error.object):
    shown(error)


def list_files(
  folder: pathlib.Path, items: Sequence[str]
) -> dict[str, list[int]]:
  """Returns the size in bytes and the CRC-32 of each file, by relative path."""
  return {
    path.relative_to(folder).as_posix(): size_and_crc(path)
    for item in items
    for path in sorted((folder / item).rglob('*'))
    if path.is_file()
  }


def size_and_crc(path: pathlib.Path) -> list[int]:
  """Returns the size in bytes and the CRC-32 of a file."""
  size, crc = 0, 0
  with path.open('rb') as file:
    while block := file.read(1 << 20):
      size, crc = size + len(block), zlib.crc32(block, crc)
  return [size, crc]


def first_fault(folder: pathlib.Path) -> str:
  """Returns the first fault of a checkpoint's files; '' if there is none."""
  if not folder.is_dir():
    return 'no such checkpoint'
  try:
    expected = json.loads((folder / FILES).read_text('utf-8'))
  except FileNotFoundError:
    return 'the checkpoint was never completed'
  except (OSError, ValueError, RecursionError):
    return f'{FILES} is damaged'
  if not isinstance(expected, dict) or not _lists_items(expected):
    return f'{FILES} is damaged'
  return _fault_of_files(folder, expected)


def _lists_items(listed: Mapping[str, Any]) -> bool:
  """Returns whether a list of files has what every checkpoint has.

  A copy for loading has no optimizer and no data.
  """
  items = {name.partition('/')[0] for name in listed}
  return items >= {'params', 'meta'}


def _fault_of_files(folder: pathlib.Path, listed: Mapping[str, Any]) -> str:
  """Returns the first fault of the files that files.json lists, or ''."""
  for name in sorted(listed):
    try:
      if size_and_crc(folder / name) != listed[name]:
        return f'{name} is damaged'
    except FileNotFoundError:
      return f'{name} is missing'
    except (OSError, ValueError):  # such as a name that is too long
      return f'{name!a:.100} cannot be read'
  return ''
