"""Defines the parts of a page, and writes a page as HTML and as Markdown."""

import base64
from collections.abc import Iterator, Sequence
import dataclasses
from html import escape
import importlib.resources
import os

from xjax.core.atomic import atomic_write
from xjax.report.table import (
  Table,
  escape_markdown,
  html_table,
  latex_table,
  markdown_table,
)

_NARROW = 4  # columns of a table that can stand beside another


@dataclasses.dataclass(frozen=True)
class Picture:
  svgs: Sequence[str]  # texts of SVG files, side by side where there is room
  alt: str  # description for readers who cannot see the drawing
  caption: str  # how the numbers in the drawing were computed


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """Holds a paragraph, or a command that is shown in a fixed-width font."""

  text: str
  command: bool = False


@dataclasses.dataclass(frozen=True)
class Collapsible:
  title: str
  blocks: Sequence['Block']
  open: bool = False


Block = Table | Picture | Paragraph | Collapsible


@dataclasses.dataclass(frozen=True)
class Section:
  title: str
  blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Page:
  title: str
  sections: Sequence[Section]
  results: Table | None = None  # the main metrics, also in a section


def save_report(
  page: Page,
  html: str,
  markdown: str = '',
  latex: str = '',
  latex_decimals: int = 1,
) -> list[str]:
  """Writes a report, and other texts that are not ''; returns the paths."""
  # In the LaTeX table of results, values are times 100.
  texts = {html: render_html(page)}
  if markdown:
    texts[markdown] = render_markdown(page)
  if latex:
    texts[latex] = latex_table(page.results, latex_decimals)
  for path, text in texts.items():
    with atomic_write(os.path.expanduser(path)) as file:
      file.write(text)
  return list(texts)


def render_html(page: Page) -> str:
  """Returns the page as HTML, with its pictures and styles included."""
  links = ' '.join(
    f'<a href="#part-{i}">{escape(section.title)}</a>'
    for i, section in enumerate(page.sections)
  )
  sections = '\n'.join(
    f'<section id="part-{i}">\n<h2>{escape(section.title)}</h2>\n'
    f'{_html_blocks(section.blocks)}\n</section>'
    for i, section in enumerate(page.sections)
  )
  return html_file(
    page.title,
    f'<h1>{escape(page.title)}</h1>\n'
    f'<nav aria-label="Contents">{links}</nav>\n{sections}',
  )


def page_file(name: str) -> str:
  """Returns the text of a file that stands beside this one."""
  folder = importlib.resources.files('xjax.report.page')
  return (folder / name).read_text('utf-8')


def script(name: str) -> str:
  """Returns a script element with a file that stands beside this one."""
  return f'<script>\n{page_file(name)}</script>'


def html_file(title: str, body: str, style: str = '') -> str:
  """Returns the text of an HTML file; `style` is CSS for this page only."""
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    # Without this line, a browser asks the server for an icon.
    '<link rel="icon" href="data:,">\n<title>'
    f'{escape(title)}</title>\n<style>\n{page_file("page.css")}{style}</style>\n'
    f'</head>\n<body>\n{body}\n</body>\n</html>\n'
  )


def _html_blocks(blocks: Sequence[Block]) -> str:
  """Returns the HTML of blocks; two narrow blocks can stand side by side."""
  half = ' class="half"'
  parts = '\n'.join(
    f'<div{half if _is_narrow(block) else ""}>{_html(block)}</div>'
    for block in blocks
  )
  return f'<div class="blocks">\n{parts}\n</div>'


def _is_narrow(block: Block) -> bool:
  match block:
    case Table():
      return len(block.columns) <= _NARROW
    case Picture():
      return len(block.svgs) == 1
  return False


def _html(block: Block) -> str:
  match block:
    case Table():
      return html_table(block)
    case Picture():
      return _html_picture(block)
    case Paragraph():
      tag = 'pre' if block.command else 'p'
      return f'<{tag}>{escape(block.text)}</{tag}>'
    case Collapsible():
      state = ' open' if block.open else ''
      return (
        f'<details{state}>\n<summary>{escape(block.title)}</summary>\n'
        f'{_html_blocks(block.blocks)}\n</details>'
      )


def _html_picture(picture: Picture) -> str:
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


def render_markdown(page: Page) -> str:
  """Returns the page in GitHub's Markdown; texts stand for its pictures."""
  parts = [f'# {escape_markdown(page.title)}']
  for section in page.sections:
    parts.append(f'## {escape_markdown(section.title)}')
    for block in section.blocks:
      parts += _markdown_blocks(block, 3)
  return '\n\n'.join(parts) + '\n'


def _markdown_blocks(block: Block, level: int) -> Iterator[str]:
  match block:
    case Table():
      yield markdown_table(block)
    case Paragraph():
      yield (
        f'    {block.text}' if block.command else escape_markdown(block.text)
      )
    case Picture():
      yield f'*Picture, in the HTML report:* {escape_markdown(block.alt)}'
    case Collapsible():
      yield f'{"#" * level} {escape_markdown(block.title)}'
      for inner in block.blocks:
        yield from _markdown_blocks(inner, level + 1)
