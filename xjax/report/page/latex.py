"""Writes tables as LaTeX; the tables need the package booktabs."""

import functools

from xjax.report.page.page import Cell, Table

_SPECIAL = str.maketrans(
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


def render_latex(table: Table, percent: bool = False, decimals: int = 1) -> str:
  r"""Returns a tabular environment for \input; the best values are bold.

  Text columns are aligned to the left, and number columns to the right. The
  document needs \usepackage{booktabs}. With `percent`, fractions are times 100;
  their spreads have as many decimals.
  """
  cell_text = functools.partial(_percent_cell, decimals) if percent else _cell
  n_numbers = len(table.columns) - table.n_text
  names = [escape_latex(' '.join(name.split())) for name in table.columns]
  lines = [
    f'\\begin{{tabular}}{{{"l" * table.n_text}{"r" * n_numbers}}}',
    '\\toprule',
    _row(names),
    '\\midrule',
    *(
      '\\midrule\n' * (n in table.starts) + _row(list(map(cell_text, row)))
      for n, row in enumerate(table.rows)
    ),
    '\\bottomrule',
    '\\end{tabular}',
  ]
  return '\n'.join(lines) + '\n'


def escape_latex(text: str) -> str:
  """Escapes the characters that LaTeX reads as commands."""
  return text.translate(_SPECIAL)


def _row(cells: list[str]) -> str:
  return f'{" & ".join(cells)} \\\\'


def _cell(cell: Cell) -> str:
  text = escape_latex(cell.text)
  if cell.best:
    text = f'\\textbf{{{text}}}'
  return f'{text} {escape_latex(cell.below)}' if cell.below else text


def _percent_cell(decimals: int, cell: Cell) -> str:
  if not isinstance(cell.value, float):
    return _cell(cell)
  text = f'{100 * cell.value:.{decimals}f}'
  if cell.best:
    text = f'\\textbf{{{text}}}'
  if cell.spread is None:
    return text + escape_latex(cell.below)
  return f'{text} $\\pm$ {100 * cell.spread:.{decimals}f}'
