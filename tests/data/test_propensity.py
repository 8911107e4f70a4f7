"""Propensities against the formula."""

import math

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.data.propensity import propensity_weights
from xjax.data.schema import Label, LabelSpace


def test_propensities_by_hand():
  weights = propensity_weights(np.array([0, 1, 100]), 1000)
  c = (math.log(1000) - 1) * 2.5**0.55
  expected = [1 + c * (n + 1.5) ** -0.55 for n in (0, 1, 100)]
  np.testing.assert_allclose(weights, expected, rtol=1e-14)
  assert weights.dtype == np.float64
  # With n_l + B = B + 1 the formula is 1 + (ln N - 1).
  assert propensity_weights(np.array([1]), 1000, 0.6, 2.6)[0] == (
    pytest.approx(math.log(1000), rel=1e-14)
  )
  with pytest.raises(DataError, match='at least 3'):
    propensity_weights(np.array([1]), 2)


def test_a_label_space_has_them():
  labels = tuple(Label(i) for i in 'abc')
  space = LabelSpace(labels, np.array([0, 1, 100], np.int32), 1000, 3)
  c = (math.log(1000) - 1) * 3.6**0.6
  expected = [1 / (1 + c * (n + 2.6) ** -0.6) for n in (0, 1, 100)]
  np.testing.assert_allclose(space.propensities(0.6, 2.6), expected, rtol=1e-14)
  assert (np.diff(space.propensities()) > 0).all()
