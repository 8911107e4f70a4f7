"""Checks ranking metrics by hand, by the definitions, and by their algebra."""

import math

import jax
from jax.sharding import AxisType
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.judge.metrics import sums
from xjax.judge.metrics.documents import (
  NDCG,
  NormalPSR,
  NormalPSRByCount,
  Precision,
  PSnDCGOfMeans,
  Recall,
  RecallAtMost,
  RPrecision,
)
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.metric import MetricPoints, measures
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.metrics.ranking import RankedLists, Weights
from xjax.judge.metrics.sums import DocumentBlock, Form, Sums

KS = (1, 3, 5, 10)
METRICS = Precision(), Recall(), RecallAtMost(), NDCG(), RPrecision()


def padded(golds, width=8):
  out = np.full((len(golds), width), PAD, np.int32)
  for row, gold in enumerate(golds):
    # The labels are not in ascending order: the metrics must not need that.
    out[row, : len(gold)] = list(gold)[::-1]
  return out


def judged(ids, gold, ks=KS, n_labels=12, all_listed=None):
  """The sums of these documents, and the metrics made of them."""
  if all_listed is None:
    all_listed = (ids[:, -1] == PAD) | (ids.shape[1] >= n_labels)
  floor = np.where(all_listed, np.float32(-np.inf), np.float32(0))
  state = Sums.empty(Form(ks, METRICS))
  return state.update(DocumentBlock(ids, gold, np.ones(len(ids), bool), floor))


def table(ks):
  return {
    name: measure
    for name, measure in measures(XJAX, MetricPoints(ks)).items()
    if measure.metric in METRICS
  }


def values_of(state):
  return {
    name: float(measure.value(state.terms()))
    for name, measure in table(state.form.ks).items()
  }


def unknown_of(state):
  """Metric -> documents whose list is too short for it."""
  unknown = state.unknown()
  return {
    name: unknown[measure.over]
    for name, measure in table(state.form.ks).items()
    if measure.over in unknown
  }


def test_by_hand():
  # The gold labels are 4, 7, 9 and the list is 7, 1, 9, 2: places 1 and 3 hit.
  ids = np.array([[7, 1, 9, 2]], np.int32)
  state = judged(ids, padded([{4, 7, 9}]), ks=(1, 2, 4), n_labels=100)
  dcg = 1 + 1 / math.log2(4)
  ideal2, ideal3 = 1 + 1 / math.log2(3), dcg + 1 / math.log2(3)
  by_k = {
    'P': (1, 1 / 2, 2 / 4),
    'R': (1 / 3, 1 / 3, 2 / 3),
    'RP': (1, 1 / 2, 2 / 3),
    'nDCG': (1, 1 / ideal2, dcg / ideal3),
  }
  wanted = {'R-Precision': 2 / 3}
  for kind, values in by_k.items():
    wanted |= {f'{kind}@{k}': v for k, v in zip((1, 2, 4), values)}
  assert values_of(state) == pytest.approx(wanted, abs=1e-15)


def test_a_list_that_is_too_short_is_counted():
  # Two labels are saved; the second document has more gold labels.
  ids = np.array([[0, 1], [2, 3], [4, 5]], np.int32)
  gold = padded([{0}, {2, 6, 7}, set()])
  state = judged(ids, gold, ks=(1, 2, 3), n_labels=10)
  # The first document has found all its gold; nothing deeper can change it.
  names = 'P@3', 'R@3', 'RP@3', 'nDCG@3', 'R-Precision'
  assert unknown_of(state) == dict.fromkeys(names, 1)
  assert values_of(state)['P@2'] == (1 / 2 + 1 / 2) / 2


def test_what_is_left_of_a_list_may_be_too_short():
  # The first document has one label left, and there may be more of them.
  ids = np.array([[0, PAD, PAD], [2, 3, PAD]], np.int32)
  gold = padded([{0, 1}, {2}])
  state = judged(ids, gold, ks=(1, 2), all_listed=np.array([False] * 2))
  names = 'P@2', 'R@2', 'RP@2', 'nDCG@2', 'R-Precision'
  assert set(unknown_of(state)) == set(names)
  assert values_of(state)['P@1'] == 1
  state = judged(ids, gold, ks=(1, 2), all_listed=np.array([True] * 2))
  assert unknown_of(state) == {}
  assert values_of(state)['P@2'] == 0.5


@pytest.mark.parametrize('n_labels', [2, 1])
def test_a_list_of_all_labels_is_deep_enough(n_labels):
  ids = np.array([[0, 1]], np.int32)
  gold = padded([{0, 6, 7}])
  values = values_of(judged(ids, gold, ks=(3,), n_labels=n_labels))
  assert values['P@3'] == values['R-Precision'] == 1 / 3
  short = np.array([[0, PAD]], np.int32)
  assert values_of(judged(short, gold, ks=(3,), n_labels=9)) == values


def test_sums_have_64_bits_in_any_mesh():
  rng = np.random.default_rng(8)
  ids = np.stack([rng.permutation(12)[:10] for _ in range(40)]).astype(np.int32)
  gold = padded([rng.permutation(12)[: i % 7].tolist() for i in range(40)])
  plain = judged(ids, gold)
  before = sums._update._cache_size()
  mesh = jax.make_mesh(
    (2, 4), ('data', 'label'), axis_types=(AxisType.Auto,) * 2
  )
  with jax.set_mesh(mesh):
    inside = judged(ids, gold)
  assert sums._update._cache_size() == before
  for state in (plain, inside):
    assert state.terms_M.dtype == np.float64
    assert state.unknown_M.dtype == np.int64
    assert len(state.terms_M.devices()) == 1
  assert values_of(inside) == values_of(plain)
  assert not jax.config.jax_enable_x64


def terms(ids, gold, weights, ks):
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


def test_propensity_scored_terms_by_hand():
  # Gold 1, 2, 4 weigh 2, 4, 16; hits are 1 first and 4 third.
  ids, gold = np.int32([[1, 0, 4]]), np.int32([[4, 1, 2, PAD]])
  found = terms(ids, gold, np.array([1.0, 2.0, 4.0, 8.0, 16.0]), (1, 3))
  whole = 1 + 1 / math.log2(3) + 1 / 2
  best = 16 + 4 / math.log2(3) + 2 / 2
  assert {name: values[0].tolist() for name, values in found.items()} == {
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
