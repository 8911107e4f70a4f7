"""Tests the hierarchy of labels."""

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import build_corpus
from xjax.data.schema import Document, Label, Labels, LabelSpace, load_concepts


def hierarchy(parents: dict[str, str], n_labels: int | None = None):
  """Makes a hierarchy from label -> parents, each parent one letter."""
  labels = [Label(id_, parents=tuple(above)) for id_, above in parents.items()]
  n = len(labels) if n_labels is None else n_labels
  return Hierarchy.of(labels[:n], labels[n:])


def test_a_diamond_has_two_parents_and_the_ancestors_of_both():
  diamond = hierarchy({'d': 'bc', 'b': 'a', 'c': 'a', 'a': ''})
  assert diamond.levels.tolist() == [3, 2, 2, 1]
  assert diamond.ancestors[0].tolist() == [1, 2, 3]
  assert diamond.children[3].tolist() == [1, 2]
  assert diamond.first_parents.tolist() == [1, 3, 3, PAD]


TWENTY = 'abcdefghijklmnopqrst'


@pytest.mark.parametrize(
  ('parents', 'levels', 'above_the_last'),
  [
    ({'a': '', 'b': 'a', 'c': 'ab'}, [1, 2, 2], [0, 1]),  # the shortest path
    ({'a': '', 'b': ''}, [1, 1], []),
    (dict(zip(TWENTY, ['', *TWENTY])), [*range(1, 21)], [*range(19)]),
  ],
)
def test_levels_and_ancestors(parents, levels, above_the_last):
  found = hierarchy(parents)
  assert found.levels.tolist() == levels
  assert found.ancestors[len(parents) - 1].tolist() == above_the_last
  assert found.is_flat == (levels == [1, 1])


@pytest.mark.parametrize('cycle', ['abca', 'aa'])
def test_a_cycle_is_an_error_that_names_its_labels(cycle):
  with pytest.raises(DataError, match='its own ancestor.*remove one of'):
    hierarchy({'x': 'a', **dict(zip(cycle, cycle[1:]))})


def test_a_parent_without_a_descriptor_becomes_a_node():
  orphan = hierarchy({'a': 'z'})
  assert list(orphan.ids) == ['a', 'z']
  assert orphan.n_labels == 1
  assert orphan.labels[1].name == 'z'


def test_concepts_come_after_labels_and_what_occurs_twice_counts_once():
  concepts = Label('a', 'other'), Label('c', 'gamma'), Label('c', 'other')
  labels = [Label('a', 'alpha', parents=('c', 'b', 'c'))]
  joined = Hierarchy.of(labels, concepts)
  assert [x.name for x in joined.labels] == ['alpha', 'gamma', 'b']
  assert joined.parents[0].tolist() == [1, 2]
  assert joined.children[1].tolist() == [0]


@pytest.mark.parametrize('dev', ['o', 'x', 'qox', 'b'])
def test_gold_of_dev_decides_no_node(tmp_path, dev):
  """The label x has neither parents nor children."""
  parents = {'b': 'a', 'q': 'a', 'o': 'a', 'x': '', 'a': ''}
  labels = [Label(id_, parents=tuple(up)) for id_, up in parents.items()]
  (tmp_path / 'list.txt').write_text('a\nb\n')
  data = DataConfig(dir=str(tmp_path), labels='list.txt')
  graphs = []
  for gold in ('', dev):
    train = [Document('1', {'text': 'one'}, ('a',))]
    splits = {'train': train, 'dev': [Document('2', {}, tuple(gold))]}
    raw = SourceCorpus.of('it', labels, splits)
    space = build_corpus(raw, data, seed=0).label_space
    graphs.append(Hierarchy.of_space(space, space.n_trained))
  assert [list(graph.ids) for graph in graphs] == [['a', 'b', 'q', 'o']] * 2
  assert graphs[1].children[0].tolist() == [1, 2, 3]
  # All labels that are judged are labels of the hierarchy of judging.
  assert Hierarchy.of_space(space).n_labels == len(space)


def test_rows_get_the_ancestors_of_their_nodes_once():
  tree = hierarchy({'a': '', 'b': 'a', 'c': 'a', 'd': 'c'})
  closed = tree.with_ancestors(Ragged.of([[1, 2], [], [3, 0], [0]]))
  rows = [closed[i].tolist() for i in range(len(closed))]
  assert rows == [[0, 1, 2], [], [0, 2, 3], [0]]


def test_the_ancestors_of_random_graphs_equal_a_slow_search():
  rng = np.random.default_rng(0)
  names = [str(i) for i in range(40)]
  above = [rng.choice(i, min(i, rng.integers(4)), False) for i in range(40)]
  order = rng.permutation(40)
  parents = [tuple(names[p] for p in row) for row in above]
  graph = Hierarchy.of([Label(names[i], parents=parents[i]) for i in order])

  def slow(i: int) -> set[str]:
    return {names[p] for p in above[i]}.union(*(slow(p) for p in above[i]))

  for node, i in enumerate(order):
    assert {graph.ids[a] for a in graph.ancestors[node]} == slow(i)


def test_a_concept_above_all_others_is_known():
  parents = {'a': 'z', 'b': 'a', 'c': 'z', 'x': '', 'z': ''}
  assert hierarchy(parents, 4).top_concept == 4  # x is above nothing
  assert hierarchy(parents).top_concept is None  # z is a label
  assert hierarchy({**parents, 'c': 'x'}, 4).top_concept is None
  assert hierarchy({'a': '', 'b': ''}).top_concept is None


def test_the_hierarchy_of_other_labels():
  tree = hierarchy({'a': 'b', 'b': 'c', 'c': '', 'd': 'b'}, 2)
  moved = tree.for_labels(['c', 'new', 'd'])
  assert list(moved.ids) == ['c', 'new', 'd', 'a', 'b'] and moved.n_labels == 3
  parents = [[moved.ids[p] for p in moved.parents[i]] for i in range(5)]
  assert parents == [[], [], ['b'], ['b'], ['c']]


def test_concepts_are_saved_in_the_form_of_labels(tmp_path):
  parts = [Label('a')], np.zeros(1, np.int32), 0, 1
  space = LabelSpace(*parts, concepts=[Label('b', 'beta')])
  space.save_concepts(tmp_path / 'concepts.jsonl')
  assert load_concepts(tmp_path / 'concepts.jsonl') == space.concepts
  assert load_concepts(tmp_path / 'none.jsonl') == Labels.of(())
