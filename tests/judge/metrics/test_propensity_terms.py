"""Propensity-scored terms of documents, by hand."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.judge.metrics.documents import (
  NormalPSR,
  NormalPSRByCount,
  PSnDCGOfMeans,
)
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.ranking import RankedLists, Weights

WEIGHTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
IDS = np.array([[1, 0, 4], [3, PAD, PAD], [2, 1, 0], [0, 1, 2]], np.int32)
GOLD = np.array(
  [[4, 1, 2, PAD], [3, 0, PAD, PAD], [PAD] * 4, [3, PAD, PAD, PAD]], np.int32
)
LOG3 = math.log2(3)


def terms(ids=IDS, gold=GOLD, weights=WEIGHTS, ks=(1, 3)):
  with exact():
    whole = np.ones(len(ids), bool)
    lists = RankedLists.of(ids, gold, whole, ks, Weights(weights))
    found = {
      'w-hits': lists.weighed_hits_BJ,
      'w-best': lists.weighed_best_BJ,
      'w-DCG': lists.weighed_dcg_BJ,
      'w-best-DCG': lists.weighed_best_dcg_BJ,
      'w-nDCG': PSnDCGOfMeans().over(lists),
      'w-best-nDCG': PSnDCGOfMeans().under(lists),
      'PSR': NormalPSR().over(lists),
      'PSR-best': NormalPSR().under(lists),
      'w-R': NormalPSRByCount().over(lists),
      'w-best-R': NormalPSRByCount().under(lists),
    }
  return {name: np.asarray(values) for name, values in found.items()}


def test_by_hand():
  found = terms()
  # The first: gold 1, 2, 4 weigh 2, 4, 16; hits are 1 first and 4 third.
  first = {name: values[0].tolist() for name, values in found.items()}
  whole = 1 + 1 / LOG3 + 1 / 2
  best = 16 + 4 / LOG3 + 2 / 2
  assert first == {
    'w-hits': [2, 18],
    'w-best': [16, 22],
    'w-DCG': [2, pytest.approx(2 + 16 / 2)],
    'w-best-DCG': [16, pytest.approx(best)],
    'w-nDCG': [2, pytest.approx(10 / whole)],
    'w-best-nDCG': [16, pytest.approx(best / whole)],
    'PSR': [pytest.approx(2 / 22), pytest.approx(18 / 22)],
    'PSR-best': [pytest.approx(16 / 22), 1],
    'w-R': [pytest.approx(2 / 3), 6],
    'w-best-R': [pytest.approx(16 / 3), pytest.approx(22 / 3)],
  }


@pytest.mark.parametrize('width', [3, 64, 65, 100])
def test_the_best_of_much_gold(width):
  # Up to 64 gold labels are compared in pairs, more are sorted.
  rng = np.random.default_rng(width)
  weights = 1 + rng.integers(0, 9, 300).astype(np.float64)  # many are the same
  gold = np.full((20, width), PAD, np.int32)
  for row, n in enumerate(rng.integers(0, width + 1, 20)):
    gold[row, :n] = rng.choice(300, n, replace=False)
  ids = np.array([rng.permutation(300)[:7] for _ in range(20)], np.int32)
  found = terms(ids, gold, weights, (1, 5, 7))
  for row in range(20):
    real = weights[gold[row][gold[row] != PAD]]
    best = np.sort(real)[::-1]
    for j, k in enumerate((1, 5, 7)):
      assert found['w-best'][row, j] == best[:k].sum()
      gains = best[:k] / np.log2(np.arange(2, len(best[:k]) + 2))
      assert found['w-best-DCG'][row, j] == pytest.approx(gains.sum())


def test_weights_of_labels():
  with exact():
    lists = RankedLists.of(IDS, GOLD, np.ones(4, bool), (1,), Weights(WEIGHTS))
    found = np.asarray(lists.weights_of(jnp.asarray(IDS)))
  assert found.tolist()[:2] == [[2, 1, 16], [8, 0, 0]]
  assert found.dtype == np.float64
