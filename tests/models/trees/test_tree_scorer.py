"""Tests label trees as scorers: weights, slices, allowed labels, several."""

import collections

from hypothesis import given, strategies as st
import numpy as np
import pytest

from tests.fixtures.trees import make_model, make_rows
from xjax.core.ranking import Query, RankWeights
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents, SparseDocuments
from xjax.data.label_trees.label_tree import complete_tree
from xjax.judge.label_lists import LabelLists
from xjax.models.features import RowFeaturiser
from xjax.models.trees import tree_scorer
from xjax.models.trees.tree_scorer import TreeScorer
from xjax.models.trees.tree_search import Link, SearchResult, TreeSearch

N, L, K = 7, 27, 6
KINDS = {Link.SIGMOID: ScoreKind.LOGIT, Link.L3_HINGE: ScoreKind.MARGIN}
RNG = np.random.default_rng(0)
WEIGHTS_L = RNG.choice([0, 0.5, 1, 2], L).astype(np.float32)
ALLOWED_L = RNG.random(L) < 0.6
SLICES = (RNG.random(L) < 0.3, np.zeros(L, bool))


@pytest.fixture(scope='module')
def models():
  rng = np.random.default_rng(0)
  return [make_model(rng, complete_tree(L, arity)) for arity in (3, 5)]


@pytest.fixture(scope='module')
def rows():
  return make_rows(np.random.default_rng(1), N)


def documents_of(rows):
  return Documents.of(SparseDocuments('rows', rows))


def scorer_of(models, link, exact=True, beam=2, workers=1):
  searches = [TreeSearch(model.tree, model.weights, link) for model in models]
  return TreeScorer(
    searches,
    KINDS[link],
    RowFeaturiser(searches[0].weights.n_features),
    beam=beam,
    exact=exact,
    workers=workers,
    block=N,
  )


def ranked(scorer, rows, k, weights=None, slices=(), allowed=None):
  query = Query(k, tuple(slices), allowed, weights)
  lists = scorer.rank(documents_of(rows), query)
  return lists.ids_GNK, lists.scores_GNK


def logit(log_p):
  return log_p - np.log(-np.expm1(log_p))


def check(ids_K, scores_K, wanted):
  """Compares a list with (ids, scores), which may be shorter."""
  ids, scores = wanted
  assert ids_K.tolist() == ids + [PAD] * (K - len(ids))
  np.testing.assert_allclose(scores_K[: len(ids)], scores, rtol=2e-6)
  assert (scores_K[len(ids) :] == -np.inf).all()


def test_logits_do_not_saturate(models, rows):
  """Checks that logits have an order where probabilities round to 1."""
  scorer = scorer_of(models[:1], Link.SIGMOID)
  _, scores = ranked(scorer, rows * np.float32(64), K)
  best = scores[0, :, 0]
  assert np.isfinite(scores).all()
  assert best.max() > 40  # 1 / (1 + exp(-40)) is 1
  assert len(np.unique(best)) > N / 2


@pytest.mark.parametrize('link', KINDS)
def test_trees_together(models, rows, link):
  """Checks means of trees; the lists are long enough for all labels."""
  scorer = scorer_of(models, link)
  ids, scores = ranked(scorer, rows, K + 1)
  for i, row_D in enumerate(rows.toarray().astype(float)):
    sums_L = np.zeros(L)
    for model in models:
      labels, _, each = model.best(row_D, link, L)
      sums_L[labels] += np.exp(each)
    means_L = np.log(sums_L / 2)
    best = np.argsort(-means_L, kind='stable')[: K + 1]
    wanted = logit(means_L) if link is Link.SIGMOID else means_L
    np.testing.assert_allclose(scores[0, i], wanted[best], rtol=1e-5)
    np.testing.assert_allclose(wanted[ids[0, i]], wanted[best], rtol=1e-9)


@pytest.mark.parametrize(
  ('link', 'n_trees', 'exact'),
  [(Link.SIGMOID, 1, True), (Link.SIGMOID, 2, False), (Link.L3_HINGE, 2, True)],
)
def test_a_label_has_one_score_in_all_lists_of_a_document(
  models, rows, link, n_trees, exact
):
  """Checks overlapping slices with lists that are too short for all labels."""
  scorer = scorer_of(models[:n_trees], link, exact, beam=1)
  slices = (*SLICES, ALLOWED_L)
  for weights in (None, RankWeights(WEIGHTS_L)):
    ids, scores = ranked(scorer, rows, 2, weights, slices)
    alone = ranked(scorer, rows, 2, weights)
    assert ids[:1].tobytes() == alone[0].tobytes()
    assert scores[:1].tobytes() == alone[1].tobytes()
    several = 0
    for document in range(N):
      own_ids, own = ids[:, document].ravel(), scores[:, document].ravel()
      for label in set(own_ids[own_ids != PAD].tolist()):
        listed = own[own_ids == label]
        assert len(set(listed.tolist())) == 1
        several += len(listed) > 1
    assert several  # otherwise the test would check nothing
    merged = np.sort(
      LabelLists.merge(list(map(LabelLists, ids, scores))).ids, axis=1
    )
    assert ((np.diff(merged) > 0) | (merged[:, 1:] == PAD)).all()


def combined(found, k, n_labels, logs, squash):
  return tree_scorer.combine_trees([found], k, n_labels, [logs], squash)[0]


def found_in(*rows):
  """Returns a SearchResult from {label: score} of each document."""
  n, k = len(rows), max(map(len, rows))
  found = SearchResult.none(n, k)
  for i, row in enumerate(rows):
    for at, (label, score) in enumerate(row.items()):
      found.ids[i, at], found.scores[i, at] = label, score
      found.keys[i, at] = score + 100  # the keys are not used here
  return found


def test_scores_whose_exponentials_are_0():
  """Checks that scores far below 0 keep their order."""
  one = found_in({0: -5000.0, 1: -900.0})
  two = found_in({0: -5000.0, 1: -1000.0})
  ids, keys = combined([one, two], 3, 2, None, None)
  assert ids.tolist() == [[1, 0, PAD]]
  wanted = [-900 - np.log(2), -5000]
  np.testing.assert_allclose(keys[0, :2], wanted)


def random_row(rng):
  """Returns {label: score} of up to eight of twelve labels."""
  labels = rng.permutation(12)[: rng.integers(0, 9)]
  return dict(zip(labels.tolist(), rng.choice([-0.5, -1.0, -2.0], 8).tolist()))


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 14))
def test_means_are_those_of_a_slow_computation(seed, n_trees, k):
  rng = np.random.default_rng(seed)
  rows = [[random_row(rng) for _ in range(6)] for _ in range(n_trees)]
  lists = combined([found_in(*row) for row in rows], k, 12, None, None)
  for document, (ids, scores) in enumerate(zip(*lists)):
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
