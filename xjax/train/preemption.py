"""Stops a run at SIGTERM, which says that the machine is needed elsewhere."""

from collections.abc import Iterator
import contextlib
import signal
import threading
import types

import jax
from jax.experimental import multihost_utils
import numpy as np

from xjax.core.errors import Preempted

_VOTE_EVERY = 5  # calls of reached() per vote; a vote waits for the device


class Preemption(contextlib.AbstractContextManager):
  """Notices SIGTERM between entering and leaving this context.

  With one process:

  - Outside `deferred`, nothing needs saving, so the signal raises Preempted at
    once in the main thread.
  - Inside `deferred`, the signal raises nothing, and `reached` returns True.

  With several processes, the signal itself never raises Preempted. At every
  fifth call of `reached`, all processes vote, so that all processes get the
  same answer. So all processes must call `reached` equally often.

  JAX's own sync point is not used. The sync point is a step number that is sent
  to all processes. If steps are fast, a process may take this step before it
  receives the number.
  """

  def __init__(self) -> None:
    self._noticed = False
    self._deferred = False
    self._calls = 0
    self._installed = False
    self._before: signal.Handlers | None = None

  def __enter__(self) -> 'Preemption':
    if threading.current_thread() is threading.main_thread():
      self._before = signal.signal(signal.SIGTERM, self._notice)
      self._installed = True
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    if self._installed:
      # Python returns None for a handler that Python did not install, such as
      # JAX's.
      signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Delays the stop until the code in this context has saved its work.

    Raises:
      Preempted: SIGTERM came; the error is raised when the context is left.
    """
    self._deferred = True
    try:
      yield
    finally:
      self._deferred = False
    self.check()

  def reached(self) -> bool:
    """Returns whether to stop here; all processes must call this method."""
    if jax.process_count() == 1:
      return self._noticed
    self._calls += 1
    if self._calls % _VOTE_EVERY:
      return False
    votes = multihost_utils.process_allgather(np.int32(self._noticed))
    return bool(votes.any())

  def check(self) -> None:
    """Raises Preempted if the run has to stop; all processes must call check.

    Raises:
      Preempted: SIGTERM came.
    """
    if self.reached():
      raise Preempted('stopped by SIGTERM; start the run again to resume')

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    del number, frame
    self._noticed = True
    if not self._deferred and jax.process_count() == 1:
      self.check()
