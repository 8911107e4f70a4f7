"""Sums of metrics: their algebra, what is counted, and who is too short."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import jax
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.judge.metrics import sums
from xjax.judge.metrics.documents import Precision, RecallAtMost
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.metric import (
  DocumentMetric,
  Needs,
  metric_classes,
)
from xjax.judge.metrics.ranking import RankedLists, Weights
from xjax.judge.metrics.sums import DocumentBlock, Form, Sums, document_terms

L, K, P = 12, 6, 4
KS = (1, 3, 6)
METRICS = tuple(
  metric()
  for metric in metric_classes()
  if issubclass(metric, DocumentMetric)
  and metric.needs in (Needs.NOTHING, Needs.PROPENSITIES)
  and metric.__module__.startswith('xjax.')
)
FORM = Form(KS, METRICS, n_labels=L, n_thresholds=1)
WEIGHTS = Weights(np.linspace(1, 5, L))


def documents(seed, n_docs=24, size=None):
  """Random documents, some without gold, some lists short; size with rows."""
  rng = np.random.default_rng(seed)
  size = size or n_docs
  ids = np.full((size, K), PAD, np.int32)
  gold = np.full((size, P), PAD, np.int32)
  scores = np.full((size, K), -np.inf, np.float32)
  for row in range(size):
    n, g = rng.integers(0, K + 1), rng.integers(0, P + 1)
    ids[row, :n] = rng.choice(L, n, replace=False)
    scores[row, :n] = np.sort(rng.integers(-4, 5, n))[::-1] / 2
    gold[row, :g] = rng.choice(L, g, replace=False)
  whole = (ids[:, -1] == PAD) | (rng.random(size) < 0.5)
  floor = np.where(whole, np.float32(-np.inf), scores[:, -1])
  return DocumentBlock(ids, gold, np.arange(size) < n_docs, floor, scores)


def rows_of(block, kept):
  return jax.tree.map(lambda x: np.asarray(x)[kept], block)


def taken(block):
  return Sums.empty(FORM).update(block, WEIGHTS, (0.5,))


def assert_same(ours, theirs):
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    if np.asarray(a).dtype.kind == 'i':
      np.testing.assert_array_equal(a, b)
    else:
      np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)


@hypothesis.given(st.integers(0, 10**6), st.integers(1, 23))
# A smaller seed is no simpler problem: nothing is gained by shrinking.
@hypothesis.settings(
  max_examples=25, deadline=None, phases=[hypothesis.Phase.generate]
)
def test_merging_any_split_equals_the_whole(seed, n_first):
  block = documents(seed)
  order = np.random.default_rng(seed).permutation(24)
  first, second = np.zeros(24, bool), np.zeros(24, bool)
  first[order[:n_first]], second[order[n_first:]] = True, True
  # One shape: what is left out is masked.
  parts = [dataclasses.replace(block, mask_B=kept) for kept in (first, second)]
  merged = taken(parts[0]).merge(taken(parts[1]))
  assert_same(merged, taken(block))


def test_masked_rows_count_for_nothing():
  block = documents(3, n_docs=17, size=24)
  assert_same(taken(block), taken(rows_of(block, np.arange(17))))


def test_a_batch_is_its_documents():
  block = documents(4)
  with exact():
    values_MB, known_MB = document_terms(block, WEIGHTS, FORM)
    for row in range(24):
      alone = rows_of(block, slice(row, row + 1))
      value_M, known_M = (x[:, 0] for x in document_terms(alone, WEIGHTS, FORM))
      close = {'rtol': 1e-15, 'atol': 1e-15}
      np.testing.assert_allclose(values_MB[:, row], value_M, **close)
      np.testing.assert_array_equal(known_MB[:, row], known_M)


def test_eight_devices_equal_one():
  block = documents(5)
  alone = taken(block)
  auto = (jax.sharding.AxisType.Auto,)
  mesh = jax.make_mesh((8,), ('data',), axis_types=auto)
  sharded = jax.NamedSharding(mesh, jax.P('data'))
  everywhere = jax.NamedSharding(mesh, jax.P())
  with jax.enable_x64(True):
    spread = jax.tree.map(lambda x: jax.device_put(x, sharded), block)
    state, weights = jax.device_put((Sums.empty(FORM), WEIGHTS), everywhere)
    together = sums._update(state, spread, weights, np.array([0.5]))
  assert len(spread.ids_BK.sharding.device_set) == 8
  assert_same(together, alone)
  traced = sums._update._cache_size()
  with jax.set_mesh(mesh):  # as within a training run
    inside = taken(block)
  assert sums._update._cache_size() == traced
  assert_same(inside, alone)
  for state in (alone, inside):
    assert state.terms_M.dtype == np.float64
    assert state.unknown_M.dtype == np.int64
    assert len(state.terms_M.devices()) == 1
  assert not jax.config.jax_enable_x64


def test_ids_beyond_float32_are_told_apart():
  big = 2**24
  ids = np.array([[big, big + 1, big + 3, 2**31 - 1]], np.int32)
  gold = np.array([[big + 1, big + 2, 2**31 - 2]], np.int32)
  block = DocumentBlock(ids, gold, np.ones(1, bool), np.full(1, -np.inf))
  found = Sums.empty(Form((1, 2, 4), (Precision(),))).update(block).terms()
  assert [found[f'Precision.over@{k}'] for k in (1, 2, 4)] == [0, 1, 1]


def test_one_trace_for_each_shape():
  form = Form((1, 2), (Precision(), RecallAtMost()))
  state = Sums.empty(form)
  before = sums._update._cache_size()
  for seed in range(3):
    state = state.update(documents(seed, n_docs=40))
  assert sums._update._cache_size() == before + 1


@pytest.mark.parametrize('width', [3, 64, 65, 100])
def test_the_best_of_much_gold(width):
  # Up to 64 gold labels are compared in pairs, more are sorted.
  rng = np.random.default_rng(width)
  weights = 1 + rng.integers(0, 9, 300).astype(np.float64)  # many are the same
  gold = np.full((20, width), PAD, np.int32)
  for row, n in enumerate(rng.integers(0, width + 1, 20)):
    gold[row, :n] = rng.choice(300, n, replace=False)
  ids = np.array([rng.permutation(300)[:7] for _ in range(20)], np.int32)
  ks, whole = (1, 5, 7), np.ones(20, bool)
  with exact():
    lists = RankedLists.of(ids, gold, whole, ks, Weights(weights))
    best_BJ = np.asarray(lists.weighed_best_BJ)
    dcg_BJ = np.asarray(lists.weighed_best_dcg_BJ)
  for row in range(20):
    best = np.sort(weights[gold[row][gold[row] != PAD]])[::-1]
    for j, k in enumerate(ks):
      assert best_BJ[row, j] == best[:k].sum()
      gains = best[:k] / np.log2(np.arange(2, len(best[:k]) + 2))
      assert dcg_BJ[row, j] == pytest.approx(gains.sum())


def test_a_list_that_may_hide_decisions_is_counted():
  ids = np.array([[0, 1], [0, PAD]], np.int32)
  scores = np.array([[3, 1], [3, -np.inf]], np.float32)
  gold = np.array([[0, 2], [0, 3]], np.int32)
  floor = np.array([1, -np.inf], np.float32)
  block = DocumentBlock(ids, gold, np.ones(2, bool), floor, scores)
  form = Form((1, 3), (Precision(),), 4, 2)
  state = Sums.empty(form).update(block, None, (0.5, 1.0))
  # At 3, and above a half, the first list may go on; nothing more is above 1.
  np.testing.assert_array_equal(state.short_Q, [0, 1, 1, 0])
  assert state.unknown() == {'Precision.over@3': 1}
