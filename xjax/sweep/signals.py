"""SIGTERM and Ctrl-C, noticed: what is under way saves before all leave."""

import contextlib
import signal
import threading
import time
import types

from xjax.train.preemption import Preempted

# Some launchers send a signal to a process and to its group: it comes twice.
_ECHO = 0.5  # seconds


class Signals(contextlib.AbstractContextManager):
  """Notes the two signals while it is entered; outside the main thread none."""

  def __init__(self) -> None:
    self._noticed: int | None = None
    self._noticed_at = 0.0
    self._urgent = False
    self._before: dict[int, signal.Handlers] = {}

  def __enter__(self) -> 'Signals':
    main = threading.current_thread() is threading.main_thread()
    for number in (signal.SIGTERM, signal.SIGINT) if main else ():
      self._before[number] = signal.signal(number, self._notice)
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    for number, handler in self._before.items():
      signal.signal(number, handler)

  @property
  def noticed(self) -> bool:
    """Whether one has come."""
    return self._noticed is not None

  @property
  def urgent(self) -> bool:
    """Whether another came later: nobody waits for what hangs."""
    return self._urgent

  def leave(self) -> None:
    """Leaves as the signal asks.

    Raises:
      KeyboardInterrupt: it was Ctrl-C.
      Preempted: it was SIGTERM.
    """
    if self._noticed == signal.SIGINT:
      raise KeyboardInterrupt
    how = ('not all' if self._urgent else 'all') + ' trials have saved'
    raise Preempted(f'{how}; start it again to go on')

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    del frame
    now = time.monotonic()
    if self._noticed is None:
      self._noticed, self._noticed_at = number, now
    elif now - self._noticed_at >= _ECHO:
      self._urgent = True
