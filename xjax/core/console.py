"""Shows the log of xjax, and warnings of other libraries, in the terminal."""

import logging as python_logging
import pathlib

from absl import logging

from xjax.core.errors import printable

_PACKAGE = pathlib.Path(__file__).parents[1]


class _XjaxRecords(python_logging.Filter):
  """Passes all records of xjax, but only warnings and errors of other code."""

  def filter(self, record: python_logging.LogRecord) -> bool:
    from_xjax = pathlib.Path(record.pathname).is_relative_to(_PACKAGE)
    return from_xjax or record.levelno >= python_logging.WARNING


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
