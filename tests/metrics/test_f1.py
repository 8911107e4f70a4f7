"""F1 at a threshold: by hand, against the definition, and its algebra."""

import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.metrics import reference
from xjax.metrics.f1 import F1, ThresholdF1

L = 9


def top(scores_NL, depth):
  order = np.argsort(-scores_NL, axis=1, kind='stable')[:, :depth]
  return order.astype(np.int32), np.take_along_axis(scores_NL, order, 1)


def padded(golds, width=4):
  out = np.full((len(golds), width), PAD, np.int32)
  for row, gold in enumerate(golds):
    out[row, : len(gold)] = sorted(gold)
  return out


def problem(seed, n_docs=30):
  rng = np.random.default_rng(seed)
  # Coarse scores, so that many are just at the threshold.
  scores = (rng.integers(-4, 3, (n_docs, L)) / 2).astype(np.float32)
  golds = [
    {int(v) for v in rng.choice(L - 1, rng.integers(0, 5), replace=False)}
    for _ in range(n_docs)
  ]
  return scores, golds


def judged(ids, scores, gold, mask=None, threshold=0.0, n_labels=L):
  mask = np.ones(len(ids), bool) if mask is None else mask
  whole = (ids[:, -1] == PAD) | (ids.shape[1] >= n_labels)
  floor = np.where(whole, np.float32(-np.inf), scores[:, -1])
  return ThresholdF1.empty(L).update(ids, scores, gold, mask, floor, threshold)


def test_by_hand():
  # Above 0: {0, 1} and {1}; gold {0, 2} and {}.
  ids = np.array([[1, 0, 2], [1, 0, 2]], np.int32)
  scores = np.array([[2, 1, -1], [3, 0, -2]], np.float32)
  state = judged(ids, scores, padded([{0, 2}, set()]))
  np.testing.assert_array_equal(state.correct_L[:3], [1, 0, 0])
  np.testing.assert_array_equal(state.predicted_L[:3], [1, 2, 0])
  np.testing.assert_array_equal(state.gold_L[:3], [1, 0, 1])
  # TP 1, FP 2, FN 1; F1 of the labels 1, 0, 0.
  assert state.compute(3) == F1(2 / 5, 1 / 3)


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('threshold', [-0.5, 0.0, 0.25, 9.0])
def test_against_the_definition(seed, threshold):
  scores, golds = problem(seed)
  state = judged(*top(scores, L), padded(golds), threshold=threshold)
  f1 = state.compute(L)
  expected = reference.f1(scores, golds, range(L), threshold)
  assert (f1.micro, f1.macro) == pytest.approx(expected, abs=1e-14)


def test_merge_and_mask():
  scores, golds = problem(3)
  (ids, values), gold = top(scores, L), padded(golds)
  mask = np.arange(len(ids)) % 3 > 0
  masked = judged(ids, values, gold, mask)
  first = judged(ids[mask][:7], values[mask][:7], gold[mask][:7])
  second = judged(ids[mask][7:], values[mask][7:], gold[mask][7:])
  merged = first.merge(second)
  for name in ('correct_L', 'predicted_L', 'gold_L', 'unknown'):
    np.testing.assert_array_equal(getattr(masked, name), getattr(merged, name))
  assert masked.compute(L) == merged.compute(L)


def test_a_list_that_ends_above_the_threshold_gives_no_number():
  scores = np.array([[3, 2, 1], [3, -1, -2]], np.float32)
  ids = np.array([[0, 1, 2], [0, 1, 2]], np.int32)
  gold = padded([{0}, {1}])
  state = judged(ids, scores, gold)
  assert int(state.unknown) == 1
  assert state.compute(L) == F1(None, None)
  # At the threshold itself nothing further is above it.
  assert int(judged(ids, scores, gold, threshold=1.0).unknown) == 0
  # Nor where the list holds every label there is.
  assert int(judged(ids, scores, gold, n_labels=3).unknown) == 0
  ids[0, 2], scores[0, 2] = PAD, -np.inf
  assert int(judged(ids, scores, gold).unknown) == 0
  masked = judged(ids, scores, gold, np.zeros(2, bool), -9.0)
  assert int(masked.unknown) == 0


def test_padding_counts_for_no_label():
  ids = np.full((2, 3), PAD, np.int32)
  scores = np.full((2, 3), -np.inf, np.float32)
  state = judged(ids, scores, padded([{L - 1}, set()]), threshold=-1e9)
  np.testing.assert_array_equal(state.predicted_L, np.zeros(L))
  np.testing.assert_array_equal(state.gold_L, np.eye(L)[L - 1])


def test_no_gold_no_number():
  scores, golds = problem(4)
  none = padded([set() for _ in golds])
  assert judged(*top(scores, L), none).compute(L) == F1(None, None)
