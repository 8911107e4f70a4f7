"""Lets signals stop a command even while Python collects garbage or logs.

Python prints and ignores an exception that is raised in a destructor, in a
callback of the garbage collector, or while a message is logged. JAX has such a
callback. So a signal that comes at this moment would be lost.
"""

from collections.abc import Iterator
import contextlib
import os
import signal
import threading
import types

# Functions whose exceptions are ignored.
_IGNORED = '_xla_gc_callback', '__del__', 'emit'
_LATER = 0.05  # seconds


def sends_again(number: int, frame: types.FrameType | None) -> bool:
  """Sends a signal again a little later if an exception would be ignored now.

  Args:
    number: number of the signal.
    frame: the frame in which the signal's handler was called.

  Returns:
    Whether the signal is sent again. The handler must then not raise.
  """
  while frame and frame.f_code.co_name not in _IGNORED:
    frame = frame.f_back
  if frame is None:
    return False
  timer = threading.Timer(_LATER, os.kill, (os.getpid(), number))
  timer.daemon = True
  timer.start()
  return True


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
