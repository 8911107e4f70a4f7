"""Trees as arrays: numbered by depth, checked, kept, and asked."""

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from tests.fixtures.trees import make_tree
from xjax.core.arrays import Arrays
from xjax.core.errors import DataError
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree

# Labels 0 and 4 below node 1, which is label 2 itself; 3 below the node of 1.
# No node has label 5.
PARENT = [1, 5, 1, 6, 5, -1, 4]
LABEL = [0, 2, 4, 3, -1, -1, 1]


def small():
  return LabelTree.of(PARENT, LABEL, 6)


def test_nodes_are_numbered_by_depth_and_siblings_keep_their_order():
  tree = small()
  assert tree.label.tolist() == [-1, 2, -1, 0, 4, 1, 3]
  assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 2, 5]
  assert tree.first_child.tolist() == [1, 3, 5, 6, 6, 6, 7, 7]
  assert tree.degree.tolist() == [2, 2, 1, 0, 0, 1, 0]
  assert tree.levels.tolist() == [0, 1, 3, 6, 7]
  assert tree.inner.tolist() == [0, 1, 2, 5]
  assert tree.columns.tolist() == [0, 2, 4, 5, 6]
  assert len(tree) == 7 and tree.n_labels == 6
  assert tree.first_child.dtype == tree.label.dtype == np.int32
  assert str(tree) == '1 - 2 - 3 - 1 nodes by depth, 5 labels, 1 to 2 children'
  assert str(LabelTree.of([-1], [0], 1)) == '1 nodes by depth, 1 label'


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 40))
def test_any_tree(seed, n_nodes):
  """By its parents alone: everything else follows from them."""
  tree = make_tree(np.random.default_rng(seed), n_nodes)
  parent, label = tree.parent.tolist(), tree.label.tolist()
  assert all(above < node for node, above in enumerate(parent))
  paths = []
  for node in range(n_nodes):
    path = [node]
    while path[-1]:
      path.append(parent[path[-1]])
    paths.append(path)
  depths = [len(path) - 1 for path in paths]
  assert depths == sorted(depths) and parent == sorted(parent)
  starts = [depths.index(depth) for depth in range(max(depths) + 1)]
  assert tree.levels.tolist() == [*starts, n_nodes]
  wanted = sorted(
    (label[node], above)
    for node in range(n_nodes)
    for above in paths[node][:-1]
    if label[node] != NO_LABEL
  )
  assert list(zip(*(x.tolist() for x in tree.positive()))) == wanted
  values = np.random.default_rng(seed).normal(size=tree.n_labels)
  leaves = [n for n in range(n_nodes) if label[n] >= 0]
  assert tree.largest_below(values).tolist() == [
    max(values[label[n]] for n in leaves if v in paths[n])
    for v in range(n_nodes)
  ]
  again = LabelTree.of(parent, label, tree.n_labels)
  for name, array in tree.arrays().items():
    np.testing.assert_array_equal(again.arrays()[name], array)


@pytest.mark.parametrize(
  ('parent', 'label', 'says'),
  [
    ([-1, 2, 1], [-1, 0, 1], 'not below the root'),
    ([-1, -1], [0, 1], 'exactly one root'),
    ([-1, 7], [-1, 0], 'not a node'),
    ([-1, 0, 0], [-1, 1, 1], 'a label occurs twice'),
    ([-1, 0, 0], [-1, 1, -1], 'a leaf of the tree has no label'),
    ([-1, 0, 0], [-1, 1, 3], r'not in 0\.\.2'),
  ],
)
def test_what_is_no_tree(parent, label, says):
  with pytest.raises(DataError, match=says):
    LabelTree.of(parent, label, 3)


def taken(arrays):
  file_arrays = {f'tree/{name}': array for name, array in arrays.items()}
  return LabelTree.take(Arrays('model.npz', file_arrays), 'tree')


def test_what_is_kept_is_taken():
  arrays = small().arrays()
  again = taken(dict(arrays)).arrays()
  for name, array in arrays.items():
    np.testing.assert_array_equal(again[name], array)
    assert np.asarray(again[name]).dtype == array.dtype


def changed(name, at, value):
  def change(arrays):
    arrays[name] = arrays[name].copy()
    arrays[name][at] = value

  return change


DAMAGE = {
  'tree/label: missing': lambda a: a.pop('label'),
  'tree/first_child: is int32': lambda a: a.update(first_child=a['label']),
  'tree/n_labels: is -1': lambda a: a.update(n_labels=np.int64(-1)),
  r'tree: .* 0\.\.2': lambda a: a.update(n_labels=np.int64(3)),
  'tree: a label occurs twice': changed('label', 3, 4),
  'tree: these arrays are not a tree': changed('first_child', 0, 0),
  'tree: .* not a tree': changed(  # sums of these numbers overflow
    'first_child', slice(2, 6), [2**31 - 1] * 2 + [-(2**31)] * 2
  ),
}


@pytest.mark.parametrize('says', DAMAGE)
def test_damaged_arrays(says):
  arrays = small().arrays()
  DAMAGE[says](arrays)
  with pytest.raises(DataError, match=f'model.npz: {says}'):
    taken(arrays)
