"""Lets signals stop a command even while Python collects garbage or logs.

Python prints and ignores an exception that is raised in a destructor, in a
callback of the garbage collector or of a weak reference. JAX has such
callbacks. So a signal that comes at this moment would be lost.
"""

from collections.abc import Callable, Iterator
import contextlib
import logging
import signal
import sys
import threading
import time
import types

from xjax.core.errors import Interrupted, Preempted

_ERRORS = Interrupted, KeyboardInterrupt, Preempted
_LATER = 0.05  # seconds
# A process ignores SIGURG unless it has a handler. So a thread that ends
# after the context does no harm.
_AGAIN = signal.SIGURG
_LOGGING = logging.Handler.handle.__code__.co_filename


class RetrySignal(contextlib.AbstractContextManager):
  """Raises the error of a signal again if Python ignored it.

  While this context is entered, which only the main thread can do, a signal's
  handler may raise Interrupted, KeyboardInterrupt or Preempted, or call
  `raise_error`.
  """

  def __init__(self, raising: Callable[[], None]) -> None:
    """Takes a function that raises the error if it must be heard now."""
    self._raising = raising
    self._is_waiting = False
    self._ignore = sys.unraisablehook
    self._before = contextlib.ExitStack()

  def __enter__(self) -> 'RetrySignal':
    self._ignore = sys.unraisablehook
    self._before.callback(setattr, sys, 'unraisablehook', self._ignore)
    self._before.enter_context(handling(_AGAIN, self._raise_again))
    sys.unraisablehook = self._insist
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    self._before.close()
    is_waiting, self._is_waiting = self._is_waiting, False
    if is_waiting and kind is None:
      self._raising()

  def raise_error(self, frame: types.FrameType | None) -> None:
    """Raises the error now, or a little later if a message is being logged.

    Logging would print the error and ignore it. `frame` is the frame in which
    the signal's handler was called.
    """
    if self._would_be_ignored(frame):
      self._raise_later()
    else:
      self._raising()

  def _insist(self, ignored: 'sys.UnraisableHookArgs') -> None:
    if issubclass(ignored.exc_type, _ERRORS):
      self._raise_later()
    else:
      self._ignore(ignored)

  def _raise_later(self) -> None:
    if not self._is_waiting:
      self._is_waiting = True
      main = threading.main_thread().ident
      threading.Thread(target=self._signal, args=(main,), daemon=True).start()

  def _signal(self, main: int) -> None:
    while self._is_waiting:
      time.sleep(_LATER)
      signal.pthread_kill(main, _AGAIN)

  def _raise_again(self, number: int, frame: types.FrameType | None) -> None:
    del number
    if self._is_waiting and not self._would_be_ignored(frame):
      self._is_waiting = False
      self._raising()

  def _would_be_ignored(self, frame: types.FrameType | None) -> bool:
    """Returns whether Python is logging, or is ignoring another error."""
    while frame:
      if _handles_message(frame) or frame.f_code is _IGNORING:
        return True
      frame = frame.f_back
    return False


_IGNORING = RetrySignal._insist.__code__


def _handles_message(frame: types.FrameType) -> bool:
  """Returns whether the frame is logging's call of a function `emit`."""
  caller = frame.f_back
  is_logging = caller and caller.f_code.co_filename == _LOGGING
  return bool(frame.f_code.co_name == 'emit' and is_logging)


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


@contextlib.contextmanager
def hearing_ctrl_c() -> Iterator[None]:
  """Makes sure that Ctrl-C raises KeyboardInterrupt, also where it is ignored.

  If Ctrl-C has another handler already, or this is not the main thread, the
  function changes nothing.
  """
  is_main = threading.current_thread() is threading.main_thread()
  handler = signal.getsignal(signal.SIGINT)
  if is_main and handler is signal.default_int_handler:
    with RetrySignal(_raise_interrupt):
      yield
  else:
    yield


def _raise_interrupt() -> None:
  raise KeyboardInterrupt
