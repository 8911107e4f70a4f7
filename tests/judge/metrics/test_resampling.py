"""Checks random weights of documents."""

import itertools

import numpy as np
import pytest

from xjax.judge.metrics.resampling import bootstrap_weights, exchange_weights


def take(columns, n):
  return np.stack(list(itertools.islice(columns, n)))


def test_draws_are_as_many_as_documents():
  counts = take(bootstrap_weights(3, 50), 2000)
  assert (counts.sum(1) == 50).all()
  np.testing.assert_allclose(counts.mean(0), 1, atol=0.12)
  # This is the variance of a binomial of 50 draws at 1 / 50 each.
  assert counts.var(0).mean() == pytest.approx(0.98, rel=0.03)


def test_swaps_are_fair_coins():
  coins = take(exchange_weights(3, 13), 4000)
  assert set(np.unique(coins)) == {0, 1}
  np.testing.assert_allclose(coins.mean(0), 0.5, atol=0.03)
  assert coins.sum(1).var() == pytest.approx(13 / 4, rel=0.1)


@pytest.mark.parametrize('columns', [bootstrap_weights, exchange_weights])
def test_seeds_and_sizes_choose_the_weights(columns):
  first = take(columns(0, 40), 5)
  np.testing.assert_array_equal(first, take(columns(0, 40), 5))
  assert (first != take(columns(1, 40), 5)).any()
  assert (first != take(columns(0, 41), 5)[:, :40]).any()
