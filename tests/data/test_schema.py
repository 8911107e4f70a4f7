"""Documents, saved label spaces, splits of a corpus."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.schema import Corpus, Document, Label, Labels, LabelSpace, Split

SPACE = LabelSpace(
  labels=(
    Label('b', 'Bee', ('honey', 'ü'), ('a',), 'an insect'),
    Label('a', 'Animal'),
    Label('h', 'hidden'),
    Label('o', 'other'),
  ),
  train_counts=np.array([7, 60, 0, 0], np.int32),
  n_train=61,
  n_trained=2,
  n_held_out=1,
)


def test_text_is_the_zones_in_order():
  document = Document('d', {'title': 'T', 'empty': '', 'body': 'B'})
  assert document.text() == 'T\nB'
  assert document.text(['body', 'title']) == 'B\nT'
  assert document.text(['absent', 'body']) == 'B'


def test_a_label_space_comes_back_with_what_lies_outside(tmp_path):
  path = tmp_path / 'labels.jsonl'
  SPACE.save(path)
  loaded = LabelSpace.load(path, 61)
  assert loaded.labels == SPACE.labels
  assert loaded.train_counts.tolist() == [7, 60, 0, 0]
  assert loaded.train_counts.dtype == np.int32
  assert (loaded.n_train, loaded.n_trained, loaded.n_held_out) == (61, 2, 1)
  assert loaded.n_outside == 1
  assert loaded.index == {'b': 0, 'a': 1, 'h': 2, 'o': 3}
  masks = loaded.masks()
  assert masks['held_out'].tolist() == [False, False, True, False]
  assert masks['frequent'].tolist() == [False, True, False, False]


def test_labels_added_after_training_are_not_outside(tmp_path):
  path = tmp_path / 'labels.jsonl'
  dataclasses.replace(SPACE, n_held_out=0, n_new=1).save(path)
  loaded = LabelSpace.load(path, 61)
  assert (loaded.n_trained, loaded.n_held_out, loaded.n_new) == (2, 0, 1)
  assert loaded.n_outside == 1
  assert list(loaded.masks()) == ['frequent', 'few', 'zero']
  assert loaded.masks()['zero'].tolist() == [False, False, True, True]


def test_labels_are_found_and_joined():
  labels = SPACE.labels
  assert labels[0].name == 'Bee' and labels[1:3] == SPACE.labels[1:3]
  assert labels[np.array([2, 0])] == (Label('h', 'hidden'), labels[0])
  assert Labels.join(labels[2:], labels[:2])[::-1][0] == labels[1]
  bare = Labels.of([Label('x'), Label('x', 'x', ('',))])
  assert list(bare) == [Label('x'), Label('x', 'x', ('',))]
  assert bare != [Label('x'), Label('x', 'x')]
  found = labels.with_ids(['a', 'q'])
  assert found == [Label('a', 'Animal'), Label('q', 'q')]


@pytest.mark.parametrize(
  ('first', 'second', 'shown'),
  [
    ('tax', 'tax', ['tax (a)', 'tax (b)']),
    ('sant\xe9', 'sante\u0301', ['sant\xe9 (a)', 'sant\xe9 (b)']),
    ('\u7a0e', ' \u7a0e\u200b', ['\u7a0e (a)', '\u7a0e (b)']),
    ('b', '', ['b (a)', 'b']),  # the id of a label without a name
    ('tax', 'Tax', ['tax', 'Tax']),
    ('', '', ['a', 'b']),
  ],
)
def test_ids_stand_beside_equal_names(first, second, shown):
  labels = Labels.of([Label('a', first), Label('b', second), Label('c', 'c')])
  assert [labels.shown(row) for row in range(3)] == [*shown, 'c']


def test_labels_take_few_bytes_beside_their_text(tmp_path):
  n, path = 5_000, tmp_path / 'labels.jsonl'
  labels = Labels.of(
    Label(f'{i:06}', f'name {i:06}', (f'also {i:06}',), (f'{i // 9:06}',))
    for i in range(n)
  )
  LabelSpace(labels, np.ones(n, np.int32), n, n).save(path)
  text = n * (6 + 11 + 11 + 6)
  tracemalloc.start()
  space = LabelSpace.load(path, n)
  assert space.index['001234'] == 1234
  held, _ = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert space.labels == labels
  assert (held - text) / n < 60


def test_labels_twice_or_out_of_order_are_damage(tmp_path):
  path = tmp_path / 'labels.jsonl'
  labels = Label('a'), Label('b'), Label('a')
  LabelSpace(labels, np.zeros(3, np.int32), 3, 3).save(path)
  assert ": duplicate label 'a'" in error_text(LabelSpace.load, path, 3)
  SPACE.save(path)
  lines = path.read_text().splitlines(keepends=True)
  path.write_text(''.join([*lines[:2], lines[3], lines[2]]))
  place = ":4: label 'h' is in the wrong place; the order is trained"
  assert place in error_text(LabelSpace.load, path, 61)


def test_an_absent_split_is_told_with_the_others():
  split = Split('dev', (), Ragged.of([]), (), '')
  corpus = Corpus(SPACE, {'dev': split}, 'f')
  assert corpus.split('dev') is split
  with pytest.raises(DataError, match="no split 'test'; it has: dev"):
    corpus.split('test')
