"""Shows the progress of long work: a bar in a terminal, else lines in the log.

A separate thread writes the log lines. So the log is never silent for much
longer than ten seconds, even if one step takes longer.
"""

from collections.abc import Iterable, Iterator
import contextlib
import contextvars
import operator
import sys
import threading
import time
import types
from typing import ClassVar, Self, TypeVar

from absl import logging
import tqdm

from xjax.core.distributed import is_connected, is_host0
from xjax.core.errors import printable

T = TypeVar('T')

_hidden = contextvars.ContextVar('hidden', default=False)
_SILENCE = 10.0  # the longest silence, in seconds
_LOOK = 1.0  # how often to look whether another context has ended, in seconds


@contextlib.contextmanager
def hidden_progress() -> Iterator[None]:
  """Shows no progress in this context."""
  token = _hidden.set(True)
  try:
    yield
  finally:
    _hidden.reset(token)


class Progress(contextlib.AbstractContextManager):
  """Shows the progress of some work while the context is open."""

  # A line follows ten seconds without any. Only the innermost context of the
  # first process shows progress.

  has_bar: ClassVar[bool] = True  # whether a terminal shows a bar
  leave: ClassVar[bool] = False  # whether the bar stays after the work
  smoothing: ClassVar[float] = 0.3  # of speed: 0 is the mean, 1 the last part
  _open: ClassVar[list['Progress']] = []  # contexts; the innermost comes last
  _spoke: ClassVar[float] = 0.0  # time of the last line

  def __init__(
    self, work: str, total: int | None = None, *, done: int = 0, unit: str = ''
  ):
    """Describes `total` parts of work (None: unknown), each a `unit`."""
    self.done = done
    self._work, self._total = printable(work), total
    self._unit, self._quiet = unit, False
    self._ended = threading.Event()
    self._bar: tqdm.tqdm | None = None
    self._thread: threading.Thread | None = None

  def __enter__(self) -> Self:
    self._quiet = _hidden.get() or (is_connected() and not is_host0())
    if self._quiet:
      return self
    if not self._open:
      Progress._spoke = time.monotonic()
    self._open.append(self)
    if self.has_bar and sys.stderr.isatty():
      self._bar = tqdm.tqdm(
        desc=self._work,
        total=self._total,
        initial=self.done,
        unit=self._unit or 'it',
        leave=self.leave,
        smoothing=self.smoothing,
        bar_format=None
        if self._unit or self._total is not None
        else '{desc} ...',
      )
      self.note_line()
      return self
    self._thread = threading.Thread(target=self._repeat, daemon=True)
    self._thread.start()
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    if self in self._open:
      self._open.remove(self)
    if self._bar is not None:
      self._bar.close()
      self.note_line()
    if self._thread is not None:
      self._ended.set()
      self._thread.join()

  def update(self, n: int = 1) -> None:
    self.done += n
    if self._bar is not None:
      self._bar.update(n)

  def say(self, message: str) -> None:
    """Writes a line above the bar or to the log; delays the next log line."""
    if self._bar is not None:
      self._bar.write(printable(message), file=sys.stderr)
    elif not self._quiet:
      logging.info('%s', message)
      self.note_line()

  @staticmethod
  def note_line() -> None:
    """Notes that a line was written, so that the next line is due later."""
    Progress._spoke = time.monotonic()

  def _repeat(self) -> None:
    """Writes log lines until the work ends; after lines, also a last one."""
    start, any_line = time.monotonic(), False
    while not self._ended.wait(max(self._until_due(), _LOOK)):
      if self._open[-1:] == [self] and self._until_due() <= 0:
        self.say(self._line(time.monotonic() - start))
        any_line = True
    if any_line and self.has_bar:
      seconds = time.monotonic() - start
      self.say(f'{self._line(seconds)}; ended after {seconds:.0f} s')

  def _until_due(self) -> float:
    return self._spoke + _SILENCE - time.monotonic()

  def _line(self, seconds: float) -> str:
    ending = 'es' if self._unit.endswith('ch') else 's'
    unit = f' {self._unit}{ending}' if self._unit else ''
    if self._total is not None:
      return f'{self._work}: {self.done:,} of {self._total:,}{unit}'
    if unit:
      return f'{self._work}: {self.done:,}{unit} so far'
    return f'{self._work}: {seconds:.0f} s so far'


class Heartbeat(Progress):
  """Writes a line, also to a terminal, in a program that is silent for long."""

  has_bar = False


@contextlib.contextmanager
def progress(
  items: Iterable[T], work: str, *, total: int | None = None, unit: str = ''
) -> Iterator[Iterator[T]]:
  """Opens a context whose iterator over items shows the progress."""
  if total is None:
    total = operator.length_hint(items) or None
  with Progress(work, total, unit=unit) as bar:
    yield _update_after_each(items, bar)


def _update_after_each(items: Iterable[T], bar: Progress) -> Iterator[T]:
  """Yields items; an item is done when the next item is requested."""
  for item in items:
    yield item
    bar.update()
