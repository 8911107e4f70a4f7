"""Stops a run at SIGTERM or Ctrl-C, after the run has saved its work."""

from collections.abc import Iterator
import contextlib
import os
import signal
import threading
import time
import types
from typing import NoReturn

import jax
from jax.experimental import multihost_utils
import numpy as np

from xjax.core.console import handling
from xjax.core.errors import Interrupted, Preempted

_VOTE_EVERY = 5  # calls of reached() per vote; a vote waits for the device
# A terminal and a launcher may both send the same SIGINT. So a second SIGINT
# within this time is ignored.
_ECHO = 0.5  # seconds
_SAVING = b'interrupted: saving the run; press Ctrl-C again to leave at once\n'


class Preemption(contextlib.AbstractContextManager):
  """Notices SIGTERM and SIGINT between entering and leaving this context.

  With one process:

  - Outside `deferred`, nothing needs saving, so the signal raises an error at
    once in the main thread.
  - Inside `deferred`, the signal raises nothing, and `reached` returns True.

  With several processes, the signal itself never raises an error. At every
  fifth call of `reached`, all processes vote, so that all processes get the
  same answer. So all processes must call `reached` equally often.

  SIGTERM raises Preempted, after which launchers start the run again; SIGINT
  raises Interrupted. A second SIGINT raises KeyboardInterrupt, and nothing is
  saved.

  JAX's own sync point is not used: a process may take the step that it names
  before it receives the number.
  """

  def __init__(self) -> None:
    # JAX must not be asked in a signal's handler: if the signal comes while JAX
    # starts its devices, the answer would never come.
    self._is_alone = jax.process_count() == 1
    self._noticed = 0  # number of the first signal
    self._since = 0.0  # when the first SIGINT came
    self._agreed = 0  # number of the signal that all processes know of
    self._deferred = False
    self._calls = 0
    self._handlers = contextlib.ExitStack()

  def __enter__(self) -> 'Preemption':
    if threading.current_thread() is threading.main_thread():
      enter = self._handlers.enter_context
      enter(handling(signal.SIGTERM, self._notice))
      enter(handling(signal.SIGINT, self._notice))
    return self

  def __exit__(self, *error: object) -> None:
    self._handlers.close()

  @contextlib.contextmanager
  def deferred(self) -> Iterator[None]:
    """Delays Preempted or Interrupted until the context is left."""
    self._deferred = True
    try:
      yield
    finally:
      self._deferred = False
    self.check()

  def reached(self) -> bool:
    """Returns whether to stop here; all processes must call this method."""
    if self._is_alone:
      self._agreed = self._noticed
      return bool(self._agreed)
    self._calls += 1
    if self._calls % _VOTE_EVERY:
      return False
    votes = multihost_utils.process_allgather(np.int32(self._noticed))
    # SIGTERM has the larger number, so it wins: the launcher then starts all
    # processes again.
    self._agreed = int(votes.max())
    return bool(self._agreed)

  def check(self) -> None:
    """Raises Preempted or Interrupted after a signal; all processes call it."""
    if self.reached():
      by = 'Ctrl-C' if self._agreed == signal.SIGINT else 'SIGTERM'
      self.leave(f'stopped by {by}; start the run again to resume')

  def leave(self, message: str) -> NoReturn:
    """Raises the error that belongs to the signal; call it after `reached`."""
    is_ctrl_c = self._agreed == signal.SIGINT
    raise (Interrupted if is_ctrl_c else Preempted)(message)

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    del frame
    now = time.monotonic()
    if number == signal.SIGINT and self._since:
      if now - self._since > _ECHO:
        raise KeyboardInterrupt
      return
    if number == signal.SIGINT:
      self._since = now
    self._noticed = self._noticed or number
    if not self._deferred and self._is_alone:
      self.check()
    elif number == signal.SIGINT:
      os.write(2, _SAVING)
