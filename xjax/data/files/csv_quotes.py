"""Finds quotes that swallow rows of a table."""

from collections.abc import Sequence
import re

from absl import logging

from xjax.data.files.faults import Faults

# Limits that tell a quoted cell which has swallowed rows:
NEARLY_ALL = 0.9  # the share of its lines that have the delimiters of a row
_MANY_LINES = 10  # that have them by no accident, even if these are commas
_LONG = 4  # line ends in a table with one column
_LONGEST_VALUE = 50  # characters of a cell that may occur in several rows
KNOWN_ROWS = 10_000  # rows whose values are kept
WAY_OUT = 'if quotes mean nothing here, train with --config.data.quoting=none'


class Quotes:
  """Finds cells in quotes that swallowed whole rows.

  Each line of such a cell has as many delimiters as a row. Texts of several
  lines seldom have any tabs, but may have commas. So these count only in many
  lines, or if other cells of most lines, such as labels, are those of rows.
  """

  def __init__(
    self, columns: Sequence[str], delimiter: str, name: str, faults: Faults
  ):
    self._width, self.delimiter = len(columns), delimiter
    self._name, self._faults = name, faults
    self._known: list[set[str]] = [set() for _ in columns]  # by column
    self.noted = 0  # rows
    self._warned = False

  def swallow(self, cells: Sequence[str], line: int, end: int) -> bool:
    """Returns whether a row has such a cell, and adds a fault if it has."""
    if end == line:
      self.note(cells)
      return False
    split = enumerate(re.split(r'\r\n?|\n', cell) for cell in cells)
    at, parts = next(((i, p) for i, p in split if len(p) > 1), (0, []))
    if not parts:
      return False
    widths = [part.count(self.delimiter) + 1 for part in parts]
    widths[0] += at
    widths[-1] += len(cells) - at - 1
    if widths.count(self._width) < NEARLY_ALL * len(widths):
      return False
    # The first line begins in the column of the cell, which does not count.
    others = [
      dict(enumerate(part.split(self.delimiter), 0 if i else at))
      for i, part in enumerate(parts)
    ]
    for other in others:
      other.pop(at, None)
    certain = 2 if self.delimiter in '\t|' else _MANY_LINES
    if self._width > 1 and len(widths) >= certain or self._are_rows(others):
      # The rows are lost, so the file must not be used without them.
      message = (
        f'a quote opens here, and closes on line {end}, and the lines between '
        f'look like rows; {WAY_OUT}; if not, --config.data.quoting=csv reads '
        'them as one cell'
      )
      self._faults.add(self._name, line, message, fatal=True)
      return True
    if end - line >= (_LONG if self._width == 1 else 2) and not self._warned:
      self._warned = True
      logging.warning(
        '%s:%d: a quote opens here, and closes on line %d: this is read as one '
        'cell; %s',
        *(self._name, line, end, WAY_OUT),
      )
    return False

  def note(self, cells: Sequence[str]) -> None:
    """Notes the values of a row, by which others are known."""
    if len(cells) == self._width:
      self.noted += 1
      for known, cell in zip(self._known, cells):
        if cell and len(cell) <= _LONGEST_VALUE:
          known.add(_pattern(cell))

  def _are_rows(self, others: Sequence[dict[int, str]]) -> bool:
    """Returns whether most lines have a cell that is known in its column."""
    usual = [
      any(_pattern(cell) in self._known[i] for i, cell in line.items())
      for line in others
      if line and max(line) < self._width
    ]
    return any(usual) and 2 * sum(usual) >= len(usual)


def _pattern(cell: str) -> str:
  """Returns a cell whose numbers do not count, as in ids."""
  return re.sub(r'\d+', '0', cell)
