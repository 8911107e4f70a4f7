"""Defines the parts of a report, independent of its file format."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

MISSING = '-'
DECIMALS = 4


@dataclasses.dataclass(frozen=True)
class Cell:
  """Holds one cell of a table.

  Attributes:
    text: first line of the cell.
    value: the number before rounding; None if the cell is not a number.
    below: second line of the cell, in small type; '' for no second line.
    spread: the number after ± in the second line; None for no such number.
    best: whether this value is the best of the compared values.
    colour: colour of a mark before the text, like `#0072B2`; '' for no mark.
  """

  text: str
  value: float | int | None = None
  below: str = ''
  spread: float | None = None
  best: bool = False
  colour: str = ''


@dataclasses.dataclass(frozen=True)
class Table:
  """Holds the column names and the rows of a table.

  Attributes:
    columns: names of the columns; a name may contain newlines.
    rows: the cells of each row, one cell per column.
    n_text: number of text columns. They come first; all other columns hold
      numbers.
    marked: indices of rows with a coloured background.
    starts: indices of rows above which a line is drawn.
    caption: description of the rows; '' for none.
  """

  columns: Sequence[str]
  rows: Sequence[Sequence[Cell]]
  n_text: int = 1
  marked: frozenset[int] = frozenset()
  starts: frozenset[int] = frozenset()
  caption: str = ''


@dataclasses.dataclass(frozen=True)
class Picture:
  """Holds drawings that belong together.

  Attributes:
    svgs: the text of each SVG file. A page shows them side by side, or below
      one another if it is narrow.
    alt: description for readers who cannot see the drawing.
    caption: how the numbers in the drawing were computed.
  """

  svgs: Sequence[str]
  alt: str
  caption: str


@dataclasses.dataclass(frozen=True)
class Tree:
  """Holds a drawing of a tree into which readers can zoom.

  Attributes:
    names: name of each node.
    ids: id of each node.
    parents: the parent of each node; -1 for a root.
    levels: level of each node.
    widths: width of each node; at least the sum of its children's widths.
    counts: the number that is shown with each node; None for no number.
    values: name of a system -> a fraction for each node, which decides the
      node's colour; None for a node without a value.
    palette: colours of the fractions from 0 to 1, and of the text on them.
    count_name, value_name: what the numbers and the fractions are.
    still: the same drawing without zoom, for paper and for browsers without
      JavaScript.
  """

  names: Sequence[str]
  ids: Sequence[str]
  parents: Sequence[int]
  levels: Sequence[int]
  widths: Sequence[int]
  counts: Sequence[int | None]
  values: Mapping[str, Sequence[float | None]]
  palette: Sequence[tuple[str, str]]
  count_name: str
  value_name: str
  still: Picture


@dataclasses.dataclass(frozen=True)
class Text:
  """Holds a paragraph, or a command that is shown in a fixed-width font."""

  text: str
  command: bool = False


@dataclasses.dataclass(frozen=True)
class Listing:
  """Holds the items of a bulleted list."""

  items: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Fold:
  """Holds blocks that a reader may open or close."""

  title: str
  blocks: Sequence['Block']
  open: bool = False


Block = Table | Picture | Tree | Text | Listing | Fold


@dataclasses.dataclass(frozen=True)
class Section:
  """Holds the blocks under a heading."""

  title: str
  blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Page:
  """Holds a report.

  Attributes:
    title: heading of the page.
    sections: the parts of the page.
    results: the table of the main metrics, which is also in a section.
  """

  title: str
  sections: Sequence[Section]
  results: Table | None = None


def text_cell(value: Any) -> Cell:
  """Returns a cell with a text; integers are written as in 1,234,567."""
  if type(value) is int:
    return Cell(f'{value:,}', value)
  return Cell(str(value))


def number_cell(
  value: float | int | None, decimals: int = DECIMALS, **fields: Any
) -> Cell:
  """Returns a cell with a number.

  Args:
    value: the number. An int is a count and is shown with all digits. A float
      is a fraction. None is a missing value.
    decimals: number of decimals of a fraction and of its spread.
    **fields: other fields of the cell. A spread is shown in the second line.
  """
  if value is None:
    return Cell(MISSING, **fields)
  if fields.get('spread') is not None:
    fields['below'] = f'± {fields["spread"]:.{decimals}f}'
  text = f'{value:,}' if type(value) is int else f'{value:.{decimals}f}'
  return Cell(text, value, **fields)
