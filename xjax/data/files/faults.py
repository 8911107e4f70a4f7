"""Collects the faults in a user's files, to report them together."""

import os

from absl import logging

from xjax.core.errors import DataError
from xjax.data.tokens_config import OnError

SHOWN = 20  # faults in a message; further faults are only counted


class Fault(ValueError):
  """Reports a faulty line, numbered from 1, or without a line a faulty file."""

  def __init__(self, message: str, line: int | None = 1):
    super().__init__(message)
    self.line = line


class Grouped(str):
  """Marks the message of faults that are shown as one line, with a number."""


class Faults:
  """Collects the faults in all files of a corpus, as `file:line: message`.

  `on_error` says what `raise_or_log` does: RAISE raises an error, which
  suggests SKIP if no fault is fatal; SKIP logs the faults, and raises an error
  only if one is fatal; None raises an error, because every fault is fatal.
  `skip` is the flag of the command that skips faulty lines, for messages.
  """

  def __init__(
    self,
    on_error: OnError | None = OnError.RAISE,
    skip: str = '--config.data.on_error=skip in training',
  ):
    self.on_error = on_error
    self._skip = skip
    self.count = 0  # faults so far
    self.left_out = 0  # faulty lines, or files with one object, so far
    self.shown: list[str] = []  # the first SHOWN faults, one line each
    self.at_once = False  # whether a fault that is an error is raised at once
    self._last: tuple[str, int | None] | None = None
    self._groups: dict[Grouped, list[int]] = {}  # row of `shown`, and faults
    self._lines = 0
    self._fatal = on_error is None

  @property
  def failed(self) -> bool:
    """Returns whether raise_or_log will raise an error."""
    fatal = self._fatal or self.on_error is not OnError.SKIP
    return self.count > 0 and fatal

  def add(
    self,
    file: str | os.PathLike,
    line: int | None,
    *messages: str,
    fatal: bool = False,
  ) -> None:
    """Adds faults of a record; the caller must leave the record out."""
    # Without `line`, the whole file is faulty. A fatal fault raises an error
    # even if on_error is SKIP.
    for message in messages:
      self.count += 1
      self._fatal |= fatal
      # All faults of a record are added one after another. So a fault belongs
      # to a new record if its place differs from that of the last fault.
      place = os.fspath(file), line
      self.left_out += place != self._last
      self._last = place
      if isinstance(message, Grouped):
        group = self._groups.setdefault(message, [self._lines, 0])
        group[1] += 1
        if group[1] > 1:
          continue
      self._lines += 1
      if len(self.shown) < SHOWN:
        where = f'{place[0]}:{line}' if line else place[0]
        self.shown.append(f'{where}: {message}')
    if self.at_once and messages and self.failed:
      self.raise_or_log()

  def add_empty(
    self, file: str | os.PathLike, what: str, before: int, *, fatal: bool = True
  ) -> None:
    """Adds a fault for a file without usable `what`, unless others say why."""
    if self.count == before:
      self.add(file, None, f'no {what} in it', fatal=fatal)
    elif fatal and self.on_error is OnError.SKIP:
      self.add(file, None, f'every {what} in it is faulty', fatal=True)

  def raise_or_log(self) -> str:
    """Returns how many records are left out, or '', and logs their faults.

    Raises a DataError with all faults if on_error demands it.
    """
    if not self.count:
      return ''
    lines = list(self.shown)
    for row, count in self._groups.values():
      if count > 1 and row < SHOWN:
        lines[row] += f' (the first of {count} such faults)'
    if self._lines > SHOWN:
      lines.append(f'... and {self._lines - SHOWN} more')
    faults = plural(self.count, 'fault')
    if not self.failed:
      summary = f'left out {plural(self.left_out, "record")}, with {faults}'
      logging.warning('%s', '\n'.join([f'{summary}:', *lines]))
      return summary
    if not self._fatal:
      way_out = f'correct them, or skip the faulty lines with {self._skip}'
      lines.append(f'{faults} in all; {way_out}')
    raise DataError('\n'.join(lines))


def plural(count: int, noun: str) -> str:
  """Returns a count with its noun, such as `1 label` or `2 labels`."""
  return f'{count:,} {noun}' if count == 1 else f'{count:,} {noun}s'
