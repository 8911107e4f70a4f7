"""Propensities against the formula."""

import math

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.data.formats.xc_files import read_xc
from xjax.data.schema import propensity_weights


@pytest.mark.parametrize(('a', 'b'), [(0.55, 1.5), (0.6, 2.6)])
def test_propensities_by_hand(a, b):
  weights = propensity_weights(np.array([0, 1, 100], np.int32), 1000, a, b)
  c = (math.log(1000) - 1) * (b + 1) ** a
  expected = [1 + c * (n + b) ** -a for n in (0, 1, 100)]
  np.testing.assert_allclose(weights, expected, rtol=1e-14)
  assert weights.dtype == np.float64 and (np.diff(weights) < 0).all()
  # With n_l + B = B + 1 the formula is 1 + (ln N - 1).
  assert weights[1] == pytest.approx(math.log(1000), rel=1e-14)


def test_the_usual_propensities_need_three_documents():
  usual = propensity_weights(np.array([5]), 1000)
  assert usual == propensity_weights(np.array([5]), 1000, 0.55, 1.5)
  with pytest.raises(DataError, match='at least 3'):
    propensity_weights(np.array([1]), 2)


@pytest.mark.real_data
def test_those_of_bibtex(data_dir):
  gold = read_xc(data_dir / 'bibtex' / 'train.txt', features=False).labels
  counts = np.bincount(gold.values, minlength=159)
  assert counts[[0, 1, 2, 56, 134]].tolist() == [39, 85, 51, 28, 691]
  weights = propensity_weights(counts, len(gold), 0.55, 1.5)
  c = (math.log(4880) - 1) * 2.5**0.55
  by_hand = [1 + c * (n + 1.5) ** -0.55 for n in (39, 85, 51, 28, 691)]
  # As napkinXC 0.7.2 computes them in float64.
  theirs = [2.619633337659476, 2.0669845015374966, 2.4042012437437434]
  theirs += [2.928034769059508, 1.3398490752239192]
  for expected in (by_hand, theirs):
    found = weights[[0, 1, 2, 56, 134]]
    np.testing.assert_allclose(found, expected, rtol=1e-14)
  assert weights.sum() == pytest.approx(369.59091369060343, rel=1e-13)
  assert (weights.max(), weights.min()) == (weights[56], weights[134])
