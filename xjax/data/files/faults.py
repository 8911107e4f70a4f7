"""Faults in a user's files: found in one pass, told together."""

from collections.abc import Sequence
import os

from absl import logging

from xjax.core.errors import DataError
from xjax.data.config import OnError

SHOWN = 20  # faults told one by one; the rest are counted


class Fault(ValueError):
  """What is wrong with one piece of text.

  Attributes:
    line: where in that piece, counted from 1.
  """

  def __init__(self, what: str, line: int = 1):
    super().__init__(what)
    self.line = line


class Faults:
  """Collects `file:line: what` over all files of a corpus.

  Args:
    on_error: what they do in the end; None: there is no going on.

  Attributes:
    count: all faults so far.
    left_out: records so far (lines, or files of one object) with faults.
    shown: the first SHOWN faults, a line each.
  """

  def __init__(self, on_error: OnError | None = OnError.RAISE):
    self.on_error = on_error
    self.count = 0
    self.left_out = 0
    self.shown: list[str] = []
    self._last: tuple[str, int | None] | None = None
    self._fatal = on_error is None

  def add(
    self,
    file: str | os.PathLike,
    line: int | None,
    what: str,
    *,
    fatal: bool = False,
  ) -> None:
    """Notes a fault; what is faulty must be left out by the caller.

    Args:
      file: path, as the user knows it.
      line: counted from 1; None where the fault is the file as a whole.
      what: what is wrong, and perhaps what to do.
      fatal: whether there is nothing to go on with when it is left out.
    """
    self.count += 1
    self._fatal |= fatal
    # Faults of one line come one after the other.
    place = os.fspath(file), line
    self.left_out += place != self._last
    self._last = place
    if len(self.shown) < SHOWN:
      where = f'{place[0]}:{line}' if line else place[0]
      self.shown.append(f'{where}: {what}')

  def extend(
    self, file: str | os.PathLike, line: int, whats: Sequence[str]
  ) -> bool:
    """Notes what is wrong with one line; returns whether that is nothing."""
    for what in whats:
      self.add(file, line, what)
    return not whats

  def add_empty(self, file: str | os.PathLike, what: str, before: int) -> None:
    """Notes that nothing is left of a file.

    Args:
      file: path, as the user knows it.
      what: what is missing.
      before: count before the file was read; where it has faults, those are
        the cause, and worth telling instead.
    """
    if self.count == before:
      self.add(file, None, f'no {what} in it', fatal=True)
    elif self.on_error is OnError.SKIP:
      self.add(file, None, f'no {what} in it without a fault', fatal=True)

  def settle(self) -> None:
    """Ends the pass: raises, or logs how much was left out.

    Raises:
      DataError: as check.
    """
    if summary := self.check():
      logging.warning('%s', summary)

  def check(self) -> str:
    """Ends the pass: raises, or returns how much was left out, if anything.

    Raises:
      DataError: there are faults, and they are fatal or on_error is RAISE.
    """
    if not self.count:
      return ''
    lines = list(self.shown)
    if self.count > SHOWN:
      lines.append(f'... and {self.count - SHOWN} more')
    faults = _plural(self.count, 'fault')
    if self.on_error is OnError.SKIP and not self._fatal:
      left_out = _plural(self.left_out, 'record')
      return '\n'.join([f'left out {left_out}, with {faults}:', *lines])
    if not self._fatal:
      lines.append(
        f'{faults} in all; mend them, or leave the faulty lines out with '
        '--config.data.on_error=skip'
      )
    raise DataError('\n'.join(lines))


def _plural(count: int, what: str) -> str:
  return f'{count} {what}' if count == 1 else f'{count} {what}s'
