"""Notices SIGTERM and Ctrl-C, so that runs can save before the sweep ends."""

import contextlib
import signal
import threading
import time
import types

from xjax.core.console import handling
from xjax.core.errors import Preempted

# Some launchers send a signal to a process, and also to the group of this
# process. So the process gets the signal twice. A second signal within this
# time is ignored.
_ECHO = 0.5  # seconds


class Signals(contextlib.AbstractContextManager):
  """Notices SIGTERM and Ctrl-C until the context is left.

  In a thread that is not the main thread, no signal is noticed, because Python
  handles signals only in the main thread.
  """

  def __init__(self) -> None:
    self._noticed: int | None = None
    self._noticed_at = 0.0
    self._urgent = False
    self._handlers = contextlib.ExitStack()

  def __enter__(self) -> 'Signals':
    main = threading.current_thread() is threading.main_thread()
    for number in (signal.SIGTERM, signal.SIGINT) if main else ():
      self._handlers.enter_context(handling(number, self._notice))
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    self._handlers.close()

  @property
  def noticed(self) -> bool:
    return self._noticed is not None

  @property
  def urgent(self) -> bool:
    """Returns whether a second signal has come: the sweep must not wait."""
    return self._urgent

  def leave(self) -> None:
    """Raises KeyboardInterrupt after Ctrl-C, and Preempted after SIGTERM."""
    if self._noticed == signal.SIGINT:
      raise KeyboardInterrupt
    how = ('not all' if self._urgent else 'all') + ' trials have saved'
    raise Preempted(f'{how}; start the same command again to continue')

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    del frame
    now = time.monotonic()
    if self._noticed is None:
      self._noticed, self._noticed_at = number, now
    elif now - self._noticed_at >= _ECHO:
      self._urgent = True
