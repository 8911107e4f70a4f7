"""Checks ranking metrics by hand, by the definitions, and by their algebra."""

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
