"""SIGTERM and Ctrl-C, noticed: what is under way saves before all leave."""

import contextlib
import signal
import threading
import types

from xjax.train.preemption import Preempted


class Signals(contextlib.AbstractContextManager):
  """Notes the two signals while it is entered; outside the main thread none."""

  def __init__(self) -> None:
    self._noticed: int | None = None
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

  def leave(self) -> None:
    """Leaves as the signal asks.

    Raises:
      KeyboardInterrupt: it was Ctrl-C.
      Preempted: it was SIGTERM.
    """
    if self._noticed == signal.SIGINT:
      raise KeyboardInterrupt
    raise Preempted('all trials have saved; start it again to go on')

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    del frame
    self._noticed = number
