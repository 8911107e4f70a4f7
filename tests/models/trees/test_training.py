"""Classifiers of a tree: what they learn from, and parts of them."""

import numpy as np
import pytest
from scipy import sparse

from tests.models.linear.test_block_weights import assert_same, dense
from xjax.core.types import PAD, Ragged
from xjax.data.label_trees.label_tree import (
  NO_LABEL,
  LabelTree,
  TreeInputs,
  complete_tree,
)
from xjax.models.linear.classifiers import PartFiles
from xjax.models.linear.dual import WIDTH, Loss, Solver, Workspace, solve_block
from xjax.models.trees import training
from xjax.models.trees.training import fit_tree, proposed_clusters

N, D, L = 80, 25, 9
SOLVER = Solver(Loss.SQUARED_HINGE, 1.0, 1e-3, 500)
WITHOUT = 4  # a label that no document has


@pytest.fixture(scope='module')
def data():
  """Rows, and gold with a label that the trees lack."""
  rng = np.random.default_rng(0)
  gold_NL = rng.random((N, L + 1)) < 0.2
  gold_NL[:, WITHOUT] = False
  dense_ND = rng.gamma(1, 1, (N, D)) * (rng.random((N, D)) < 0.3)
  dense_ND[:, : L + 1] += gold_NL
  rows = sparse.csr_array(dense_ND.astype(np.float32))
  return rows, Ragged.of([np.flatnonzero(row) for row in gold_NL])


@pytest.fixture(scope='module')
def tree():
  """Label 8 is a node within, below which are 0 and 1."""
  parent = [-1, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3]
  label = [-1, 8, -1, -1, 0, 1, 2, 3, 4, 5, 6, 7]
  return LabelTree.of(parent, label, L)


def train(data, tree, folder, between=lambda: None, workers=1, **options):
  rows, gold = data
  data = TreeInputs(None, gold, rows, workers=workers)
  return fit_tree(data, tree, SOLVER, PartFiles(folder), between, **options)


def columns(weights):
  """Dense weights of each node but the root, and their biases."""
  return dense(weights), weights.bias


def test_nodes_learn_from_the_documents_of_their_parents(data, tree, tmp_path):
  """Teacher forcing: what a node is not asked about it does not learn."""
  rows, gold = data
  weights_DV, bias_V = columns(train(data, tree, tmp_path))
  below = {node: set() for node in range(len(tree))}
  for label, node in zip(*tree.positive(), strict=True):
    below[int(node)].add(int(label))
  below[0] = None
  for node in tree.inner.tolist():
    first, last = tree.first_child[node : node + 2].tolist()
    own = [
      i for i in range(N) if node == 0 or below[node] & set(gold[i].tolist())
    ]
    assert node == 0 or 0 < len(own) < N
    positive = [
      [bool(below[child] & set(gold[i].tolist())) for i in own]
      for child in range(first, last)
    ]
    seed = np.random.SeedSequence([0, first]).generate_state(1)[0]
    features, wanted, bias = solve_block(
      rows, np.array(own), np.array(positive).T, SOLVER, int(seed), Workspace(D)
    )
    whole = np.zeros((D, last - first), np.float32)
    whole[features] = wanted
    seen = np.array(positive).any(1)
    nodes = np.arange(first - 1, last - 1)[seen]
    np.testing.assert_array_equal(weights_DV[:, nodes], whole[:, seen])
    np.testing.assert_array_equal(bias_V[nodes], bias[seen])


def test_labels_without_documents(data, tree, tmp_path):
  """They score less than any other label does of any document."""
  weights_DV, bias_V = columns(train(data, tree, tmp_path))
  scores_NV = data[0].toarray() @ weights_DV + bias_V
  unseen = int(np.flatnonzero(tree.label == WITHOUT)[0]) - 1
  assert not weights_DV[:, unseen].any()
  assert scores_NV[:, unseen].max() < np.delete(scores_NV, unseen, 1).min()


@pytest.fixture(scope='module')
def wide():
  """A tree with more children of a node than a block has, of several parts."""
  rng = np.random.default_rng(1)
  n_labels = 3 * WIDTH
  gold = [rng.choice(n_labels, 3, replace=False) for _ in range(N)]
  dense_ND = rng.random((N, D)) * (rng.random((N, D)) < 0.3)
  rows = sparse.csr_array(dense_ND.astype(np.float32))
  parent = [-1, 0, 0] + [1] * (2 * WIDTH + 3) + [2] * (WIDTH - 3)
  label = [NO_LABEL] * 3 + list(range(n_labels))
  return (rows, Ragged.of(gold)), LabelTree.of(parent, label, n_labels)


@pytest.fixture
def small_parts(monkeypatch):
  monkeypatch.setattr(training, '_PART', 5)


def n_parts(folder):
  return len(list(folder.glob('nodes-*')))


def test_sizes_of_parts_do_not_matter(wide, tmp_path, monkeypatch):
  data, tree = wide
  one = train(data, tree, tmp_path / '1')
  monkeypatch.setattr(training, '_PART', 5)
  assert_same(train(data, tree, tmp_path / '2'), one)
  assert n_parts(tmp_path / '2') == 1 + 3 + 1  # the second depth is long
  assert n_parts(tmp_path / '1') == 2  # one for each depth


class Stop(Exception):
  pass


def stop_after(calls):
  left = iter(range(calls))

  def between():
    if next(left, None) is None:
      raise Stop

  return between


@pytest.mark.usefixtures('small_parts')
def test_a_stopped_run_goes_on_and_ends_the_same(data, tmp_path):
  tree = complete_tree(L, 2)
  whole = train(data, tree, tmp_path / 'whole')
  n = n_parts(tmp_path / 'whole')
  assert n > 3
  for done in range(n):
    with pytest.raises(Stop):
      train(data, tree, tmp_path / 'cut', between=stop_after(0))
    assert n_parts(tmp_path / 'cut') == done + 1
  calls = []
  parts = train(
    data, tree, tmp_path / 'cut', between=lambda: calls.append(1), workers=2
  )
  assert calls == []  # all parts were there
  assert_same(parts, whole)


def same_nodes(tree, weights):
  """Predicts the same two nodes for every document."""
  assert (tree.label[tree.degree == 0] == [1, 2, 3]).all()
  assert weights.columns.tolist() == [0, 3]
  return np.tile(np.int32([2, PAD, 3]), (N, 1))


def test_labels_also_learn_from_documents_that_match_their_cluster(
  data, tree, tmp_path
):
  rows, gold = data
  alone = columns(train(data, tree, tmp_path / 'alone'))
  matched = columns(train(data, tree, tmp_path / 'all', matcher=same_nodes))
  for one, other in zip(alone, matched):  # the nodes above, and those below 1
    np.testing.assert_array_equal(one[..., :5], other[..., :5])
  has = np.array(
    [[label in gold[row] for label in (2, 3, 4)] for row in range(N)]
  )
  order = np.random.SeedSequence([0, 6]).generate_state(1)[0]
  features, weights, bias = solve_block(
    rows, np.arange(N), has, SOLVER, int(order), Workspace(D)
  )
  np.testing.assert_array_equal(matched[0][features, 5:7], weights[:, :2])
  np.testing.assert_array_equal(matched[1][5:7], bias[:2])


def test_only_the_deepest_nodes_are_trained_if_others_score_those_above(
  data, tmp_path
):
  parent_L = np.int32([1, 1, 0, 0, PAD, 2, 2, 2, 0])
  tree = LabelTree.of_clusters(parent_L, 3)
  assert tree.label.tolist() == [-1, -1, -1, -1, 2, 3, 8, 0, 1, 5, 6, 7]
  nodes_NK = np.tile(np.int32([2, PAD, 0]), (N, 1))
  options = {'matcher': proposed_clusters(nodes_NK)}
  whole = columns(train(data, tree, tmp_path / 'whole', **options))
  part = columns(train(data, tree, tmp_path, above=False, **options))
  for one, other in zip(whole, part, strict=True):
    assert one[..., :3].any()
    np.testing.assert_array_equal(one[..., 3:], other[..., 3:])
    assert not other[..., :3].any()
