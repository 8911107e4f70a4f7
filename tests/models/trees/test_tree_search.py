"""Search of label trees equals what scoring every label says."""

import functools

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from tests.fixtures.trees import make_model, make_rows, make_tree
from xjax.core.types import PAD
from xjax.data.label_trees.label_tree import complete_tree
from xjax.models.trees.tree_search import Link, LogSigmoid, TreeSearch

EVERY = 10**6
DOWN = [Link.SIGMOID, Link.L3_HINGE]  # no label is better than its node
PROBLEMS = {
  'seed': st.integers(0, 2**32),
  'n_nodes': st.integers(2, 60),
  'k': st.integers(1, 12),
  'link': st.sampled_from(DOWN),
  'squash': st.sampled_from(
    [None, LogSigmoid(1.0, 0.0), LogSigmoid(0.3, -2.0)]
  ),
}


def random_weights(rng, n_labels):
  """Logs of few values, so that there are ties, and of 0."""
  with np.errstate(divide='ignore'):
    return np.log(rng.choice([0, 0.25, 1, 1, 3], n_labels))


def assert_lists(found, model, rows, link, k, logs, squash):
  for i, row_D in enumerate(rows.toarray().astype(float)):
    ids, keys, scores = model.best(row_D, link, k, logs, squash)
    rest = k - len(ids)
    assert found.ids[i].tolist() == ids + [PAD] * rest
    wanted = [keys + [-np.inf] * rest, scores + [-np.inf] * rest]
    have = np.stack([found.keys[i], found.scores[i]])
    np.testing.assert_allclose(have, wanted, rtol=1e-12, atol=1e-12)


@settings(max_examples=100)
@given(**PROBLEMS)
def test_exact_search_and_beams_as_wide_as_the_tree_find_the_best(
  seed, n_nodes, k, link, squash
):
  rng = np.random.default_rng(seed)
  model = make_model(rng, make_tree(rng, n_nodes))
  rows = make_rows(rng, 4)
  search = TreeSearch(model.tree, model.weights, link)
  for logs in (None, random_weights(rng, model.tree.n_labels)):
    for found in (
      search.exact(rows, k, logs, squash),
      search.beam(rows, k, EVERY, logs, squash),
    ):
      assert_lists(found, model, rows, link, k, logs, squash)


def test_one_vs_all_is_a_tree_of_one_depth():
  rng = np.random.default_rng(0)
  model = make_model(rng, complete_tree(50, 50))
  rows, logs = make_rows(rng, 20), random_weights(rng, 50)
  search = TreeSearch(model.tree, model.weights, Link.NONE)
  for given_logs in (None, logs):
    for squash in (None, LogSigmoid(2.0, 1.0)):
      found = search.beam(rows, 7, 1, given_logs, squash)
      assert_lists(found, model, rows, Link.NONE, 7, given_logs, squash)
      assert (found.opened == 1).all()


@pytest.fixture(scope='module')
def large():
  """2,000 labels below 64 nodes and 8 above these, and 200 documents."""
  rng = np.random.default_rng(0)
  model = make_model(rng, complete_tree(2000, 8))
  return model, make_rows(rng, 200), rng.choice([0, 0.1, 0.5, 1, 2], 2000)


@pytest.mark.parametrize(
  ('link', 'weighed'), [(Link.SIGMOID, False), (Link.L3_HINGE, True)]
)
def test_exact_search_of_2000_labels_opens_fewer_nodes(large, link, weighed):
  model, rows, weights_L = large
  with np.errstate(divide='ignore'):
    logs = np.log(weights_L) if weighed else None
  search = TreeSearch(model.tree, model.weights, link)
  found = search.exact(rows, 10, logs)
  assert_lists(found, model, rows, link, 10, logs, None)
  # Those of the beam are counted as well, so some are counted twice.
  assert found.opened.mean() < len(model.tree.inner) / 2
  whole = search.beam(rows, 10, EVERY, logs)
  assert (whole.opened <= len(model.tree.inner)).all()
  if not weighed:
    assert (whole.opened == len(model.tree.inner)).all()


def test_a_beam_opens_the_best_nodes(large):
  """With one node of each depth: the path of the best child each time."""
  model, rows, _ = large
  tree = model.tree
  found = TreeSearch(tree, model.weights, Link.SIGMOID).beam(rows, 300, 1)
  node_NV = rows.toarray().astype(float) @ model.weights_DV + model.bias_V
  for i in range(20):
    node = 0
    while tree.degree[tree.first_child[node]]:
      children = np.arange(tree.first_child[node], tree.first_child[node + 1])
      node = children[node_NV[i, children - 1].argmax()]
    below = tree.label[tree.first_child[node] : tree.first_child[node + 1]]
    ids = found.ids[i]
    assert sorted(ids[ids != PAD]) == sorted(below.tolist())


def assert_same(one, other):
  for name in ('ids', 'keys', 'scores', 'opened'):
    assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


@settings(max_examples=60)
@given(**PROBLEMS, width=st.sampled_from([None, 1, 3]))
def test_lists_that_share_nodes_are_those_of_separate_searches(
  seed, n_nodes, k, link, squash, width
):
  rng = np.random.default_rng(seed)
  model = make_model(rng, make_tree(rng, n_nodes))
  rows = make_rows(rng, 4)
  search = TreeSearch(model.tree, model.weights, link)
  n_labels = model.tree.n_labels
  logs = [None, random_weights(rng, n_labels), np.full(n_labels, -np.inf), None]
  run = search.exact
  if width is not None:
    run = functools.partial(search.beam, width=width)
  together = search.lists(rows, k, logs, squash, width)
  for found, log_L in zip(together, logs, strict=True):
    assert_same(found, run(rows, k, log_weights_L=log_L, squash=squash))


@pytest.mark.parametrize('link', DOWN)
def test_scores_far_from_0_are_numbers(link):
  rng = np.random.default_rng(0)
  model = make_model(rng, complete_tree(20, 3))
  rows = make_rows(rng, 10) * np.float32(1e4)
  found = TreeSearch(model.tree, model.weights, link).exact(rows, 20)
  assert np.isfinite(found.keys).all() and (found.ids != PAD).all()
  assert (found.keys <= 0).all()


@settings(max_examples=60)
@given(PROBLEMS['seed'], PROBLEMS['n_nodes'])
def test_weights_of_a_label_are_those_of_its_path(seed, n_nodes):
  rng = np.random.default_rng(seed)
  model = make_model(rng, make_tree(rng, n_nodes))
  tree, search = model.tree, TreeSearch(model.tree, model.weights, Link.SIGMOID)
  n_features = len(model.weights_DV)
  wanted_LD = np.zeros((tree.n_labels, n_features))  # 0 without a node
  for label, node in zip(*tree.positive(), strict=True):
    wanted_LD[label] += model.weights_DV[:, node - 1]
  labels = np.append(rng.permutation(tree.n_labels), PAD)
  found_DK = search.feature_weights(np.arange(n_features), labels)
  np.testing.assert_array_equal(found_DK[:, :-1].T, wanted_LD[labels[:-1]])
  assert not found_DK[:, -1].any()
