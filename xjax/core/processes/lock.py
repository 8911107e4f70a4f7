"""Lets only one process at a time write to a folder."""

from collections.abc import Iterator
import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shlex
import socket
import sys
import time
from typing import Any

from absl import logging

from xjax.core.atomic import WriteError, writing
from xjax.core.errors import ConfigError

NAME = '.xjax.lock'
_WAIT = 10.0  # seconds; a process that was asked to stop may still be saving
_LOOK_EVERY = 0.2  # seconds between two tries to lock the file

# These errors say that a file system has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def locked(folder: str | os.PathLike, wait: float = _WAIT) -> Iterator[int]:
  """Locks a folder until the context is left, and makes the folder if absent.

  The context is the descriptor of the lock file. The operating system releases
  the lock when the process ends, however it ends, and all child processes that
  have got the descriptor. The lock file says who holds the lock. It is removed
  when the context is left, and so is a folder that was made here and is still
  empty. If another process holds the lock for `wait` seconds, a ConfigError
  says who. A WriteError says that the folder cannot be written, or was deleted
  or moved meanwhile.
  """
  folder = pathlib.Path(folder)
  path, made = folder / NAME, not folder.exists()
  try:
    with writing(path):
      lock = _lock(path, time.monotonic() + wait)
    try:
      yield lock
      if not _is_at(lock, path):
        raise WriteError(
          f'{folder}: was deleted or moved while this process wrote to it, so '
          'files are missing; start again'
        )
    finally:
      # The file goes before the lock, so that nobody can lock a file that is
      # about to go.
      if _is_at(lock, path):
        with contextlib.suppress(OSError):
          path.unlink()
      os.close(lock)
  finally:
    if made:
      with contextlib.suppress(OSError):  # a folder with files stays
        folder.rmdir()


def is_locked(folder: str | os.PathLike) -> bool:
  """Returns whether a process may be writing to a folder (see locked)."""
  # A process on another machine cannot be asked, so its file counts; that of a
  # killed process here does not. Nothing is written.
  try:
    lock = os.open(pathlib.Path(folder) / NAME, os.O_RDONLY | os.O_NOFOLLOW)
  except FileNotFoundError:
    return False
  except OSError:
    return True
  try:
    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return _lock_owner(lock).get('host') not in (None, socket.gethostname())
  except OSError:  # another process has locked it, or there are no locks
    return True
  finally:
    os.close(lock)


def _lock(path: pathlib.Path, until: float) -> int:
  """Makes, locks and fills a lock file in time; returns its descriptor."""
  waiting = False
  while True:
    try:
      path.parent.mkdir(parents=True, exist_ok=True)
      flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
      lock = os.open(path, flags, 0o666)
    except FileNotFoundError:
      # Another process has just removed the folder, which was empty.
      if time.monotonic() >= until:
        raise
      continue
    try:
      if _try_to_lock(lock, path) and _is_at(lock, path):
        os.ftruncate(lock, 0)
        os.write(lock, json.dumps(_this_process()).encode())
        return lock
      holder = _holder(lock)
    except BaseException:
      os.close(lock)
      raise
    os.close(lock)
    if time.monotonic() >= until:
      raise ConfigError(
        f'{path.parent}: another process is running here: {holder}. Wait '
        'until it ends, stop it, or choose another folder'
      )
    if not waiting:
      waiting = True
      logging.info('%s: waiting until it is free of %s', path.parent, holder)
    time.sleep(_LOOK_EVERY)


def _try_to_lock(lock: int, path: pathlib.Path) -> bool:
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:
    if error.errno not in _NO_LOCKS:
      raise
    logging.warning(
      '%s: this file system has no locks; take care that only one process at '
      'a time writes to this folder',
      path.parent,
    )
  return True


def _is_at(lock: int, path: pathlib.Path) -> bool:
  try:
    return os.path.samestat(os.fstat(lock), os.stat(path))
  except OSError:
    return False


def _this_process() -> dict[str, str | int]:
  return {
    'host': socket.gethostname(),
    'pid': os.getpid(),
    'since': time.strftime('%Y-%m-%d %H:%M:%S'),
    'command': f'{sys.argv[0]} {shlex.join(sys.argv[1:])}',
  }


def _holder(lock: int) -> str:
  try:
    text = 'process {pid} on {host}, since {since}: {command}'
    return text.format(**_lock_owner(lock))
  except KeyError:
    return 'an unknown process'  # the process has not written the file yet


def _lock_owner(lock: int) -> dict[str, Any]:
  try:
    owner = json.loads(os.pread(lock, 1 << 16, 0))
  except (ValueError, RecursionError):
    return {}
  return owner if isinstance(owner, dict) else {}
