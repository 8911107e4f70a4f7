"""Tests parts of trees that are small enough for a label encoder."""

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from tests.fixtures.trees import make_tree
from xjax.core.errors import ConfigError
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree, complete_tree
from xjax.data.label_trees.taxonomy import cut_into_segments


def paths(tree):
  """Returns {label of a leaf: labels of the nodes above it}."""
  path_of = {}
  for node in np.flatnonzero(tree.degree == 0).tolist():
    path, label = [], int(tree.label[node])
    while node:
      node = int(tree.parent[node])
      path.append(int(tree.label[node]))
    path_of[label] = path
  return path_of


def cut(tree, limit):
  ids = [f'label {i}' for i in range(tree.n_labels)]
  return cut_into_segments(tree, limit, ids, 'config.segment')


def test_of_a_complete_tree():
  """Checks 8 leaves with 6 nodes above them: each path has 3 nodes."""
  parts = list(cut(complete_tree(8, 2), 7))
  leaves = [sorted(paths(part)) for part in parts]
  assert leaves == [[0, 1, 2, 3], [4, 5, 6, 7]]
  assert [len(part) - 1 for part in parts] == [7, 7]
  leaves = [sorted(paths(part)) for part in cut(complete_tree(8, 2), 6)]
  assert leaves == [[0, 1, 2], [3, 4], [5, 6, 7]]
  (whole,) = cut(complete_tree(8, 2), 14)
  assert str(whole) == str(complete_tree(8, 2))


def test_depth_first():
  """A leaf beside a deep branch comes where it stands among its siblings."""
  tree = LabelTree.of([-1, 0, 0, 0, 2, 2], [-1, 0, -1, 3, 1, 2], 4)
  leaves = [sorted(paths(part)) for part in cut(tree, 3)]
  assert leaves == [[0, 1], [2, 3]]


def test_a_path_that_is_too_long():
  says = "config.segment=2: must be at least 3, .* path down to 'label 7' has 3"
  with pytest.raises(ConfigError, match=says):
    list(cut(complete_tree(8, 2), 2))
  assert len(list(cut(complete_tree(8, 2), 3))) == 8


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(0, 20))
def test_any_tree(seed, n_nodes, more):
  tree = make_tree(np.random.default_rng(seed), n_nodes)
  whole = paths(tree)
  limit = max(map(len, whole.values())) + more
  joined, last = {}, None
  for part in cut(tree, limit):
    assert len(part) - 1 <= limit and part.n_labels == tree.n_labels
    own = paths(part)
    assert not own.keys() & joined.keys()
    joined |= own
    last = part
  assert joined == whole  # leaves stay leaves, below the same nodes
  assert last is not None and last.label[0] == NO_LABEL
