"""Defines the parts of a report, independent of its file format."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

MISSING = '-'
DECIMALS = 4


@dataclasses.dataclass(frozen=True)
class Cell:
  """Holds one cell of a table."""

  text: str
  value: float | int | None = None  # the number before rounding, if it is one
  below: str = ''  # second line, in small type
  spread: float | None = None  # the number after ± in the second line
  best: bool = False  # whether it is the best of the compared values
  colour: str = ''  # of a mark before the text, like '#0072B2'


@dataclasses.dataclass(frozen=True)
class Table:
  """Holds the column names and the rows of a table."""

  columns: Sequence[str]  # a name may contain newlines
  rows: Sequence[Sequence[Cell]]
  n_text: int = 1  # number of first columns that hold texts, not numbers
  marked: frozenset[int] = frozenset()  # rows with a coloured background
  starts: frozenset[int] = frozenset()  # rows above which a line is drawn
  caption: str = ''


@dataclasses.dataclass(frozen=True)
class Picture:
  """Holds drawings that belong together."""

  svgs: Sequence[str]  # texts of SVG files, side by side where there is room
  alt: str  # description for readers who cannot see the drawing
  caption: str  # how the numbers in the drawing were computed


@dataclasses.dataclass(frozen=True)
class Tree:
  """Holds a drawing of a tree into which readers can zoom.

  Values are fractions, by system, that decide a node's colour. `still` is the
  same drawing for paper and for browsers without JavaScript.
  """

  names: Sequence[str]
  ids: Sequence[str]
  parents: Sequence[int]  # -1 for a root
  levels: Sequence[int]
  widths: Sequence[int]  # at least the sum of the children's
  counts: Sequence[int | None]  # a number that is shown; None for none
  values: Mapping[str, Sequence[float | None]]
  palette: Sequence[tuple[str, str]]  # of fractions 0 to 1: area, text
  count_name: str  # what the counts are
  value_name: str  # what the fractions are
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
  """Holds a report."""

  title: str
  sections: Sequence[Section]
  results: Table | None = None  # the main metrics, also in a section


def text_cell(value: Any) -> Cell:
  """Returns a cell with a text; integers are written as in 1,234,567."""
  if type(value) is int:
    return Cell(f'{value:,}', value)
  return Cell(str(value))


def number_cell(
  value: float | int | None, decimals: int = DECIMALS, **fields: Any
) -> Cell:
  """Returns a cell with a number; None is a missing value.

  An int is a count and is shown with all digits. A float is a fraction, shown
  like its spread with `decimals` decimals.
  """
  if value is None:
    return Cell(MISSING, **fields)
  if fields.get('spread') is not None:
    fields['below'] = f'± {fields["spread"]:.{decimals}f}'
  text = f'{value:,}' if type(value) is int else f'{value:.{decimals}f}'
  return Cell(text, value, **fields)
