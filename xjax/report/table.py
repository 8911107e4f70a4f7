"""Defines tables, and writes them as text, Markdown, LaTeX and HTML."""

from collections.abc import Iterable, Sequence
import dataclasses
from html import escape
import textwrap
from typing import Any

MISSING = '-'
DECIMALS = 4


@dataclasses.dataclass(frozen=True)
class Cell:
  text: str
  value: float | int | None = None  # the number before rounding, if it is one
  below: str = ''  # second line, in small type
  spread: float | None = None  # the number after ± in the second line
  best: bool = False  # whether it is the best of the compared values
  colour: str = ''  # of a mark before the text, like '#0072B2'


@dataclasses.dataclass(frozen=True)
class Table:
  columns: Sequence[str]  # a name may contain newlines
  rows: Sequence[Sequence[Cell]]
  n_text: int = 1  # number of first columns that hold texts, not numbers
  marked: frozenset[int] = frozenset()  # rows with a coloured background
  starts: frozenset[int] = frozenset()  # rows above which a line is drawn

  @classmethod
  def of(
    cls,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    n_text: int = 1,
    **fields: Any,
  ) -> 'Table':
    cells = [list(map(cell_of, row)) for row in rows]
    return cls(columns, cells, n_text, **fields)


def cell_of(value: Any) -> Cell:
  """Returns a cell; integers are written as in 1,234,567."""
  if isinstance(value, Cell):
    return value
  if value is None or type(value) is int:
    return number_cell(value)
  return Cell(str(value))


def number_cell(
  value: float | int | None, decimals: int = DECIMALS, **fields: Any
) -> Cell:
  """Returns a cell; an int is a count, a float a fraction, None missing."""
  if value is None:
    return Cell(MISSING, **fields)
  if fields.get('spread') is not None:
    fields['below'] = f'± {fields["spread"]:.{decimals}f}'
  text = f'{value:,}' if type(value) is int else f'{value:.{decimals}f}'
  return Cell(text, value, **fields)


def interval_text(interval: Sequence[float] | None) -> str:
  """Returns the ends of an interval; '' for None."""
  return f'[{interval[0]:.4f}, {interval[1]:.4f}]' if interval else ''


def list_item(text: str, mark: str, width: int) -> str:
  """Wraps a text after a mark such as '- '; words are never broken."""
  return textwrap.fill(
    text,
    width,
    initial_indent=mark,
    subsequent_indent=' ' * len(mark),
    break_long_words=False,
    break_on_hyphens=False,
  )


def plain_text(table: Table, width: int | None = None) -> str:
  """Returns a table as text; columns beyond the width follow in more tables."""
  rows = [
    [' '.join(name.split()) for name in table.columns],
    *([f'{c.text} {c.below}'.rstrip() for c in row] for row in table.rows),
  ]
  columns = list(zip(*rows, strict=True))
  widths = [max(map(len, column)) for column in columns]
  text, room = list(range(table.n_text)), width or sum(widths) + 2 * len(widths)
  blocks = [text]
  for i in range(table.n_text, len(widths)):
    taken = sum(widths[j] + 2 for j in (*blocks[-1], i)) - 2
    if taken > room and blocks[-1] != text:
      blocks.append(text)
    blocks[-1] = [*blocks[-1], i]
  return '\n\n'.join(
    '\n'.join(
      '  '.join(
        row[i].ljust(widths[i]) if i < table.n_text else row[i].rjust(widths[i])
        for i in block
      ).rstrip()
      for row in rows
    )
    for block in blocks
  )


# Markdown reads these characters as markup, or as the end of a table cell.
_MARKDOWN = str.maketrans({c: f'\\{c}' for c in '\\`*_[]<>|#'})
_LATEX = str.maketrans(
  {
    '\\': r'\textbackslash{}',
    '~': r'\textasciitilde{}',
    '^': r'\textasciicircum{}',
    '<': r'\textless{}',
    '>': r'\textgreater{}',
    '[': '{[}',  # after \\, LaTeX reads [ as the start of an argument
    **{c: f'\\{c}' for c in '&%$#_{}'},
  }
)


def escape_markdown(text: str) -> str:
  """Returns a text on one line, without characters that Markdown interprets."""
  return ' '.join(text.split()).translate(_MARKDOWN)


def escape_latex(text: str) -> str:
  """Escapes the characters that LaTeX reads as commands."""
  return text.translate(_LATEX)


def markdown_table(table: Table) -> str:
  """Returns the lines of a table; the best values are bold."""

  def shown(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    text = f'**{text}**' if cell.best else text
    return f'{text} {escape_markdown(cell.below)}' if cell.below else text

  n_numbers = len(table.columns) - table.n_text
  rows = [
    [escape_markdown(name) for name in table.columns],
    [':--'] * table.n_text + ['--:'] * n_numbers,
    *(list(map(shown, row)) for row in table.rows),
  ]
  return '\n'.join(f'| {" | ".join(row)} |' for row in rows)


def rows_table(rows: Sequence[Sequence[str]]) -> str:
  """Returns a Markdown table of Markdown; the first row is its header."""
  header, *others = ([cell.replace('|', '\\|') for cell in row] for row in rows)
  lines = [header, ['---'] * len(header), *others]
  return '\n'.join(f'| {" | ".join(row)} |' for row in lines)


def latex_table(table: Table, decimals: int = 1) -> str:
  r"""Returns a tabular environment for \input; the best values are bold.

  Text columns are aligned to the left, and number columns to the right. The
  document needs \usepackage{booktabs}. Fractions and their spreads are times
  100.
  """

  def shown(cell: Cell) -> str:
    text, below = escape_latex(cell.text), escape_latex(cell.below)
    if isinstance(cell.value, float):
      text, below = f'{100 * cell.value:.{decimals}f}', ''
    if cell.spread is not None:
      below = f'$\\pm$ {100 * cell.spread:.{decimals}f}'
    text = f'\\textbf{{{text}}}' if cell.best else text
    return f'{text} {below}'.rstrip()

  def line(cells: Iterable[str]) -> str:
    return f'{" & ".join(cells)} \\\\\n'

  n_numbers = len(table.columns) - table.n_text
  rows = [
    '\\midrule\n' * (not n or n in table.starts) + line(map(shown, row))
    for n, row in enumerate(table.rows)
  ]
  return (
    f'\\begin{{tabular}}{{{"l" * table.n_text}{"r" * n_numbers}}}\n\\toprule\n'
    + line(escape_latex(' '.join(name.split())) for name in table.columns)
    + ''.join(rows or ['\\midrule\n'])
    + '\\bottomrule\n\\end{tabular}\n'
  )


def html_table(table: Table) -> str:
  """Returns a table as HTML; attributes of a cell hold all digits."""

  def words(i: int) -> str:
    return ' class="words"' if i < table.n_text else ''

  def row_class(n: int) -> str:
    names = ['marked'] * (n in table.marked) + ['start'] * (n in table.starts)
    return f' class="{" ".join(names)}"' if names else ''

  head = ''.join(
    f'<th scope="col"{words(i)}>{escape(name)}</th>'
    for i, name in enumerate(table.columns)
  )
  rows = '\n'.join(
    f'<tr{row_class(n)}>'
    + ''.join(
      f'<td{words(i)}{_all_digits(cell)}>{_inner_html(cell)}</td>'
      for i, cell in enumerate(row)
    )
    + '</tr>'
    for n, row in enumerate(table.rows)
  )
  return (
    f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
    f'<tbody>\n{rows}\n</tbody>\n</table></div>'
  )


def _all_digits(cell: Cell) -> str:
  if cell.value is None:
    return ''
  return f' data-value="{cell.value!r}" title="{cell.value!r}"'


def _inner_html(cell: Cell) -> str:
  text = escape(cell.text)
  if cell.best:
    text = f'<b>{text}</b>'
  if cell.colour:
    style = f'border-color:{escape(cell.colour)}'
    text = f'<span class="system" style="{style}">{text}</span>'
  return f'{text}<small>{escape(cell.below)}</small>' if cell.below else text
