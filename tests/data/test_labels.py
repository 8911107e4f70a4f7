"""Label spaces: order, counts, propensities, held-out labels."""

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.labels import (
  add_outside,
  hold_out,
  known_left_out,
  make_space,
  order_labels,
)
from xjax.data.schema import Document, Label, LabelSpace
from xjax.data.tokens_config import OnError


def corpus(gold, labels=()) -> SourceCorpus:
  """Splits name -> rows of label ids."""
  splits = {}
  for name, rows in gold.items():
    documents = (Document(f'd{i}', {}, (*row,)) for i, row in enumerate(rows))
    splits[name] = [*documents]
  return SourceCorpus.of('test', labels, splits)


GOLD = {'train': ['ba', 'b', 'c', ''], 'dev': ['ae'], 'test': ['f']}
DESCRIBED = tuple(Label(i, i.upper()) for i in 'zfedcba')


def ids(labels):
  return ''.join(label.id for label in labels)


def listed(tmp_path, text: str) -> DataConfig:
  (tmp_path / 'list.txt').write_text(text)
  return DataConfig(dir=str(tmp_path), labels='list.txt')


def test_order_of_what_the_corpus_uses():
  assert ids(order_labels(corpus(GOLD), DataConfig())) == 'abcef'
  labels = order_labels(corpus(GOLD, DESCRIBED), DataConfig())
  assert labels[0] == Label('a', 'A')


def test_order_of_all_descriptors():
  config = DataConfig(labels='all')
  assert ids(order_labels(corpus(GOLD, DESCRIBED), config)) == 'zfedcba'
  assert ids(order_labels(corpus(GOLD), config)) == 'abcef'


def test_order_of_a_list(tmp_path):
  config = listed(tmp_path, 'c\na\n\nb\r\n')
  assert ids(order_labels(corpus(GOLD, DESCRIBED), config)) == 'cab'
  config = DataConfig(labels=str(tmp_path / 'list.txt'))
  assert ids(order_labels(corpus(GOLD), config)) == 'cab'


@pytest.mark.parametrize(
  ('text', 'what'),
  [
    ('a\nq\n', ":2: unknown label 'q': it has no descriptor"),
    ('a\nb\na\n', ":3: duplicate label 'a'"),
    ('a\tb\n', ":1: the label id 'a\\tb' has spaces around it"),
    ('\n', ': no label in it'),
  ],
)
def test_faults_of_a_list(tmp_path, text, what):
  config = listed(tmp_path, text)
  said = error_text(
    order_labels, corpus(GOLD, DESCRIBED), config, folder=tmp_path
  )
  assert said.startswith(f'list.txt{what}')


def test_a_list_without_its_faulty_lines(tmp_path):
  config = listed(tmp_path, 'a\nq\nb\na\n')
  config.on_error = OnError.SKIP
  assert ids(order_labels(corpus(GOLD, DESCRIBED), config)) == 'ab'


def test_a_list_that_is_not_there(tmp_path):
  config = DataConfig(dir=str(tmp_path), labels='frequent')
  with pytest.raises(ConfigError, match="must be 'corpus', 'all' or a file"):
    order_labels(corpus(GOLD), config)


def test_no_label_is_used():
  with pytest.raises(DataError, match='no document has a label'):
    order_labels(corpus({'train': ['']}), DataConfig())


def test_counts_are_of_train_alone():
  raw = corpus(GOLD)
  space = make_space(order_labels(raw, DataConfig()), raw)
  assert space.train_counts.tolist() == [1, 2, 1, 0, 0]
  assert (space.n_train, space.n_trained) == (4, 5)
  assert space.masks()['few'].tolist() == [True, True, True, False, False]
  raw = corpus({'dev': ['a']})
  space = make_space(order_labels(raw, DataConfig()), raw)
  assert space.n_train == 0 and space.train_counts.tolist() == [0]


def test_gold_outside_a_given_list_is_zero_shot(tmp_path):
  raw = corpus(GOLD, DESCRIBED)
  labels = order_labels(raw, listed(tmp_path, 'e\nb\n'))
  space = add_outside(make_space(labels, raw), raw)
  assert ids(space.labels) == 'ebacf'
  assert space.train_counts.tolist() == [0, 2, 0, 0, 0]
  assert space.n_trained == 2
  assert space.labels[2].name == 'A'
  assert space.masks()['zero'].tolist() == [True, False, True, True, True]


def test_slices_are_by_count():
  counts = np.array([0, 1, 49, 50, 51], np.int32)
  space = LabelSpace(tuple(Label(i) for i in 'abcde'), counts, 51, 5)
  masks = space.masks()
  assert masks['frequent'].tolist() == [False, False, False, True, True]
  assert masks['few'].tolist() == [False, True, True, False, False]
  assert masks['zero'].tolist() == [True, False, False, False, False]
  assert 'held_out' not in masks


def space_of(counts) -> LabelSpace:
  labels = tuple(Label(f'l{i:03}') for i in range(len(counts)))
  return LabelSpace(labels, np.array(counts, np.int32), 1000, len(counts))


COUNTS = np.random.default_rng(0).permutation(
  [0] * 10 + [201, 500] * 10 + [200, 1] * 5 + list(range(1, 101))
)


def test_held_out_labels_come_after_the_others():
  space = space_of(COUNTS)
  held = hold_out(space, 20, seed=3)
  assert (held.n_trained, held.n_held_out) == (len(space) - 20, 20)
  assert sorted(held.ids) == list(space.ids)
  for part in (held.ids[: held.n_trained], held.ids[held.n_trained :]):
    assert list(part) == sorted(part)
  before = space.train_counts[[space.index[id_] for id_ in held.ids]]
  n, hidden = held.n_trained, before[held.n_trained :]
  np.testing.assert_array_equal(held.train_counts[:n], before[:n])
  assert not held.train_counts[n:].any()
  assert 1 <= hidden.min() and hidden.max() <= 200
  masks = held.masks()
  assert masks['held_out'].sum() == 20
  assert not (masks['held_out'] & ~masks['zero']).any()


def test_hold_out_is_even_over_the_ranks():
  space = space_of(COUNTS)
  held = hold_out(space, 11, seed=0)
  hidden = [space.index[id_] for id_ in held.ids[held.n_trained :]]
  counts = np.sort(space.train_counts[hidden])
  candidates = np.sort(COUNTS[(COUNTS >= 1) & (COUNTS <= 200)])
  runs = candidates.reshape(11, 10)
  assert ((runs[:, 0] <= counts) & (counts <= runs[:, -1])).all()


def test_hold_out_is_seeded():
  space = space_of(COUNTS)
  first = hold_out(space, 20, seed=3)
  assert first.ids == hold_out(space, 20, seed=3).ids
  assert first.ids != hold_out(space, 20, seed=4).ids
  assert hold_out(space, 0, seed=3) is space


def test_hold_out_of_all_candidates_and_of_more():
  space = space_of([0, 1, 5, 200, 201])
  assert hold_out(space, 3, 0).ids == ('l000', 'l004', 'l001', 'l002', 'l003')
  for n in (4, -1):
    says = rf'^data.hold_out_labels={n}: must be from 0 to 3, .* 1 to 200 .*; '
    says += 'set a smaller number with --config.data.hold_out_labels=0$'
    with pytest.raises(ConfigError, match=says):
      hold_out(space, n, 0)


def test_lists_of_names_have_one_form(tmp_path):
  raw = corpus({'train': [['santé'], ['x y']]})
  config = listed(tmp_path, 'sante\u0301\nx\xa0y\nx y\n')
  labels = order_labels(raw, config)
  assert [label.id for label in labels] == ['santé', 'x y']
  given = 'sante\u0301', 'o\u0308'
  known = known_left_out(given, ['santé'], [given[1]], 'file', 'the run')
  assert known == ('santé', given[1])
