"""Shows the log and output of commands, and handles signals."""

import atexit
from collections.abc import Callable, Iterator
import contextlib
import errno
import gc
import logging as python_logging
import os
import pathlib
import shlex
import shutil
import signal
import sys
import types

from absl import logging

from xjax.core.atomic import WriteError
from xjax.core.errors import printable
from xjax.core.progress import Progress, hidden_progress

_CANNOT_WRITE = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO
_PACKAGE = pathlib.Path(__file__).parents[1]


class _XjaxRecords(python_logging.Filter):
  """Passes all records of xjax, but only warnings and errors of other code."""

  def filter(self, record: python_logging.LogRecord) -> bool:
    from_xjax = pathlib.Path(record.pathname).is_relative_to(_PACKAGE)
    is_shown = from_xjax or record.levelno >= python_logging.WARNING
    if is_shown:
      Progress.note_line()
    return is_shown


@contextlib.contextmanager
def log_in_context(verbose: bool) -> Iterator[None]:
  """Shows the log and bars of xjax in this context, or only its warnings."""
  # Handlers that the caller has set up get the log; else stderr does.
  logger, verbosity = logging.get_absl_logger(), logging.get_verbosity()
  level = logger.level  # set_verbosity changes both
  plain = all(map(_is_default, python_logging.getLogger().handlers))
  handler = python_logging.StreamHandler()
  handler.setFormatter(python_logging.Formatter('%(message)s'))
  handler.addFilter(_XjaxRecords())
  if plain:
    logger.addHandler(handler)
    logger.propagate = False
  logging.set_verbosity(logging.INFO if verbose else logging.WARNING)
  try:
    with contextlib.nullcontext() if verbose else hidden_progress():
      yield
  finally:
    logging.set_verbosity(verbosity)
    logger.setLevel(level)
    if plain:
      logger.propagate = True
      logger.removeHandler(handler)


def _is_default(handler: python_logging.Handler) -> bool:
  """Returns whether a handler is absl's, or one that libraries set up."""
  if handler is logging.get_absl_handler():
    return True
  form = handler.formatter
  plain = type(handler) is python_logging.StreamHandler
  return plain and getattr(form, '_fmt', None) == python_logging.BASIC_FORMAT


class _PrintableLines(python_logging.Formatter):
  def format(self, record: python_logging.LogRecord) -> str:
    return printable(super().format(record))


def show(text: str) -> None:
  """Prints a text on stdout, with its control characters escaped."""
  print(printable(text))
  Progress.note_line()


def show_log() -> None:
  """Prints absl's log, from level INFO, as plain lines on stderr."""
  # Of libraries, only warnings: they log dozens of lines per checkpoint.
  handler = logging.get_absl_handler()
  handler.setFormatter(_PrintableLines('%(message)s'))
  handler.addFilter(_XjaxRecords())
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)


def command_words() -> str:
  """Returns `xjax`, or words for the shell that start this Python's xjax."""
  command = shutil.which('xjax')
  own = pathlib.Path(sys.executable).with_name('xjax')
  if command and pathlib.Path(command) == own:
    return 'xjax'
  return f'{shlex.quote(sys.executable)} -m xjax'


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
  """Lets this context print any text, and notices if it cannot be written.

  Standard output is UTF-8, whatever the locale: other programs read it. On
  standard error, a character that the terminal's encoding lacks is an escape.
  If the reader of standard output has closed it, as `head` does, the context
  ends without an error. Another failure, such as a full disk, is a WriteError.
  """
  # A command may be started with closed streams.
  sys.stdout = sys.stdout or open(os.devnull, 'w')
  sys.stderr = sys.stderr or open(os.devnull, 'w')
  for stream, encoding in ((sys.stdout, 'utf-8'), (sys.stderr, None)):
    if hasattr(stream, 'reconfigure'):
      stream.reconfigure(encoding=encoding, errors='backslashreplace')
  try:
    yield
    sys.stdout.flush()
  except BrokenPipeError:
    _drop_output()
  except WriteError:
    raise
  except OSError as error:
    # Errors of files have names, or are WriteErrors.
    if error.filename is not None or error.errno not in _CANNOT_WRITE:
      raise
    _drop_output()
    raise WriteError(
      f'standard output: cannot be written: {error.strerror}'
    ) from error


def _drop_output() -> None:
  # At exit, Python writes the rest, and would fail again.
  with contextlib.suppress(OSError):  # a stream without a file
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def start_command() -> None:
  """Makes Python search less for garbage, and not at its end."""
  # Most of what imports create stays in memory, so searches find little. At the
  # end, a search takes as long as a short command itself, and the system frees
  # all memory anyway.
  gc.set_threshold(50_000)
  atexit.register(gc.freeze)


@contextlib.contextmanager
def handling(
  number: int, handler: Callable[[int, types.FrameType | None], None]
) -> Iterator[None]:
  """Gives a signal another handler; only the main thread can do this."""
  before = signal.signal(number, handler)
  try:
    yield
  finally:
    # Python returns None for a handler that Python did not install, such as
    # JAX's.
    signal.signal(number, signal.SIG_DFL if before is None else before)
