"""Writes the text and the tables of a report as Markdown, without pictures."""

from collections.abc import Iterator, Sequence

from xjax.report.page.page import (
  Block,
  Cell,
  Fold,
  Listing,
  Page,
  Picture,
  Table,
  Text,
  Tree,
)

# Markdown reads these characters as markup, or as the end of a table cell.
_SPECIAL = str.maketrans({c: f'\\{c}' for c in '\\`*_[]<>|#'})


def render_markdown(page: Page) -> str:
  """Returns the page in GitHub's Markdown; texts stand for its pictures."""
  parts = [f'# {escape(page.title)}']
  for section in page.sections:
    parts.append(f'## {escape(section.title)}')
    for block in section.blocks:
      parts += _blocks(block, 3)
  return '\n\n'.join(parts) + '\n'


def markdown_table(table: Table) -> str:
  """Returns the lines of a table; the best values are bold."""
  names = [escape(' '.join(name.split())) for name in table.columns]
  rule = [
    ':--' if i < table.n_text else '--:' for i in range(len(table.columns))
  ]
  rows = [names, rule, *([_cell(cell) for cell in row] for row in table.rows)]
  return '\n'.join(f'| {" | ".join(row)} |' for row in rows)


def _blocks(block: Block, level: int) -> Iterator[str]:
  match block:
    case Table():
      if block.caption:
        yield escape(block.caption)
      yield markdown_table(block)
    case Text():
      yield f'    {block.text}' if block.command else escape(block.text)
    case Listing():
      yield '\n'.join(f'- {escape(item)}' for item in block.items)
    case Picture():
      yield f'*Picture, in the HTML report:* {escape(block.alt)}'
    case Tree():
      yield from _blocks(block.still, level)
    case Fold():
      yield f'{"#" * level} {escape(block.title)}'
      for inner in block.blocks:
        yield from _blocks(inner, level + 1)


def _cell(cell: Cell) -> str:
  text = escape(cell.text)
  if cell.best:
    text = f'**{text}**'
  return f'{text} {escape(cell.below)}' if cell.below else text


def escape(text: str) -> str:
  """Returns a text on one line, without characters that Markdown interprets."""
  return ' '.join(text.split()).translate(_SPECIAL)


def rows_table(rows: Sequence[Sequence[str]]) -> str:
  """Returns a Markdown table of texts; the first row is its header."""
  header, *others = ([cell.replace('|', '\\|') for cell in row] for row in rows)
  lines = [header, ['---'] * len(header), *others]
  return '\n'.join(f'| {" | ".join(row)} |' for row in lines)
