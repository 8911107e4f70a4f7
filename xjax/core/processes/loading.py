"""Makes commands load libraries, and end, in less time."""

import atexit
from collections.abc import Iterator
import contextlib
import gc
import sys

_is_command = False  # whether this process only runs a command of xjax


@contextlib.contextmanager
def loading_libraries() -> Iterator[None]:
  """Stops Python's searches for garbage while modules are imported.

  Modules stay in memory until the process ends, so a search costs time and
  frees little. In a command, later searches leave them out, too.
  """
  if not gc.isenabled():
    yield
    return
  gc.disable()
  try:
    yield
  finally:
    if _is_command:
      gc.freeze()
    gc.enable()


@contextlib.contextmanager
def hidden(library: str) -> Iterator[None]:
  """Makes Python believe that an optional library is not installed.

  A module that is imported meanwhile does not load the library. If the library
  is loaded already, this context does nothing.
  """
  if library in sys.modules:
    yield
    return
  sys.modules[library] = None  # Python's documented way to block an import
  try:
    yield
  finally:
    sys.modules.pop(library, None)


def start_command() -> None:
  """Makes Python search less for garbage in this process, and not at its end.

  By default, Python searches all modules when it ends. After a short command,
  this takes as long as the command itself. The system frees all memory anyway.
  """
  global _is_command
  _is_command = True
  atexit.register(gc.freeze)
