"""The pages of the documentation, and the code blocks that are in them."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = (ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md')))
LINKING = (*PAGES, ROOT / 'CONTRIBUTING.md', ROOT / 'CHANGELOG.md')

_FENCE = re.compile(r'^```(\w*)$')
_NOT_RUN = re.compile(r'^<!-- not run: (.+) -->$')


@dataclasses.dataclass(frozen=True)
class Block:
  """A fenced block of a page.

  Attributes:
    page: the file's path in the checkout.
    line: the line of the opening fence, from 1.
    language: 'sh', 'python', ...; empty if the fence names none.
    text: the lines between the fences.
    not_run: why no test runs the block; empty if one does.
  """

  page: str
  line: int
  language: str
  text: str
  not_run: str


def name_of(page: pathlib.Path) -> str:
  """Returns the path of a page in the checkout."""
  return page.relative_to(ROOT).as_posix()


def blocks_of(page: pathlib.Path) -> list[Block]:
  """Returns the fenced blocks of a page in their order."""
  name = name_of(page)
  lines = page.read_text(encoding='utf-8').splitlines()
  blocks, opening = [], None
  for number, line in enumerate(lines):
    fence = _FENCE.match(line)
    if fence and opening is None:
      opening = number
    elif fence:
      reason = _NOT_RUN.match(lines[opening - 1]) if opening else None
      language = _FENCE.match(lines[opening])[1]
      text = '\n'.join(lines[opening + 1 : number]) + '\n'
      blocks.append(
        Block(name, opening + 1, language, text, reason[1] if reason else '')
      )
      opening = None
  assert opening is None, f'{name}:{opening}: a fence is not closed'
  return blocks


def prose_of(page: pathlib.Path) -> str:
  """Returns a page without its fenced blocks."""
  text = page.read_text(encoding='utf-8')
  return re.sub(r'^```.*?^```$', '', text, flags=re.M | re.S)


def anchors_of(page: pathlib.Path) -> set[str]:
  """Returns the anchors that GitHub gives to the headings of a page."""
  headings = re.findall(r'^#{1,6} (.+)$', prose_of(page), re.M)
  return {
    re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
    for heading in headings
  }


def links_of(page: pathlib.Path) -> list[str]:
  """Returns the targets of a page's links and images."""
  return re.findall(r'\]\(([^)\s]+)\)', prose_of(page))
