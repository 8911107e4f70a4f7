"""Writes the figures of figures.toml into the README and the pages.

  python docs/figures.py [--check]

In a page, a marker with the name of an entry and of one of its figures follows
a number, `0.834<!--=best_cpu RP@5-->`, or stands on the line before a fenced
block, whose text is the figure. A number keeps its decimals, and an interval
`[lo, hi]` after the marker is written too. A number is bold only if the figure
has an interval of its gain over the other systems of its row, above 0. With
--check, nothing is written, and the exit code is 1 if a page differs.
"""

import pathlib
import re
import sys
import tomllib
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
PAGES = (DOCS.parent / 'README.md', *sorted(DOCS.glob('*.md')))
FIELDS = {'split', 'seeds', 'command', 'commit', 'machine', 'date', 'figures'}

MARKED = re.compile(
  r'(?P<bold>(?:\*\*)?)(?P<number>[-+]?\d[\d,]*(?:\.\d+)?)(?P=bold)'
  r'<!--=(?P<entry>\w+) (?P<name>[^>]+?)-->(?P<interval> \[[^]\n]*\])?'
)
BLOCK = re.compile(
  r'(?P<marker><!--=(?P<entry>\w+) (?P<name>[^>]+?)-->\n```\w*\n)'
  r'(?P<text>.*?)(?=```$)',
  re.M | re.S,
)


def read_figures(path: pathlib.Path = DOCS / 'figures.toml') -> dict[str, Any]:
  """Returns {entry: {field: ...}}; a figure is a number, a text or a table."""
  entries = tomllib.loads(path.read_text(encoding='utf-8'))
  for name, entry in entries.items():
    if lacking := FIELDS - entry.keys():
      raise ValueError(f'{path}: [{name}] lacks {", ".join(sorted(lacking))}')
  return entries


def written(text: str, entries: dict[str, Any]) -> str:
  """Returns the text of a page with the figures of the entries."""

  def figure(match: re.Match[str]) -> dict[str, Any]:
    value = entries[match['entry']]['figures'][match['name']]
    return value if isinstance(value, dict) else {'value': value}

  def number(match: re.Match[str]) -> str:
    parts = figure(match)
    decimals = len(match['number'].partition('.')[2])
    low, _ = parts.get('difference', (0, 0))
    bold = match['bold'] if low > 0 else ''
    sign = '+' if match['number'].startswith('+') else ''
    marker = f'<!--={match["entry"]} {match["name"]}-->'
    interval = match['interval'] or ''
    if interval:
      ends = (f'{end:{sign},.{decimals}f}' for end in parts['interval'])
      interval = f' [{", ".join(ends)}]'
    value = f'{parts["value"]:{sign},.{decimals}f}'
    return f'{bold}{value}{bold}{marker}{interval}'

  text = MARKED.sub(number, text)
  return BLOCK.sub(lambda m: m['marker'] + figure(m)['value'], text)


def main() -> int:
  """Writes or checks all pages, and returns the exit code."""
  entries, differing = read_figures(), []
  for page in PAGES:
    text = page.read_text(encoding='utf-8')
    new = written(text, entries)
    if new != text:
      differing.append(page)
      if '--check' not in sys.argv:
        page.write_text(new, encoding='utf-8')
  for page in differing:
    print(page.relative_to(DOCS.parent), 'differs from docs/figures.toml')
  return int(bool(differing) and '--check' in sys.argv)


if __name__ == '__main__':
  sys.exit(main())
