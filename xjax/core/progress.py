"""Says how far long work is: a bar on a terminal, elsewhere lines in the log.

A line comes at least every half minute, also where one step takes longer than
that: a thread of its own writes it.
"""

from collections.abc import Iterable, Iterator
import contextlib
import operator
import sys
import threading
import time
import types
from typing import ClassVar, Self, TypeVar

from absl import logging
import jax
import tqdm

from xjax.core.distributed import is_host0

T = TypeVar('T')

_FIRST, _EVERY = 10.0, 20.0  # seconds until the first line, and between lines


class Progress(contextlib.AbstractContextManager):
  """Says how far work is, as long as the context is open.

  Work of less than ten seconds says nothing in the log, and of several
  processes all but the first say nothing.

  Attributes:
    done: parts that are done.
    leave: whether the bar stays when the work has ended.
    smoothing: of the bar's speed, from 0, the mean, to 1, the last part's.
  """

  leave: ClassVar[bool] = False
  smoothing: ClassVar[float] = 0.3

  def __init__(
    self,
    what: str,
    total: int | None = None,
    *,
    done: int = 0,
    unit: str = '',
  ):
    """Nothing is said before the context is entered.

    Args:
      what: the work, such as 'reading train'.
      total: its parts; None: it is one step, or nobody knows.
      done: parts that were done before.
      unit: of a part, such as 'node'.
    """
    self.done = done
    self._what, self._total = what, total
    self._unit, self._quiet = unit, False
    self._ended = threading.Event()
    self._bar: tqdm.tqdm | None = None
    self._thread: threading.Thread | None = None
    self._due = 0.0  # when the next line comes

  def __enter__(self) -> Self:
    # Asking for the process's number alone would start all devices.
    several = jax.distributed.is_initialized()
    self._quiet = several and not is_host0()
    if self._quiet:
      return self
    if sys.stderr.isatty():
      self._bar = tqdm.tqdm(
        desc=self._what,
        total=self._total,
        initial=self.done,
        unit=self._unit or 'it',
        leave=self.leave,
        smoothing=self.smoothing,
        bar_format='{desc} ...' if self._total is None else None,
      )
      return self
    self._due = time.monotonic() + _FIRST
    self._thread = threading.Thread(target=self._repeat, daemon=True)
    self._thread.start()
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    if self._bar is not None:
      self._bar.close()
    if self._thread is not None:
      self._ended.set()
      self._thread.join()

  def update(self, n: int = 1) -> None:
    """So many more parts are done."""
    self.done += n
    if self._bar is not None:
      self._bar.update(n)

  def say(self, message: str) -> None:
    """Writes a line, above the bar where there is one; the next comes later."""
    if self._bar is not None:
      self._bar.write(message, file=sys.stderr)
    elif not self._quiet:
      logging.info('%s', message)
      self._due = time.monotonic() + _EVERY

  def _repeat(self) -> None:
    """Writes lines until the work has ended, and one more if there was one."""
    begun, any_line = time.monotonic(), False
    while not self._ended.wait(max(0.0, self._due - time.monotonic())):
      if time.monotonic() >= self._due:
        self.say(self._line(time.monotonic() - begun))
        any_line = True
    if any_line:
      spent = time.monotonic() - begun
      self.say(f'{self._line(spent)}; ended after {spent:.0f} s')

  def _line(self, seconds: float) -> str:
    if self._total is not None:
      ending = 'es' if self._unit.endswith('ch') else 's'
      unit = f' {self._unit}{ending}' if self._unit else ''
      return f'{self._what}: {self.done:,} of {self._total:,}{unit}'
    return f'{self._what}: {seconds:.0f} s so far'


@contextlib.contextmanager
def progress(
  items: Iterable[T],
  what: str,
  *,
  total: int | None = None,
  unit: str = '',
) -> Iterator[Iterator[T]]:
  """In its context there are the items; it says how many of them are done.

  Args:
    items: any; total is their number where they know it.
    what, unit: as of Progress.
    total: the number of items that do not know it.
  """
  if total is None:
    total = operator.length_hint(items) or None
  with Progress(what, total, unit=unit) as shown:
    yield _counted(items, shown)


def _counted(items: Iterable[T], shown: Progress) -> Iterator[T]:
  for item in items:
    yield item
    shown.update()
