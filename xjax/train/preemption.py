"""SIGTERM: the machine is wanted back; save and leave."""

from collections.abc import Iterator
import contextlib
import signal
import threading
import types

import jax
from jax.experimental import multihost_utils


class Preempted(Exception):
  """The run was asked to stop; starting it again resumes it."""


class Preemption(contextlib.AbstractContextManager):
  """Notices SIGTERM while it is entered.

  Outside `deferred`, the signal raises Preempted where the main thread is:
  nothing there needs saving. Inside, it is only noted, for `reached` to tell.
  With several processes JAX's own notifier has the signal; all processes must
  ask equally often, and agree on the question that is answered with yes.
  """

  def __init__(self) -> None:
    self._noticed = False
    self._deferred = False
    self._asked = 0
    self._before: signal.Handlers | None = None

  def __enter__(self) -> 'Preemption':
    main = threading.current_thread() is threading.main_thread()
    if jax.process_count() == 1 and main:
      self._before = signal.signal(signal.SIGTERM, self._notice)
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    if self._before is not None:
      signal.signal(signal.SIGTERM, self._before)

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Holds the signal back, for code that saves before it leaves."""
    self._deferred = True
    try:
      yield
    finally:
      self._deferred = False
    self.check()

  def reached(self) -> bool:
    """Whether to stop here; all processes ask, and agree."""
    if jax.process_count() == 1:
      return self._noticed
    self._asked += 1
    return multihost_utils.reached_preemption_sync_point(self._asked)

  def check(self) -> None:
    """Leaves where the signal has come; all processes ask, and agree.

    Raises:
      Preempted: it has.
    """
    if self.reached():
      raise Preempted('asked to stop by SIGTERM; start it again to resume')

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    del number, frame
    self._noticed = True
    if not self._deferred:
      self.check()
