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
from typing import Self, TypeVar

from absl import logging
import tqdm

T = TypeVar('T')

_FIRST, _EVERY = 10.0, 20.0  # seconds until the first line, and between lines


class Progress(contextlib.AbstractContextManager):
  """Says how far work is, as long as the context is open.

  Work of less than ten seconds says nothing in the log.

  Attributes:
    done: parts that are done.
  """

  def __init__(
    self,
    what: str,
    total: int | None = None,
    *,
    done: int = 0,
    unit: str = '',
    quiet: bool = False,
  ):
    """Nothing is said before the context is entered.

    Args:
      what: the work, such as 'reading train'.
      total: its parts; None: it is one step, or nobody knows.
      done: parts that were done before.
      unit: of a part, such as 'node'.
      quiet: says nothing; for all processes but the first.
    """
    self.done = done
    self._what, self._total = what, total
    self._unit, self._quiet = unit, quiet
    self._ended = threading.Event()
    self._bar = self._thread = None

  def __enter__(self) -> Self:
    if self._quiet:
      return self
    if sys.stderr.isatty():
      self._bar = tqdm.tqdm(
        desc=self._what,
        total=self._total,
        initial=self.done,
        unit=self._unit or 'it',
        leave=False,
        bar_format='{desc} ...' if self._total is None else None,
      )
      return self
    self._thread = threading.Thread(target=self._say, daemon=True)
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

  def _say(self) -> None:
    """Writes lines until the work has ended, and one more if there was one."""
    begun, wait = time.monotonic(), _FIRST
    while not self._ended.wait(wait):
      logging.info('%s', self._line(time.monotonic() - begun))
      wait = _EVERY
    if wait == _EVERY:
      spent = time.monotonic() - begun
      logging.info('%s; ended after %.0f s', self._line(spent), spent)

  def _line(self, seconds: float) -> str:
    if self._total is not None:
      unit = f' {self._unit}s' if self._unit else ''
      return f'{self._what}: {self.done:,} of {self._total:,}{unit}'
    return f'{self._what}: {seconds:.0f} s so far'


def progress(
  items: Iterable[T],
  what: str,
  *,
  total: int | None = None,
  unit: str = '',
  quiet: bool = False,
) -> Iterator[T]:
  """Yields the items and says how many are done; arguments as of Progress.

  Args:
    items: any; total is their number where they know it.
    what, unit, quiet: as of Progress.
    total: the number of items that do not know it.
  """
  if total is None:
    total = operator.length_hint(items) or None
  with Progress(what, total, unit=unit, quiet=quiet) as shown:
    for item in items:
      yield item
      shown.update()
