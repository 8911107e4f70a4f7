"""What a report is made of, whatever it is written as."""

from collections.abc import Sequence
import dataclasses
from typing import Any

MISSING = '-'
_DECIMALS = 4


@dataclasses.dataclass(frozen=True)
class Cell:
  """One cell of a table.

  Attributes:
    text: what is shown.
    value: the number it was rounded from, in full; None: there is none.
    below: a second, smaller line.
    best: the best of its peers.
    colour: of a mark before the text, as `#0072B2`; '' for none.
  """

  text: str
  value: float | int | None = None
  below: str = ''
  best: bool = False
  colour: str = ''


@dataclasses.dataclass(frozen=True)
class Table:
  """Rows under a header.

  Attributes:
    columns: names; a newline breaks one.
    rows: each as long as columns.
    n_text: the first columns, which are text; the others are numbers.
    marked: indices of rows that stand out.
    starts: indices of rows that begin a part, with a line above.
    caption: what the rows are; '' for none.
  """

  columns: Sequence[str]
  rows: Sequence[Sequence[Cell]]
  n_text: int = 1
  marked: frozenset[int] = frozenset()
  starts: frozenset[int] = frozenset()
  caption: str = ''


@dataclasses.dataclass(frozen=True)
class Picture:
  """A drawing.

  Attributes:
    svg: the file's text.
    alt: what one who cannot see it should know.
    caption: how it was computed.
  """

  svg: str
  alt: str
  caption: str


@dataclasses.dataclass(frozen=True)
class Text:
  """A paragraph; a command is shown as it was typed."""

  text: str
  command: bool = False


@dataclasses.dataclass(frozen=True)
class Listing:
  """Points, one below the other."""

  items: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Fold:
  """Blocks that a reader may open or close."""

  title: str
  blocks: Sequence['Block']
  open: bool = False


Block = Table | Picture | Text | Listing | Fold


@dataclasses.dataclass(frozen=True)
class Section:
  """Blocks under a heading."""

  title: str
  blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Page:
  """A report."""

  title: str
  sections: Sequence[Section]


def text_cell(value: Any) -> Cell:
  """A cell of words, or of a whole number with its thousands apart."""
  if type(value) is int:
    return Cell(f'{value:,}', value)
  return Cell(str(value))


def number_cell(value: float | int | None, **fields: Any) -> Cell:
  """A cell of a number.

  Args:
    value: a count, shown in full; a fraction, shown with four decimals; None:
      there is none.
    **fields: of the cell.
  """
  if value is None:
    return Cell(MISSING, **fields)
  text = f'{value:,}' if type(value) is int else f'{value:.{_DECIMALS}f}'
  return Cell(text, value, **fields)
