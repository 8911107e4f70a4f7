"""Taxonomies, and what can be wrong with them."""

import gzip

import pytest

from tests.fixtures.error_text import error_text
from xjax.data.files.faults import Faults
from xjax.data.formats.taxonomy import read_taxonomy


def read(path):
  faults = Faults()
  described = read_taxonomy(path, faults)
  faults.settle()
  return described


ROOT = 'no line `Root<TAB>child...` with the labels of level 1'
ONE_LINE = (
  'is the parent on line 2 already; write all its children on that line'
)
BELOW = 'is never a child; put it below Root or below another label'
SPACES = 'has spaces around it or control characters in it'
OWN = 'is its own ancestor, through its parent'


def test_labels_in_order_with_parents(tmp_path):
  path = tmp_path / 'f.taxonomy'
  text = 'b\tb 1\tx\nRoot\tb\ta\n\na\tx\n'
  path.write_text(text)
  found = read(path).labels
  parents = {'b 1': ('b',), 'x': ('b', 'a'), 'b': (), 'a': ()}
  assert {label.id: label.parents for label in found.values()} == parents
  assert list(found) == list(parents)
  zipped = tmp_path / 'f.taxonomy.gz'
  zipped.write_bytes(gzip.compress(text.encode()))
  assert read(zipped).labels == found


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('', ' no label in it'),
    ('Root\n', ' no label in it'),
    ('a\tb\n', f' {ROOT}'),
    ('Root\ta\na\tb\na\tc\n', f"3: 'a' {ONE_LINE}"),
    ('Root\ta\tb\ta\n', "1: 'a' occurs twice"),
    ('Root\ta\nb\tc\n', f"2: 'b' {BELOW}"),
    ('Root\ta\na\tRoot\n', "2: Root is a child of 'a'"),
    ('Root\ta\t\tb\n', '1: name 3 is empty'),
    ('Root\ta\n \tb\n\x01\tc\n', f"3: name 1 '\\x01' {SPACES}"),
    ('Root\ta\na\tb\nb\tc\nc\tb\n', f"3: label 'c' {OWN} 'b'"),
    ('Root\ta\na\ta\n', f"1: label 'a' {OWN} 'a'"),
    ('Root\ta\n\xe4', '2: not UTF-8: unexpected end of data at byte 1'),
  ],
)
def test_faults(tmp_path, text, message):
  path = tmp_path / 'f'
  path.write_bytes(text.encode('latin-1'))
  lines = error_text(read, path).split('\n')
  said = [line for line in lines if line.startswith(str(path))]
  assert said == [f'{path}:{message}']
