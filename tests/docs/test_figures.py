"""The figures of the README and of the pages are those of docs/figures.toml."""

import importlib.util
import re

import pytest

from tests.docs.pages import PAGES, ROOT, name_of

_spec = importlib.util.spec_from_file_location(
  'figures', ROOT / 'docs' / 'figures.py'
)
figures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(figures)
ENTRIES = figures.read_figures()
SHOWN = {
  'run': {
    'figures': {
      'RP@5': {'value': 0.8125, 'interval': [0.8, 0.825]},
      'better': {'value': 0.9, 'difference': [0.01, 0.03]},
      'level': {'value': 0.9, 'difference': [-0.01, 0.03]},
      'log': 'done\n',
    }
  }
}


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_a_page_has_the_figures_of_the_file(page):
  text = page.read_text()
  assert figures.written(text, ENTRIES) == text
  # A marker that is no figure's, such as one with a typo, is found.
  marked = [*figures.MARKED.finditer(text), *figures.BLOCK.finditer(text)]
  assert len(marked) == text.count('<!--=')


def test_every_figure_of_the_readme_is_from_the_file():
  text = figures.MARKED.sub('', (ROOT / 'README.md').read_text())
  text = figures.BLOCK.sub('', text)
  # Decimals and times; 0.25 of a flag and versions of JAX are no figures.
  text = text.replace('JAX 0.10 and 0.12', '')
  times = r'\d+(?= (?:min|s\b|sec|hour|GB|GiB))'
  found = re.findall(rf'(?<![\w=.])[01]\.\d+|{times}', text)
  assert found == []
  assert not re.search(r'\*\*\d', text)


def test_every_figure_says_where_it_is_from():
  marked = {
    (match['entry'], match['name'])
    for page in PAGES
    for match in (
      *figures.MARKED.finditer(page.read_text()),
      *figures.BLOCK.finditer(page.read_text()),
    )
  }
  used = {entry for entry, _ in marked}
  assert used == ENTRIES.keys()
  for name, entry in ENTRIES.items():
    assert re.fullmatch('[0-9a-f]{8}|none', entry['commit']), name
    assert all(entry[field] for field in figures.FIELDS), name


@pytest.mark.parametrize(
  ('before', 'after'),
  [
    ('0.1<!--=run RP@5-->', '0.8<!--=run RP@5-->'),
    ('0.111<!--=run RP@5--> [0.1, 2]', '0.812<!--=run RP@5--> [0.800, 0.825]'),
    ('**0.1**<!--=run better-->', '**0.9**<!--=run better-->'),
    ('**0.1**<!--=run level-->', '0.9<!--=run level-->'),
    ('**0.1**<!--=run RP@5-->', '0.8<!--=run RP@5-->'),
    ('<!--=run log-->\n```\nx\n```\n', '<!--=run log-->\n```\ndone\n```\n'),
  ],
)
def test_a_marked_figure_is_written(before, after):
  assert figures.written(before, SHOWN) == after


def test_an_entry_without_its_command_is_refused(tmp_path):
  path = tmp_path / 'figures.toml'
  path.write_text('[run]\nseeds = 1\n[run.figures]\na = 1\n')
  with pytest.raises(ValueError, match=r'\[run\] lacks command, commit, date'):
    figures.read_figures(path)
