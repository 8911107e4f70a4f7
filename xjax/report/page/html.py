"""Writes a report as one HTML file that needs no other file."""

import base64
from collections.abc import Sequence
from html import escape

from xjax.report.page.page import (
  Block,
  Cell,
  Fold,
  Listing,
  Page,
  Picture,
  Section,
  Table,
  Text,
  Tree,
)
from xjax.report.page.tree import TREE_MARK, TREE_STYLE, tree_html

_STYLE = """\
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #4d5660;
  --page: #fff; --shade: #f3f5f7; --line: #d4d9df; --faint: #e4e8ec;
  --strong: #aeb6bf; --link: #0b57a4; --mark: #eef5fc; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e8eb;
  --soft: #a9b1ba; --page: #15181c; --shade: #22272d; --line: #3a424b;
  --faint: #2b3138; --strong: #5d6873; --link: #7db8f2; --mark: #1b2a3a; } }
:root { color: var(--ink); background: var(--page); font: 15px/1.5 system-ui,
  "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif; }
body { max-width: 1216px; margin: 0 auto; padding: 24px 32px 64px; }
h1 { font-size: 27px; line-height: 1.25; margin: 0 0 6px;
  overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 40px 0 10px; padding-top: 14px;
  border-top: 1px solid var(--line); }
p, ul { margin: 8px 0; max-width: 900px; overflow-wrap: break-word; }
nav { margin: 14px 0 0; font-size: 14px; }
nav a { margin-right: 16px; white-space: nowrap; }
a { color: var(--link); }
pre { margin: 8px 0; padding: 9px 12px; background: var(--shade);
  font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere; }
.blocks { display: grid; column-gap: 32px; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); }
.blocks > * { grid-column: 1 / -1; min-width: 0; }
.blocks > .half { grid-column: auto; }
.wide { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding: 4px 0; }
th, td { padding: 4px 9px; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--faint); }
th { background: var(--shade); border-bottom: 1px solid var(--strong);
  vertical-align: bottom; white-space: pre; line-height: 1.3; }
td { white-space: nowrap; }
.words { text-align: left; }
td.words { overflow-wrap: break-word; white-space: normal; }
tr.marked td { background: var(--mark); }
tr.start td { border-top: 2px solid var(--strong); }
td small { display: block; color: var(--soft); font-size: 12px;
  white-space: pre; line-height: 1.25; }
.system { border-left: 10px solid; padding-left: 7px; }
figure { margin: 18px 0 24px; }
figure div { display: flex; flex-wrap: wrap; gap: 12px 8px; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: 14px; max-width: 900px;
  margin-top: 4px; }
details { margin: 8px 0; }
summary { cursor: pointer; font-weight: 600; padding: 3px 0; }
@media screen and (prefers-color-scheme: dark) {
  figure img { filter: invert(1) hue-rotate(180deg); } }
@media (max-width: 640px) { body { padding: 16px 14px 48px; }
  h1 { font-size: 22px; } nav a { display: inline-block; padding: 5px 0; } }
@media print {
  :root { color-scheme: light; font-size: 12px; }
  body { max-width: none; padding: 0; }
  nav { display: none; }
  h2, summary, caption { break-after: avoid; }
  figure, tr, pre { break-inside: avoid; }
  figure img { max-width: 49%; }
  figure div:has(img:nth-child(3)) img { max-width: 32%; }
  pre, figcaption, td small { font-size: 9px; }
  .wide { overflow: visible; }
  table { font-size: 10px; } th, td { padding: 2px 4px; }
  .system, th, .marked td { print-color-adjust: exact; }
}
"""
_LINE = 24  # characters of a text column; a longer text wraps
# Pixels: half of a page, a character and the padding of a column in a table.
_HALF, _CHARACTER, _PADDING = 590, 8, 18


def render_html(page: Page) -> str:
  """Returns the page as HTML, with its pictures and styles included.

  The page shows rounded numbers. The attributes `data-value` and `title` of a
  table cell hold all digits of its number.
  """
  body = [f'<h1>{escape(page.title)}</h1>', _contents(page)]
  body += [_section(i, section) for i, section in enumerate(page.sections)]
  text = '\n'.join(body)
  return html_file(page.title, text, TREE_STYLE if TREE_MARK in text else '')


def html_file(title: str, body: str, style: str = '') -> str:
  """Returns the text of an HTML file; `style` is CSS for this page only."""
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    # Without this line, a browser asks the server for an icon.
    '<link rel="icon" href="data:,">\n'
    f'<title>{escape(title)}</title>\n<style>\n{_STYLE}{style}</style>\n'
    f'</head>\n<body>\n{body}\n</body>\n</html>\n'
  )


def _contents(page: Page) -> str:
  links = (
    f'<a href="#part-{i}">{escape(section.title)}</a>'
    for i, section in enumerate(page.sections)
  )
  return f'<nav aria-label="Contents">{" ".join(links)}</nav>'


def _section(number: int, section: Section) -> str:
  return (
    f'<section id="part-{number}">\n<h2>{escape(section.title)}</h2>\n'
    f'{_blocks(section.blocks)}\n</section>'
  )


def _blocks(blocks: Sequence[Block]) -> str:
  """Returns the HTML of blocks; two narrow blocks can stand side by side."""
  parts = (f'<div{_width(block)}>{_block(block)}</div>' for block in blocks)
  return '<div class="blocks">\n' + '\n'.join(parts) + '\n</div>'


def _width(block: Block) -> str:
  return ' class="half"' if _is_narrow(block) else ''


def _is_narrow(block: Block) -> bool:
  match block:
    case Table():
      return _pixels(block) <= _HALF
    case Picture():
      return len(block.svgs) == 1
    case Fold():
      return all(map(_is_narrow, block.blocks))
  return False


def _pixels(table: Table) -> int:
  """Estimates the least width of a table that is still easy to read."""
  width = 0
  for i, name in enumerate(table.columns):
    cells = [row[i] for row in table.rows]
    texts = [*name.split('\n'), *(c.text for c in cells)]
    longest = max(map(len, [*texts, *(cell.below for cell in cells)]))
    wraps = i < table.n_text
    width += _CHARACTER * (min(longest, _LINE) if wraps else longest) + _PADDING
  return width


def _block(block: Block) -> str:
  match block:
    case Table():
      return _table(block)
    case Picture():
      return _picture(block)
    case Tree():
      return tree_html(block, _picture(block.still))
    case Text():
      tag = 'pre' if block.command else 'p'
      return f'<{tag}>{escape(block.text)}</{tag}>'
    case Listing():
      items = ''.join(f'<li>{escape(item)}</li>' for item in block.items)
      return f'<ul>{items}</ul>'
    case Fold():
      state = ' open' if block.open else ''
      return (
        f'<details{state}>\n<summary>{escape(block.title)}</summary>\n'
        f'{_blocks(block.blocks)}\n</details>'
      )


def _picture(picture: Picture) -> str:
  # Each picture is a separate image, so that ids inside two SVGs never clash.
  # Screen readers read the description once, with the first image.
  images = '\n'.join(
    f'<img alt="{escape(picture.alt) if not n else ""}" '
    f'src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"'
    '>'
    for n, svg in enumerate(picture.svgs)
  )
  return (
    f'<figure>\n<div>{images}</div>\n'
    f'<figcaption>{escape(picture.caption)}</figcaption>\n</figure>'
  )


def _table(table: Table) -> str:
  def words(i: int) -> str:
    return ' class="words"' if i < table.n_text else ''

  head = ''.join(
    f'<th scope="col"{words(i)}>{escape(name)}</th>'
    for i, name in enumerate(table.columns)
  )
  rows = [
    f'<tr{_row_class(table, n)}>'
    + ''.join(
      f'<td{words(i)}{_full(cell)}>{_inner(cell)}</td>'
      for i, cell in enumerate(row)
    )
    + '</tr>'
    for n, row in enumerate(table.rows)
  ]
  caption = f'<caption>{escape(table.caption)}</caption>\n'
  return (
    f'<div class="wide"><table>\n{caption if table.caption else ""}'
    f'<thead><tr>{head}</tr></thead>\n<tbody>\n'
    + '\n'.join(rows)
    + '\n</tbody>\n</table></div>'
  )


def _row_class(table: Table, n: int) -> str:
  names = ['marked'] * (n in table.marked) + ['start'] * (n in table.starts)
  return f' class="{" ".join(names)}"' if names else ''


def _full(cell: Cell) -> str:
  if cell.value is None:
    return ''
  return f' data-value="{cell.value!r}" title="{cell.value!r}"'


def _inner(cell: Cell) -> str:
  text = escape(cell.text)
  if cell.best:
    text = f'<b>{text}</b>'
  if cell.colour:
    style = f'border-color:{escape(cell.colour)}'
    text = f'<span class="system" style="{style}">{text}</span>'
  return f'{text}<small>{escape(cell.below)}</small>' if cell.below else text
