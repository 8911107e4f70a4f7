"""Checks random weights of documents, and replicates in blocks."""

import itertools

import numpy as np
import pytest

from xjax.core.types import Ragged
from xjax.judge.metrics import resampling
from xjax.judge.metrics.labels import MacroF1
from xjax.judge.metrics.outcomes import Decisions, Outcomes
from xjax.judge.metrics.resampling import (
  Reweighing,
  draws,
  resample,
  swaps,
)


def take(columns, n):
  return np.stack(list(itertools.islice(columns, n)))


def test_draws_are_as_many_as_documents():
  counts = take(draws(3, 50), 2000)
  assert (counts.sum(1) == 50).all()
  np.testing.assert_allclose(counts.mean(0), 1, atol=0.12)
  # This is the variance of a binomial of 50 draws at 1 / 50 each.
  assert counts.var(0).mean() == pytest.approx(0.98, rel=0.03)


def test_swaps_are_fair_coins():
  coins = take(swaps(3, 13), 4000)
  assert set(np.unique(coins)) == {0, 1}
  np.testing.assert_allclose(coins.mean(0), 0.5, atol=0.03)
  assert coins.sum(1).var() == pytest.approx(13 / 4, rel=0.1)


@pytest.mark.parametrize('columns', [draws, swaps])
def test_seeds_and_sizes_choose_the_weights(columns):
  first = take(columns(0, 40), 5)
  np.testing.assert_array_equal(first, take(columns(0, 40), 5))
  assert (first != take(columns(1, 40), 5)).any()
  assert (first != take(columns(0, 41), 5)[:, :40]).any()


def outcomes(seed, n=30, labels=9):
  rng = np.random.default_rng(seed)
  chosen = rng.random((n, labels)) < 0.3
  golden = np.random.default_rng(0).random((n, labels)) < 0.3
  docs, ids = np.nonzero(chosen)
  docs, ids = docs.astype(np.int32), ids.astype(np.int32)
  return Outcomes(
    terms={'x': rng.random(n)},
    sets={'@1': Decisions(docs, ids, golden[chosen])},
    gold=Ragged.of([np.flatnonzero(row) for row in golden]),
    mask=np.ones(labels, bool),
    bins={},
    fixed={'labels': labels},
    metrics=(MacroF1(),),
  )


NAMES = {
  *('x', 'labels', 'MacroF1AtThreshold.over@1', 'labels up to largest@1'),
  'labels with gold',
}


def test_blocks_do_not_matter(monkeypatch):
  one = outcomes(1)
  weighing = Reweighing(NAMES, one.zeros(), one)
  (whole,) = resample([weighing], draws(0, 30), 37, '')
  monkeypatch.setattr(resampling, '_WEIGHTS', 4 * 30)
  (blocks,) = resample([weighing], draws(0, 30), 37, '')
  assert set(whole) == set(blocks) == NAMES
  for name in NAMES:
    assert whole[name].shape == (37,)
    np.testing.assert_allclose(whole[name], blocks[name], rtol=1e-13)
