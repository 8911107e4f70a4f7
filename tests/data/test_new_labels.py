import gzip
import json

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import DataError
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.labels import add_outside
from xjax.data.new_labels import add_new_labels, read_new_labels
from xjax.data.schema import Label, LabelSpace

SPACE = LabelSpace(
  labels=tuple(Label(i, f'name {i}') for i in 'cbaho'),
  train_counts=np.array([60, 7, 1, 0, 0], np.int32),
  n_train=61,
  n_trained=3,
  n_held_out=1,
)


@pytest.fixture
def read(tmp_path):
  def call(text, name='new.txt', zipped=False):
    path = tmp_path / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    return read_new_labels(path, SPACE)

  return call


def test_names_on_lines(read):
  text = '\ufefffishing quotas\n\n  law of the sea \r\nÜber\n'
  expected = ['fishing quotas', 'law of the sea', 'Über']
  for zipped in (False, True):
    labels = read(text, zipped=zipped)
    assert labels == tuple(Label(name, name) for name in expected)


def test_names_in_brackets(read):
  (label,) = read('[obsolete] fish')
  assert label.name == '[obsolete] fish'


def test_json_lines(read):
  rows = [
    {'id': '7', 'name': 'fish', 'alt': ['cod'], 'parents': ['c'], 'x': 1},
    {'name': ' law '},
    {'id': 'n', 'name': 'name', 'description': 'of it'},
  ]
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  expected = (
    Label('7', 'fish', ('cod',), ('c',)),
    Label('law', ' law '),
    Label('n', 'name', description='of it'),
  )
  assert read(text) == read(text, 'x.jsonl') == expected
  assert read(text, 'x.jsonl.gz', zipped=True) == expected


def test_what_a_run_wrote_is_read(tmp_path):
  SPACE.save(tmp_path / 'labels.jsonl')
  other = LabelSpace((Label('z', 'zed'),), np.zeros(1, np.int32), 1, 1)
  assert read_new_labels(tmp_path / 'labels.jsonl', other) == SPACE.labels


@pytest.mark.parametrize(
  ('text', 'faults'),
  [
    ('', ['new.txt: no label in it']),
    (' \n\n', ['new.txt: no label in it']),
    ('fish\nlaw\nfish\n', ["new.txt:3: label 'fish' is on line 1 already"]),
    ('a\n', ["new.txt:1: the run has the label 'a' already"]),
    ('h\n', ["new.txt:1: the run has the label 'h' already"]),
    ('fish\n2003\n', ["new.txt:2: the name '2003' has no letters"]),
    ('fish\n--\n', ["new.txt:2: the name '--' has no letters"]),
    (b'fish\n\xff\n', ['new.txt:2: not UTF-8: invalid start byte at byte 1']),
    ('fish'.encode('utf-16'), ['new.txt:1: UTF-16 text']),
    ('x\ty\n', ["new.txt:1: id 'x\\ty' has spaces around it or control"]),
    ('{"id": "x"}\n', ["new.txt:1: no field 'name'"]),
    ('{"name": ""}', ["new.txt:1: the name '' has no letters"]),
    ('{"name": null}', ['new.txt:1: name is null, not text']),
    ('{"name": "fish"}\nlaw\n', ['new.txt:2: not JSON']),
    ('{"name": "x", "id": ""}', ['new.txt:1: id is empty']),
    ('[{"name": "fish"}]', ['new.txt:1: a list, not a JSON object']),
    ('[ "fish", "law"]', ['new.txt:1: a list, not a JSON object']),
    ('[\n{"name": "fish"}\n]', [f'new.txt:{i}: not JSON' for i in (1, 3)]),
    ('{"name": "x", "alt": "y"}', ['new.txt:1: alt is text, not a list']),
    (
      '{"name": "x", "id": "a"}\n{"name": "y"}\n{"name": "z", "id": "y"}\n{',
      [
        "new.txt:1: the run has the label 'a' already",
        "new.txt:3: label 'y' is on line 2 already",
        'new.txt:4: not JSON',
      ],
    ),
  ],
)
def test_faults_are_told_together(read, text, faults):
  lines = error_text(read, text).splitlines()
  for line, fault in zip(lines, faults, strict=True):
    assert fault in line


def test_files_that_cannot_be_read(read, tmp_path):
  for path in (tmp_path, tmp_path / 'nope.txt'):
    assert 'cannot be read' in error_text(read_new_labels, path, SPACE)
  cut = gzip.compress(b'fish\nlaw\n')[:-6]
  with pytest.raises(DataError, match='new.txt:[13]: the gzip file is cut sh'):
    read(cut)


def test_they_stand_between_what_is_scored_and_what_is_not():
  new = (Label('z', 'zed'), Label('y', 'why'))
  space = add_new_labels(SPACE, new)
  assert space.ids == ('c', 'b', 'a', 'h', 'z', 'y', 'o')
  assert space.train_counts.tolist() == [60, 7, 1, 0, 0, 0, 0]
  assert (space.n_trained, space.n_held_out, space.n_new) == (3, 1, 2)
  assert space.n_outside == 1
  masks = space.masks()
  assert masks['zero'].tolist() == [False] * 3 + [True] * 4
  assert np.flatnonzero(masks['held_out']).tolist() == [3]
  met = add_outside(space, SourceCorpus('input', (), ('q', 'z', 'p'), {}, ()))
  assert met.ids == (*space.ids, 'p', 'q')
  again = add_new_labels(met, [Label('x', 'ex')])
  assert again.ids == ('c', 'b', 'a', 'h', 'z', 'y', 'x', 'o', 'p', 'q')
  assert (again.n_new, again.n_outside) == (3, 3)


def test_gold_outside_may_become_new(read):
  (label,) = read('o\n')
  space = add_new_labels(SPACE, [label])
  assert space.ids == ('c', 'b', 'a', 'h', 'o')
  assert (space.n_new, space.n_outside) == (1, 0)


@pytest.mark.parametrize(
  ('labels', 'says'),
  [
    ([], 'there are no new labels'),
    ([Label('h', 'x')], "that no other label has: 'h'"),
    ([Label('z', 'x'), Label('z', 'y')], "that no other label has: 'z'"),
    ([Label('z')], "names with letters: 'z'"),
  ],
)
def test_labels_that_cannot_be_added(labels, says):
  with pytest.raises(DataError, match=says):
    add_new_labels(SPACE, labels)
