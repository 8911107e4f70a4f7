"""What a person sees in the terminal: our own lines, not a library's."""

import logging as python_logging
import pathlib

from absl import logging

_PACKAGE = pathlib.Path(__file__).parents[1]


class _Ours(python_logging.Filter):
  """Passes xjax's own records, and everybody's warnings."""

  def filter(self, record: python_logging.LogRecord) -> bool:
    ours = pathlib.Path(record.pathname).is_relative_to(_PACKAGE)
    return ours or record.levelno >= python_logging.WARNING


def show_log() -> None:
  """Prints absl's log from INFO on as plain lines on stderr.

  Checkpointing and data libraries log through absl too, dozens of lines per
  save; of theirs only warnings are shown.
  """
  handler = logging.get_absl_handler()
  handler.setFormatter(python_logging.Formatter('%(message)s'))
  handler.addFilter(_Ours())
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)
