"""Lets signals stop a command even while Python collects garbage or logs.

Python prints and ignores an exception that is raised in a destructor, in a
callback of the garbage collector or of a weak reference. JAX has such
callbacks. So a signal that comes at this moment would be lost.
"""

from collections.abc import Iterator
import contextlib
import logging
import os
import signal
import sys
import threading
import types

from xjax.core.errors import Interrupted, Preempted

# Exceptions that signals raise -> number of the signal.
_NUMBERS = {
  Interrupted: signal.SIGINT,
  KeyboardInterrupt: signal.SIGINT,
  Preempted: signal.SIGTERM,
}
_LATER = 0.05  # seconds
_LOGGING = logging.Handler.handle.__code__.co_filename


@contextlib.contextmanager
def hearing_ignored() -> Iterator[None]:
  """Sends a signal again if Python ignored the exception that it raised."""
  before = sys.unraisablehook

  def hook(ignored: 'sys.UnraisableHookArgs') -> None:
    number = _NUMBERS.get(ignored.exc_type)
    if number is None:
      before(ignored)
    else:
      _send_later(number)

  sys.unraisablehook = hook
  try:
    yield
  finally:
    sys.unraisablehook = before


def sends_again(number: int, frame: types.FrameType | None) -> bool:
  """Sends a signal again a little later if a message is being logged.

  Logging would print the error that the signal raises, and ignore it.

  Args:
    number: number of the signal.
    frame: the frame in which the signal's handler was called.

  Returns:
    Whether the signal is sent again. The handler must then not raise.
  """
  while frame and not _handles_message(frame):
    frame = frame.f_back
  if frame is None:
    return False
  _send_later(number)
  return True


def _handles_message(frame: types.FrameType) -> bool:
  """Returns whether the frame is logging's call of a function `emit`."""
  caller = frame.f_back
  is_logging = caller and caller.f_code.co_filename == _LOGGING
  return bool(frame.f_code.co_name == 'emit' and is_logging)


def _send_later(number: int) -> None:
  timer = threading.Timer(_LATER, os.kill, (os.getpid(), number))
  timer.daemon = True
  timer.start()


@contextlib.contextmanager
def hearing_ctrl_c() -> Iterator[None]:
  """Makes sure that Ctrl-C raises KeyboardInterrupt, also where it is ignored.

  If Ctrl-C has another handler already, or this is not the main thread, the
  function changes nothing.
  """
  is_main = threading.current_thread() is threading.main_thread()
  handler = signal.getsignal(signal.SIGINT)
  if is_main and handler is signal.default_int_handler:
    with hearing_ignored():
      yield
  else:
    yield
