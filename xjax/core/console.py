"""Shows the log of xjax, and warnings of other libraries, in the terminal."""

from collections.abc import Iterator
import contextlib
import logging as python_logging
import pathlib

from absl import logging

from xjax.core.progress import hidden_progress

_PACKAGE = pathlib.Path(__file__).parents[1]


class _XjaxRecords(python_logging.Filter):
  """Passes all records of xjax, but only warnings and errors of other code."""

  def filter(self, record: python_logging.LogRecord) -> bool:
    from_xjax = pathlib.Path(record.pathname).is_relative_to(_PACKAGE)
    return from_xjax or record.levelno >= python_logging.WARNING


@contextlib.contextmanager
def log_in_context(verbose: bool) -> Iterator[None]:
  """Shows the log of xjax in this context, or only its warnings.

  The log is plain lines on stderr. But if the caller has set up handlers for
  logs, the log goes to these handlers.

  Args:
    verbose: whether the log and bars are shown, as in the command line.
  """
  logger, level = logging.get_absl_logger(), logging.get_verbosity()
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
    logging.set_verbosity(level)
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
