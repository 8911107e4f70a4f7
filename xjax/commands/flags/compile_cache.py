"""Keeps compiled programs in a folder, so that they are compiled only once."""

from collections.abc import Iterator
import contextlib
import glob
import hashlib
import os
import pathlib
import platform
import re
import sys
from typing import Any
import warnings

from absl import flags

from xjax.core.errors import ConfigError

TITLE = 'Compiled programs'

_MOST = 1 << 30  # bytes of all programs
_ENTRY = re.compile(r'.+-[0-9a-f]{64}-cache')
_FAULT = re.compile(
  r"Error (?:reading|writing) persistent compilation cache entry for '(.+?)'"
)


def define() -> None:
  """Defines --compile_cache."""
  flags.DEFINE_string(
    'compile_cache',
    None,
    'Folder for compiled programs, which the next start reads instead of '
    "compiling them (default: 'programs' in $XJAX_CACHE_DIR or ~/.cache/xjax; "
    "--compile_cache='' keeps none).",
  )


@contextlib.contextmanager
def keeping_programs() -> Iterator[None]:
  """Lets JAX read and write compiled programs, as --compile_cache says.

  JAX_COMPILATION_CACHE_DIR goes before the default folder. Connected processes
  keep programs only in a folder that the user gives: only process 0 writes
  programs, and the others would have to see them.
  """
  folder = None
  if 'compile_cache' in flags.FLAGS:
    given = flags.FLAGS.compile_cache
    connected = 'multihost' in flags.FLAGS and flags.FLAGS.multihost
    if given == '':
      _configure('enable_compilation_cache', False)
    elif given or not (connected or 'JAX_COMPILATION_CACHE_DIR' in os.environ):
      folder = _folder(given)
  with _using(folder) if folder else contextlib.nullcontext():
    yield


def _folder(given: str | None) -> pathlib.Path | None:
  from xjax.data.formats.data_config import user_cache_dir

  try:
    folder = pathlib.Path(given or user_cache_dir() / 'programs').expanduser()
    folder.mkdir(0o700, parents=True, exist_ok=True)
    if given is None:
      # Whoever can write here can make this user's JAX run anything.
      folder.chmod(0o700)
  except (OSError, RuntimeError) as error:  # such as: there is no home
    if given:
      raise ConfigError(f'--compile_cache={given}: {error}') from error
    return None
  return folder


@contextlib.contextmanager
def _using(whole: pathlib.Path) -> Iterator[None]:
  # A program has instructions of the processor that compiled it. Homes are
  # shared by machines with other processors.
  folder = whole / _processor()
  _configure('compilation_cache_dir', str(folder))
  # By default, JAX keeps only programs that took a second to compile.
  if 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS' not in os.environ:
    _configure('persistent_cache_min_compile_time_secs', 0)
  shown = warnings.showwarning

  def show(message: Warning | str, *rest: Any, **named: Any) -> None:
    if match := _FAULT.match(str(message)):
      _remove(folder.glob(f'{glob.escape(match[1])}-*'))
    else:
      shown(message, *rest, **named)

  # JAX writes an entry in place and never again. A process that is killed
  # leaves half an entry, which JAX reports at every start. Once it is removed,
  # JAX writes what it has compiled instead.
  warnings.showwarning = show
  try:
    yield
  finally:
    warnings.showwarning = shown
    remove_oldest(whole)


def _configure(name: str, value: Any) -> None:
  """Sets an option of JAX, without loading JAX for commands that need none."""
  if 'jax' in sys.modules:
    sys.modules['jax'].config.update(f'jax_{name}', value)
  else:
    os.environ[f'JAX_{name.upper()}'] = str(value)


def _processor() -> str:
  """Returns a short name for the instructions of this processor."""
  text = platform.machine()
  with contextlib.suppress(OSError):
    info = pathlib.Path('/proc/cpuinfo').read_text()
    text += ''.join(re.findall(r'^(?:flags|Features)\s*:.*', info, re.M)[:1])
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def remove_oldest(whole: pathlib.Path) -> None:
  """Removes the programs that were not used for longest, if all are too many.

  JAX can do this itself, but it looks at all programs for each that it writes,
  and a process that is killed then keeps a lock from all others.
  """
  found = []
  for path in whole.glob('[0-9a-f]' * 16 + '/*-cache'):
    with contextlib.suppress(OSError):  # another process removes entries too
      facts = path.stat()
      if _ENTRY.fullmatch(path.name):
        found.append((facts.st_atime, facts.st_size, path))
  total = sum(size for _, size, _ in found)
  for _, size, path in sorted(found):
    if total <= _MOST:
      break
    _remove([path])
    total -= size


def _remove(paths: Iterator[pathlib.Path] | list[pathlib.Path]) -> None:
  for path in paths:
    with contextlib.suppress(OSError):
      path.unlink()
