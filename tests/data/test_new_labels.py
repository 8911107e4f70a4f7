import gzip
import json

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import DataError
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.labels import add_new_labels, add_outside, read_new_labels
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


@pytest.mark.parametrize('name', ['fish', 'Öl', '"x" y'])
def test_names_that_are_no_json_are_told_to_become_labels(read, name):
  with pytest.raises(DataError) as error:
    read(f'{name}\nb\n', 'x.jsonl')
  hint = "; `jq -Rc '{id: ., name: .}'` makes JSON of lines of plain text; a ta"
  assert hint in str(error.value) or name[0] == '"'
  assert 'text: .' not in str(error.value)


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
    Label('law', 'law'),
    Label('n', 'name', description='of it'),
  )
  assert read(text) == read(text, 'x.jsonl') == expected
  assert read(text, 'x.jsonl.gz', zipped=True) == expected


SKOS = """\
@prefix : <http://www.w3.org/2004/02/skos/core#> .
<http://x.org/1> a :Concept ; :prefLabel "fish"@en, "kala"@fi .
<http://x.org/2> a :Concept ; :prefLabel "old"@en ;
  <http://www.w3.org/2002/07/owl#deprecated> true .
"""


@pytest.mark.parametrize(
  ('name', 'text', 'expected'),
  [
    (
      'new.csv',
      'id,name,alt,parent\n7,fish,cod|hake,c\nn,Öl,,\n',
      (Label('7', 'fish', ('cod', 'hake'), ('c',)), Label('n', 'Öl')),
    ),
    ('new.tsv', 'name\tdefinition\n fish\tswims\n',
     (Label('fish', 'fish', description='swims'),)),
    ('new.ttl', SKOS, (Label('http://x.org/1', 'fish'),)),
    ('new.csv', 'fish, frozen\nsea\n',
     (Label('fish, frozen', 'fish, frozen'), Label('sea', 'sea'))),
  ],
)  # fmt: skip
def test_tables_and_skos(read, name, text, expected):
  assert read(text, name) == expected
  assert read(text, f'{name}.gz', zipped=True) == expected


def test_what_a_run_wrote_is_read(tmp_path):
  SPACE.save(tmp_path / 'labels.jsonl')
  other = LabelSpace((Label('z', 'zed'),), np.zeros(1, np.int32), 1, 1)
  assert read_new_labels(tmp_path / 'labels.jsonl', other) == SPACE.labels


@pytest.mark.parametrize(
  ('text', 'fault'),
  [
    (' \n\n', ': no label in it'),
    ('fish\nlaw\nfish\n', "an id that no other label has: 'fish'"),
    ('a\n', "an id that no other label has: 'a'"),
    ('fish\n2003\n--\n', "names with letters: '2003', '--'"),
    (b'fish\n\xff\n', ':2: not UTF-8: invalid start byte at byte 1'),
    ('fish'.encode('utf-16'), ':1: UTF-16 text'),
    ('x\ty\n', ":1: id 'x\\ty' has spaces around it or control"),
    ('{"id": "x"}\n', ":1: no field 'name'"),
    ('{"name": null}', ':1: name is null, not text'),
    ('{"name": "fish"}\nlaw\n', ':2: not JSON'),
    ('{"name": "x", "id": ""}', ':1: id is empty'),
    ('["fish"]', ':1: text, not a JSON object'),
    ('{"name": "x", "alt": "y"}', ':1: alt is text, not a list'),
  ],
)
def test_faults(read, text, fault):
  message = error_text(read, text)
  assert 'new.txt' in message and fault in message


def test_files_that_cannot_be_read(read, tmp_path):
  for path in (tmp_path, tmp_path / 'nope.txt'):
    assert 'cannot be read' in error_text(read_new_labels, path, SPACE)
  cut = gzip.compress(b'fish\nlaw\n')[:-6]
  with pytest.raises(DataError, match='new.txt: the compressed file is cut sh'):
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


def test_names_have_one_form(read):
  expected = Label('santé x', 'santé x'), Label('e\u0301', 'état', ('é',))
  row = {'id': 'e\u0301', 'name': 'e\u0301tat', 'alt': ['e\u0301\u200b']}
  named = {'name': 'sante\u0301\xa0x'}
  text = ''.join(json.dumps(x) + '\n' for x in (named, row))
  assert read(text) == expected
  assert read('sante\u0301\xa0x\n') == expected[:1]
