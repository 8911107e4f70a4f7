"""Taxonomies, and what can be wrong with them."""

import gzip

import pytest

from xjax.core.errors import DataError
from xjax.data.files.faults import Faults
from xjax.data.formats.taxonomy import read_taxonomy


def read(path):
  faults = Faults()
  described = read_taxonomy(path, faults)
  faults.settle()
  return described


def test_labels_in_order_with_parents(tmp_path):
  path = tmp_path / 'f.taxonomy'
  text = 'b\tb 1\tx\nRoot\tb\ta\n\na\tx\n'
  path.write_text(text)
  found = read(path).labels
  assert {label.id: label.parents for label in found.values()} == {
    'b 1': ('b',),
    'x': ('b', 'a'),
    'b': (),
    'a': (),
  }
  assert list(found) == ['b 1', 'x', 'b', 'a']
  zipped = tmp_path / 'f.taxonomy.gz'
  zipped.write_bytes(gzip.compress(text.encode()))
  assert read(zipped).labels == found


@pytest.mark.parametrize(
  ('text', 'messages'),
  [
    ('', [' no label in it']),
    ('Root\n', [' no label in it']),
    ('a\tb\n', [' no line `Root<TAB>child...` with the labels of level 1']),
    (
      'Root\ta\na\tb\na\tc\n',
      [
        "3: 'a' is the parent on line 2 already; write all its children on that"
        ' line'
      ],
    ),
    ('Root\ta\tb\ta\n', ["1: 'a' occurs twice"]),
    (
      'Root\ta\nb\tc\n',
      ["2: 'b' is never a child; put it below Root or below another label"],
    ),
    ('Root\ta\na\tRoot\n', ["2: Root is a child of 'a'"]),
    ('Root\ta\t\tb\n', ['1: name 3 is empty']),
    (
      'Root\ta\n \tb\n\x01\tc\n',
      ["3: name 1 '\\x01' has spaces around it or control characters in it"],
    ),
    (
      'Root\ta\na\tb\nb\tc\nc\tb\n',
      ["3: label 'c' is its own ancestor, through its parent 'b'"],
    ),
    (
      'Root\ta\na\ta\n',
      ["1: label 'a' is its own ancestor, through its parent 'a'"],
    ),
    ('Root\ta\n\xe4', ['2: not UTF-8: unexpected end of data at byte 1']),
  ],
)
def test_faults(tmp_path, text, messages):
  path = tmp_path / 'f'
  path.write_bytes(text.encode('latin-1'))
  with pytest.raises(DataError) as caught:
    read(path)
  told = [t for t in str(caught.value).split('\n') if t.startswith(str(path))]
  assert told == [f'{path}:{message}' for message in messages]
