"""Lets signals stop a command even while Python collects garbage or logs.

Python prints and ignores an exception that is raised in a destructor, in a
callback of the garbage collector, or while a message is logged. JAX has such a
callback. So a signal that comes at this moment would be lost.
"""

from collections.abc import Iterator
import contextlib
import logging
import os
import signal
import threading
import time
import types

# Functions whose exceptions are ignored.
_IGNORED = '_xla_gc_callback', '__del__'
_LATER = 0.05  # seconds
# A signal is not sent again for longer, because such a function may take long.
_LONGEST = 2.0  # seconds
_LOGGING = logging.Handler.handle.__code__.co_filename
_since: dict[int, float] = {}  # number of a signal -> when it came first


def sends_again(number: int, frame: types.FrameType | None) -> bool:
  """Sends a signal again a little later if an exception would be ignored now.

  Args:
    number: number of the signal.
    frame: the frame in which the signal's handler was called.

  Returns:
    Whether the signal is sent again. The handler must then not raise. After 2
    seconds of sending it again, it is False.
  """
  while frame and not _ignores(frame):
    frame = frame.f_back
  now = time.monotonic()
  if frame is None or now - _since.setdefault(number, now) > _LONGEST:
    _since.pop(number, None)
    return False
  timer = threading.Timer(_LATER, os.kill, (os.getpid(), number))
  timer.daemon = True
  timer.start()
  return True


def _ignores(frame: types.FrameType) -> bool:
  """Returns whether exceptions in a function call are ignored."""
  name, caller = frame.f_code.co_name, frame.f_back
  # Only logging's own calls of a function `emit` handle a message.
  is_logging = caller and caller.f_code.co_filename == _LOGGING
  return name in _IGNORED or bool(name == 'emit' and is_logging)


@contextlib.contextmanager
def hearing_ctrl_c() -> Iterator[None]:
  """Raises KeyboardInterrupt after Ctrl-C, but not where it would be ignored.

  If Ctrl-C has another handler already, or this is not the main thread, the
  function changes nothing.
  """
  is_main = threading.current_thread() is threading.main_thread()
  before = signal.getsignal(signal.SIGINT)
  if not is_main or before is not signal.default_int_handler:
    yield
    return
  signal.signal(signal.SIGINT, _interrupt)
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: types.FrameType | None) -> None:
  if not sends_again(number, frame):
    raise KeyboardInterrupt
