"""Readers find every page: links resolve, and lists of pages are complete."""

import pytest

from tests.docs.pages import (
  LINKING,
  PAGES,
  ROOT,
  anchors_of,
  links_of,
  name_of,
  prose_of,
)
from xjax.run.named_configs import shipped_configs


@pytest.mark.parametrize('page', LINKING, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page):
  for link in links_of(page):
    if link.startswith(('https://', 'http://')):
      continue
    name, _, anchor = link.partition('#')
    target = (page.parent / name).resolve() if name else page
    assert target.exists(), link
    assert target.is_relative_to(ROOT), link
    if anchor:
      assert anchor in anchors_of(target), link


def test_the_list_of_pages_has_every_page():
  linked = set(links_of(ROOT / 'docs' / 'README.md'))
  pages = {page.name for page in (ROOT / 'docs').glob('*.md')}
  assert pages - {'README.md'} <= linked


def test_the_readme_leads_to_every_page():
  linked = {link.partition('#')[0] for link in links_of(ROOT / 'README.md')}
  pages = {f'docs/{page.name}' for page in (ROOT / 'docs').glob('*.md')}
  assert pages - {'docs/README.md'} <= linked


def test_the_readme_is_short():
  lines = (ROOT / 'README.md').read_text().splitlines()
  assert len(lines) <= 200


def test_the_pictures_are_small():
  for path in (ROOT / 'docs' / 'images').iterdir():
    assert path.stat().st_size <= 100_000, path.name


def test_the_page_of_configs_has_every_config():
  page = (ROOT / 'docs' / 'configs.md').read_text()
  for name in shipped_configs():
    assert f'| `{name}` |' in page, name


def test_tables_have_as_many_cells_in_every_row():
  for page in PAGES:
    width = 0
    for line in prose_of(page).splitlines():
      cells = line.count('|')
      assert not cells or not width or cells == width, f'{page.name}: {line}'
      width = cells
