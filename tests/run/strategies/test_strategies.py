"""Compares strategies with their definitions over dense probabilities."""

import functools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.fixtures.dense_lists import Table, rows_of
from xjax.core.ranking import Query
from xjax.core.types import PAD, ScoreKind
from xjax.run.strategies.strategies import (
  GreedyCoverage,
  RankedDocuments,
  document_order,
  select_by_coverage,
  select_by_weight,
)

N, L = 60, 40
KINDS = list(ScoreKind)
SIGMOID = (1.7, -0.4)  # makes probabilities of margins


class CountedTable(Table):
  asked = 0

  def rank(self, documents, query):
    assert not query.slices and query.allowed is None
    if query.weights is not None:
      values = query.weights.values
      assert values.dtype == np.float32 and values.max() == 1
    self.asked += len(documents)
    return super().rank(documents, query)


def logits(seed, n=N, n_labels=L, scale=2.0):
  """Returns logits of frequent and rare labels; no two logits are equal."""
  rng = np.random.default_rng(seed)
  drawn = scale * rng.standard_normal((n, n_labels))
  drawn -= rng.exponential(scale, n_labels)
  return drawn.astype(np.float32)


def ranked(logits_NL, kind, known=5):
  """Returns documents whose scores of this kind mean the given logits."""
  scores_NL = logits_NL.astype(np.float64)
  match kind:
    case ScoreKind.MARGIN:
      scores_NL = (scores_NL - SIGMOID[1]) / SIGMOID[0]
    case ScoreKind.PROBABILITY:
      scores_NL = 1 / (1 + np.exp(-scores_NL))
  scorer = CountedTable(scores_NL, kind)
  n = len(logits_NL)
  lists = known_of(scorer, n, known) if known else None
  return RankedDocuments(scorer, rows_of(n), SIGMOID, lists)


def known_of(scorer, n, k):
  lists = scorer.rank(rows_of(n), Query(k))
  scorer.asked = 0
  return lists.ids_GNK[0], lists.scores_GNK[0]


def meant_logits(documents):
  """Returns the logits that scores mean that are no probabilities."""
  is_margin = documents.scorer.score_kind is ScoreKind.MARGIN
  a, b = SIGMOID if is_margin else (1, 0)
  return a * documents.scorer.scores.astype(np.float64) + b


def probabilities(documents):
  scores_NL = documents.scorer.scores.astype(np.float64)
  if documents.scorer.score_kind is ScoreKind.PROBABILITY:
    return scores_NL
  return 1 / (1 + np.exp(-meant_logits(documents)))


def log_misses(documents):
  """Returns log(1 - p), float64 [N, L]; exact even where p rounds to 1."""
  scores_NL = documents.scorer.scores.astype(np.float64)
  if documents.scorer.score_kind is ScoreKind.PROBABILITY:
    return np.log1p(-scores_NL)
  return -np.logaddexp(0, meant_logits(documents))


def best(gains_L, k):
  """Returns k labels of the highest gains above 0; lower labels win ties."""
  at = np.argsort(-gains_L, kind='stable')[:k]
  return at[gains_L[at] > 0]


def padded(rows, k):
  out = np.full((len(rows), k), PAD, np.int32)
  for row, ids in enumerate(rows):
    out[row, : len(ids)] = ids
  return out


def algorithm_1(p_NL, k, beta, order_N):
  """Runs Algorithm 1 of Schultheis et al. 2022; gains are of Section 5.3."""
  f_L = np.ones(p_NL.shape[1])
  found = [None] * len(p_NL)
  for row in order_N:
    found[row] = best((f_L + beta) * p_NL[row], k)
    f_L[found[row]] *= 1 - p_NL[row, found[row]]
  return padded(found, k)


def assert_raw_scores(found, documents, rtol):
  raw_NL, ids_NK = documents.scorer.scores, found.ids_NK
  wanted = np.take_along_axis(raw_NL, ids_NK, 1)
  np.testing.assert_allclose(found.scores_NK, wanted, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('beta', [0.0, 0.25])
def test_coverage_is_algorithm_1(kind, beta):
  documents = ranked(logits(0), kind)
  found = select_by_coverage(documents, 4, beta, seed=3)
  p_NL = probabilities(documents)
  order_N = document_order(3, N)
  expected = algorithm_1(p_NL, 4, beta, order_N)
  np.testing.assert_array_equal(found.ids_NK, expected)
  assert_raw_scores(found, documents, rtol=1e-4)
  assert (np.diff(found.ranks_NK) <= 0).all()
  # Another order of the documents gives other lists.
  assert (expected != algorithm_1(p_NL, 4, beta, np.arange(N))).any()


@pytest.mark.parametrize('beta', [0.0, 1.0])
@pytest.mark.parametrize('listed', [2, 6, 40])
@pytest.mark.parametrize('window', [1, 60])
def test_what_is_asked_for_changes_nothing(beta, listed, window):
  """Checks lists that are just long enough, and lists of all labels."""
  seed = listed + window
  documents = ranked(logits(seed), ScoreKind.LOGIT)
  greedy = GreedyCoverage(documents, 2, beta, listed, window)
  order_N = document_order(seed, N)
  ids_NK, *_ = greedy.cover(order_N)
  p_NL = probabilities(documents)
  np.testing.assert_array_equal(ids_NK, algorithm_1(p_NL, 2, beta, order_N))
  again = documents.scorer.asked - N
  if window == 1 or listed == L:
    assert not again
  elif window == 60 and listed == 2:
    assert again


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('listed', [3, 12])
@pytest.mark.parametrize('window', [1, 30])
def test_of_equal_gains_the_lower_label_comes_first(kind, listed, window):
  """Checks that equally probable labels are selected in turn."""
  documents = ranked(np.full((30, 12), 0.5, np.float32), kind, known=12)
  greedy = GreedyCoverage(documents, 3, 0.0, listed, window)
  ids_NK, *_ = greedy.cover(np.arange(30))
  again = documents.scorer.asked - 30
  in_turn = np.tile(np.arange(12).reshape(4, 3), (8, 1))[:30]
  np.testing.assert_array_equal(ids_NK, in_turn)
  assert (again > 0) == (window > 1 and listed < 12)


@hypothesis.settings(max_examples=60)
@hypothesis.example(310, 19, 8, 1, 100.0, ScoreKind.LOGIT, 12)
@hypothesis.given(
  seed=st.integers(0, 1000),
  n=st.integers(1, 30),
  n_labels=st.integers(1, 12),
  k=st.integers(1, 6),
  beta=st.sampled_from([0.0, 0.25, 1.0, 100.0]),
  kind=st.sampled_from(KINDS),
  scale=st.sampled_from([0.5, 3, 12]),
)
def test_coverage_of_any_problem(seed, n, n_labels, k, beta, kind, scale):
  """Checks few and certain labels, whose gains fall by many orders.

  Near ties may differ, so the gains of the selected labels are compared.
  """
  drawn = logits(seed, n, n_labels, scale)
  if kind is ScoreKind.PROBABILITY:
    drawn = np.clip(drawn, -80, 9)  # float32 must hold p and 1 - p
  documents = ranked(drawn, kind, known=12)
  found = select_by_coverage(documents, k, beta, seed)
  p_NL, log_misses_NL = probabilities(documents), log_misses(documents)
  log_f_L = np.zeros(n_labels)
  for row in document_order(seed, n):
    with np.errstate(divide='ignore'):
      gains_L = np.logaddexp(log_f_L, np.log(float(beta))) + np.log(p_NL[row])
    ids = found.ids_NK[row][found.ids_NK[row] != PAD]
    assert len(set(ids)) == len(ids) == min(k, n_labels)
    np.testing.assert_allclose(
      gains_L[ids], -np.sort(-gains_L)[:k], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
      found.ranks_NK[row, : len(ids)], gains_L[ids], rtol=1e-5, atol=1e-5
    )
    log_f_L[ids] += log_misses_NL[row, ids]


def test_gains_fall_further_than_float32_goes():
  """Checks Algorithm 1 where f falls far below the range of float32."""
  drawn = np.tile(np.array([3, 2, 1, 0, -1], np.float32), (400, 1))
  drawn += np.random.default_rng(0).normal(0, 0.1, drawn.shape)
  documents = ranked(drawn.astype(np.float32), ScoreKind.LOGIT)
  greedy = GreedyCoverage(documents, 2, 0.0, listed=2)
  ids_NK, logs_NK, _ = greedy.cover(np.arange(400))
  assert logs_NK.min() < -110  # float32 ends at -103
  expected = algorithm_1(probabilities(documents), 2, 0, np.arange(400))
  np.testing.assert_array_equal(ids_NK, expected)


@pytest.mark.parametrize('kind', KINDS)
def test_weighted_is_weight_times_probability(kind):
  documents = ranked(logits(1), kind)
  rng = np.random.default_rng(1)
  weights_L = rng.exponential(5, L)
  weights_L[::5] = 0
  found = select_by_weight(documents, 6, np.append(weights_L, 1e6))
  gains_NL = weights_L * probabilities(documents)
  expected = padded([best(gains_L, 6) for gains_L in gains_NL], 6)
  np.testing.assert_array_equal(found.ids_NK, expected)
  np.testing.assert_allclose(
    found.ranks_NK, np.log(np.take_along_axis(gains_NL, expected, 1)), rtol=1e-5
  )
  assert_raw_scores(found, documents, rtol=1e-5)


def test_weights_that_select_few_labels_or_none():
  documents = ranked(logits(1), ScoreKind.LOGIT)
  weights_L = np.zeros(L)
  none = select_by_weight(documents, 3, weights_L)
  assert (none.ids_NK == PAD).all()
  assert np.isneginf(none.ranks_NK).all() and np.isneginf(none.scores_NK).all()
  weights_L[[8, 5]] = 1e300
  few = select_by_weight(documents, 3, weights_L)
  np.testing.assert_array_equal(np.sort(few.ids_NK), [[PAD, 5, 8]] * N)
  assert np.isneginf(few.scores_NK[:, 2]).all()


EVERY = pytest.mark.parametrize(
  'strategy',
  [
    functools.partial(select_by_weight, weights_L=np.ones(3)),
    select_by_coverage,
    functools.partial(select_by_coverage, beta=1.0),
  ],
  ids=['weighted', 'covering', 'beta'],
)


@EVERY
@pytest.mark.parametrize('kind', KINDS)
def test_fewer_labels_than_asked_for(strategy, kind):
  documents = ranked(logits(0, 9, 3), kind)
  found = strategy(documents, 5)
  assert (np.sort(found.ids_NK)[:, 2:] == [0, 1, 2]).all()
  assert (found.ids_NK[:, 3:] == PAD).all()
  for values_NK in (found.ranks_NK, found.scores_NK):
    assert (np.isneginf(values_NK) == (found.ids_NK == PAD)).all()


@EVERY
@pytest.mark.parametrize('n', [0, 4])
def test_empty_lists_and_no_documents(strategy, n):
  scorer = Table(np.full((n, 3), -np.inf), ScoreKind.MARGIN)
  found = strategy(RankedDocuments(scorer, rows_of(n), SIGMOID), 2)
  assert found.ids_NK.shape == found.ranks_NK.shape == (n, 2)
  assert (found.ids_NK == PAD).all() and np.isneginf(found.ranks_NK).all()


def test_certain_labels_are_covered_at_once():
  """Checks that probability 1 gains nothing later, and 0 gains nothing."""
  scores_NL = np.array([[1, 0.5, 0, 0], [1, 0.5, 0.25, 0]], np.float32)
  scorer = CountedTable(scores_NL, ScoreKind.PROBABILITY)
  known = known_of(scorer, 2, 4)
  documents = RankedDocuments(scorer, rows_of(2), known=known)
  ids_NK, *_ = GreedyCoverage(documents, 2, 0.0).cover(np.arange(2))
  np.testing.assert_array_equal(ids_NK, [[0, 1], [1, 2]])
