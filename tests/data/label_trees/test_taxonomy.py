"""Trees of parents: who is predicted where, and what is no tree."""

from hypothesis import given, strategies as st
import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.label_trees.label_tree import NO_LABEL
from xjax.data.label_trees.taxonomy import taxonomy_tree

#      animal       plant
#     /      \        |
#   cat      dog    [tree]     tree is no label
#                   /    \
#                 oak    fir
IDS = ['animal', 'cat', 'dog', 'plant', 'oak', 'fir']
ANIMAL, CAT, DOG, PLANT, OAK, FIR = range(6)
PARENTS = {
  'cat': ['animal', 'plant'],
  'dog': ['animal'],
  'oak': ['tree'],
  'fir': ['tree'],
  'tree': ['plant'],
  'animal': (),
}


def paths(ids, parents, gold):
  """Label -> the labels, or NO_LABEL, of the nodes from the root to it."""
  tree = taxonomy_tree(ids, parents, Ragged.of(gold))
  path_of = {}
  for node in np.flatnonzero(tree.label != NO_LABEL).tolist():
    path = [node]
    while path[0]:
      path.insert(0, int(tree.parent[path[0]]))
    path_of[int(tree.label[node])] = tree.label[path[1:]].tolist()
  return path_of


CLOSED = [[CAT, ANIMAL], [ANIMAL], [OAK, PLANT], [FIR, PLANT, DOG, ANIMAL]]
NO = NO_LABEL


def test_labels_that_all_below_them_have_are_predicted_within():
  assert paths(IDS, PARENTS, CLOSED) == {
    ANIMAL: [ANIMAL],
    CAT: [ANIMAL, CAT],
    DOG: [ANIMAL, DOG],
    PLANT: [PLANT],
    OAK: [PLANT, NO, OAK],
    FIR: [PLANT, NO, FIR],
  }


@pytest.mark.parametrize('alone', [OAK, FIR])
def test_others_have_a_leaf_of_their_own(alone):
  """A document of the label below is enough, however far below that is."""
  path_of = paths(IDS, PARENTS, [*CLOSED, [alone]])
  assert path_of[PLANT] == [NO, PLANT]
  assert path_of[OAK] == [NO, NO, OAK] and path_of[FIR] == [NO, NO, FIR]
  assert path_of[ANIMAL] == [ANIMAL] and path_of[DOG] == [ANIMAL, DOG]


@pytest.mark.parametrize('gold', [[], [[OAK, PLANT, 6, 7]]])
def test_no_documents_and_labels_that_the_tree_lacks_say_nothing(gold):
  assert paths(IDS, PARENTS, gold)[PLANT] == [PLANT]


def test_parents_above_parents_that_are_no_labels():
  parents = {'a': ['x'], 'x': ['y'], 'b': ['y'], 'y': []}
  assert paths(['a', 'b'], parents, []) == {0: [NO, NO, 0], 1: [NO, 1]}
  del parents['y']
  assert paths(['a', 'b'], parents, []) == {0: [NO, NO, 0], 1: [NO, 1]}


@pytest.mark.parametrize('chain', ['aa', 'aba', 'axyx'])
def test_labels_that_are_their_own_ancestors(chain):
  parents = {label: [above] for label, above in zip(chain, chain[1:])}
  with pytest.raises(DataError, match='a label is its own ancestor'):
    taxonomy_tree(['c', 'a', 'b'], parents, Ragged.of([[0, 1], [2]]))


@given(st.data(), st.integers(1, 8))
def test_any_parents_and_documents(data, n):
  """Labels below earlier ones; whether one is closed is asked one by one."""
  above = [
    data.draw(st.none() | st.integers(0, i - 1)) if i else None
    for i in range(n)
  ]
  labels = st.lists(st.integers(0, n - 1), unique=True)
  gold = data.draw(st.lists(labels, max_size=5))
  ids = [f'l{i}' for i in range(n)]
  parents = {ids[i]: [ids[up]] for i, up in enumerate(above) if up is not None}
  path_of = paths(ids, parents, gold)
  assert sorted(path_of) == list(range(n))

  def ancestors(label):
    while (label := above[label]) is not None:
      yield label

  for label in range(n):
    below = [x for x in range(n) if label in ancestors(x)]
    is_closed = all(label in row for row in gold if {*below} & {*row})
    n_above = len([*ancestors(label)])
    assert len(path_of[label]) == n_above + 1 + (not is_closed)
    assert path_of[label][-1] == label
    assert len(set(path_of[label]) - {NO}) <= n
