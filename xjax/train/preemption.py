"""SIGTERM: the machine is wanted back; save and leave."""

from collections.abc import Iterator
import contextlib
import signal
import threading
import types

import jax
from jax.experimental import multihost_utils
import numpy as np

from xjax.core.errors import Preempted

_VOTE_EVERY = 5  # questions; a vote waits for the device


class Preemption(contextlib.AbstractContextManager):
  """Notices SIGTERM while it is entered.

  Outside `deferred`, the signal raises Preempted where the main thread is:
  nothing there needs saving. Inside, it is only noted, for `reached` to tell.
  Several processes always only note it, and vote on every fifth question, so
  that all are answered alike; they must ask equally often. (JAX's own sync
  point is one step number, which steps faster than its protocol run past.)
  """

  def __init__(self) -> None:
    self._noticed = False
    self._deferred = False
    self._asked = 0
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
      # None: a handler that Python does not know, such as JAX's.
      signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

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
    if self._asked % _VOTE_EVERY:
      return False
    votes = multihost_utils.process_allgather(np.int32(self._noticed))
    return bool(votes.any())

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
    if not self._deferred and jax.process_count() == 1:
      self.check()
