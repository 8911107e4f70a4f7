"""Shows the log of xjax, and warnings of other libraries, in the terminal."""

import logging as python_logging
import pathlib

from absl import logging

from xjax.core.progress import Progress

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


def show_log() -> None:
  """Prints absl's log, from level INFO, as plain lines on stderr.

  Libraries for checkpoints and data also use this log, with dozens of lines for
  each saved checkpoint. Only the warnings and errors of these libraries are
  shown.
  """
  handler = logging.get_absl_handler()
  handler.setFormatter(python_logging.Formatter('%(message)s'))
  handler.addFilter(_XjaxRecords())
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)
