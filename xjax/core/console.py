"""Shows the log in the terminal, and says how the user calls xjax."""

from collections.abc import Iterator
import contextlib
import logging as python_logging
import pathlib
import shlex
import shutil
import sys

from absl import logging

from xjax.core.errors import printable
from xjax.core.progress import (
  Progress,
  hidden_progress,
)

_PACKAGE = pathlib.Path(__file__).parents[1]


class _XjaxRecords(python_logging.Filter):
  """Passes all records of xjax, but only warnings and errors of other code.

  A line of progress is due only after ten seconds without such a record.
  """

  def filter(self, record: python_logging.LogRecord) -> bool:
    from_xjax = pathlib.Path(record.pathname).is_relative_to(_PACKAGE)
    is_shown = from_xjax or record.levelno >= python_logging.WARNING
    if is_shown:
      Progress.note_line()
    return is_shown


@contextlib.contextmanager
def log_in_context(verbose: bool) -> Iterator[None]:
  """Shows the log of xjax in this context, or only its warnings.

  If the caller has handlers for logs, the log goes to these handlers, not to
  stderr.

  Args:
    verbose: whether the log and bars are shown, as in the command line.
  """
  root, handler = python_logging.getLogger(), logging.get_absl_handler()
  level, formatter, own = logging.get_verbosity(), handler.formatter, None
  if not root.handlers:
    own = _XjaxRecords()
    handler.addFilter(own)
    handler.setFormatter(python_logging.Formatter('%(message)s'))
    root.addHandler(handler)
  logging.set_verbosity(logging.INFO if verbose else logging.WARNING)
  try:
    with contextlib.nullcontext() if verbose else hidden_progress():
      yield
  finally:
    logging.set_verbosity(level)
    if own is not None:
      root.removeHandler(handler)
      handler.removeFilter(own)
      handler.setFormatter(formatter)


class _PrintableLines(python_logging.Formatter):
  """Escapes control characters in records."""

  def format(self, record: python_logging.LogRecord) -> str:
    return printable(super().format(record))


def show(text: str) -> None:
  """Prints a text on stdout, with its control characters escaped."""
  print(printable(text))


def show_log() -> None:
  """Prints absl's log, from level INFO, as plain lines on stderr.

  Libraries for checkpoints and data also use this log, with dozens of lines for
  each saved checkpoint. Only the warnings and errors of these libraries are
  shown.
  """
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
