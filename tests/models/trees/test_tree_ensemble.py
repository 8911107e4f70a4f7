"""Tests that lists of several trees become one, by means of exponentials."""

import collections

from hypothesis import given, strategies as st
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.models.trees import tree_scorer
from xjax.models.trees.tree_search import SearchResult, Squash


def combined(found, k, n_labels, logs, squash):
  """Combines the lists of several trees into one list per document."""
  return tree_scorer.combine_trees([found], k, n_labels, [logs], squash)[0]


def lists(*rows, opened=1):
  """Returns a SearchResult from {label: score} of each document."""
  n, k = len(rows), max(map(len, rows))
  found = SearchResult.none(n, k)
  for i, row in enumerate(rows):
    for at, (label, score) in enumerate(row.items()):
      found.ids[i, at], found.scores[i, at] = label, score
      found.keys[i, at] = score + 100  # the keys are not used here
  found.opened[:] = opened
  return found


def test_means_by_hand():
  """Checks means of two trees; a label that a tree does not list counts 0."""
  one = lists({4: np.log(0.5), 2: np.log(0.4)}, {}, opened=3)
  two = lists({2: np.log(0.2), 7: np.log(0.9), 4: np.log(0.1)}, {1: -1.0})
  found = combined([one, two], 3, 9, None, None)
  assert found.ids.tolist() == [[7, 2, 4], [1, PAD, PAD]]
  wanted = [[np.log(0.45), np.log(0.3), np.log(0.3)], [-1 - np.log(2)]]
  np.testing.assert_allclose(found.scores[0], wanted[0])
  assert found.scores[1, 0] == pytest.approx(wanted[1][0])
  assert (found.scores[1, 1:] == -np.inf).all()
  np.testing.assert_array_equal(found.keys, found.scores)
  assert found.opened.tolist() == [4, 4]


def test_ties_are_broken_by_label():
  one = lists({5: -1.0, 3: -1.0}, {0: -2.0})
  two = lists({3: -1.0, 5: -1.0}, {1: -2.0})
  found = combined([one, two], 2, 6, None, None)
  assert found.ids.tolist() == [[3, 5], [0, 1]]


def test_weights_and_squashes():
  """Checks that weights and squashes change keys, but not scores."""
  logs = np.log([0.5, 1, 4, 1])
  squash = Squash(2.0, 0.5)
  one = lists({0: -0.1, 1: -0.3, 2: -1.5})
  found = combined([one], 3, len(logs), logs, squash)
  scores = np.array([-0.1, -0.3, -1.5])
  keys = logs[:3] - np.log1p(np.exp(-2 * scores - 0.5))
  order = np.argsort(-keys)
  assert found.ids.tolist() == [order.tolist()] and order.tolist() != [0, 1, 2]
  np.testing.assert_allclose(found.keys[0], keys[order])
  np.testing.assert_allclose(found.scores[0], scores[order])


def test_labels_that_are_not_to_be_found():
  with np.errstate(divide='ignore'):
    logs = np.log([1.0, 0.0, 1.0])
  found = combined([lists({1: -0.1, 2: -1.0})], 2, len(logs), logs, None)
  assert found.ids.tolist() == [[2, PAD]]
  assert found.keys[0, 1] == found.scores[0, 1] == -np.inf


def test_scores_whose_exponentials_are_0():
  """Checks that scores far below 0 keep their order."""
  one = lists({0: -5000.0, 1: -900.0})
  two = lists({0: -5000.0, 1: -1000.0})
  found = combined([one, two], 3, 2, None, None)
  assert found.ids.tolist() == [[1, 0, PAD]]
  wanted = [-900 - np.log(2), -5000]
  np.testing.assert_allclose(found.scores[0, :2], wanted)


def test_nothing_is_found_at_all():
  found = combined([lists({}, {}), lists({}, {})], 2, 3, None, None)
  assert (found.ids == PAD).all() and found.ids.shape == (2, 2)


def test_a_label_has_one_score_in_all_lists():
  """Checks that all lists agree; the first lists decide where they can."""
  one, two = lists({1: -1.0, 2: -1.5}), lists({1: -2.0})
  # A search of a part of the labels may find labels that others do not.
  part = [lists({2: -1.5, 3: -3.0}), lists({3: -4.0, 2: -2.0})]
  other = [lists({3: -3.0, 0: -5.0}), lists({4: -6.0})]
  with np.errstate(divide='ignore'):
    logs = [None, np.log([0.0, 0, 1, 1, 1]), np.log([1.0, 1, 0, 1, 1])]
  searched = [[one, two], part, other]
  found = tree_scorer.combine_trees(searched, 3, 5, logs, None)
  assert [each.ids[0].tolist() for each in found] == [
    [1, 2, PAD],
    [2, 3, 4],
    [1, 3, 0],
  ]
  exps = {1: [-1, -2], 2: [-1.5], 3: [-3, -4], 0: [-5], 4: [-6]}
  wanted = {i: np.log(np.exp(each).sum() / 2) for i, each in exps.items()}
  for each in found:
    for label, score in zip(each.ids[0], each.scores[0]):
      assert label == PAD or score == pytest.approx(wanted[label])
  alone = combined([one, two], 3, 5, None, None)
  assert alone.scores.tobytes() == found[0].scores.tobytes()


def random_row(rng):
  """Returns {label: score} of up to eight of twelve labels."""
  labels = rng.permutation(12)[: rng.integers(0, 9)]
  return dict(zip(labels.tolist(), rng.choice([-0.5, -1.0, -2.0], 8).tolist()))


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 14))
def test_means_are_those_of_a_slow_computation(seed, n_trees, k):
  rng = np.random.default_rng(seed)
  rows = [[random_row(rng) for _ in range(6)] for _ in range(n_trees)]
  found = combined([lists(*row) for row in rows], k, 12, None, None)
  for document, (ids, scores) in enumerate(zip(found.ids, found.scores)):
    sums = collections.defaultdict(float)
    for row in rows:
      for label, score in row[document].items():
        sums[label] += np.exp(score) / n_trees
    n = min(k, len(sums))
    assert len(set(ids[:n].tolist())) == n and (ids[n:] == PAD).all()
    wanted = np.log([sums[label] for label in ids[:n].tolist()])
    np.testing.assert_allclose(scores[:n], wanted, rtol=1e-12, atol=1e-12)
    best = np.log(sorted(sums.values(), reverse=True)[:n])
    np.testing.assert_allclose(scores[:n], best, rtol=1e-12, atol=1e-12)
    assert (np.diff(scores[:n]) <= 0).all() and (scores[n:] == -np.inf).all()
