import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.numerics import column_sums, total


@pytest.mark.parametrize('shape', [(1, 1), (5, 1), (1, 7), (16, 131)])
def test_definition(shape):
  x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  exact = x.astype(np.float64)
  np.testing.assert_allclose(total(x), exact.sum(), 1e-6, 1e-5)
  np.testing.assert_allclose(column_sums(x), exact.sum(axis=0), 1e-6, 1e-6)


@pytest.mark.parametrize('bad', [np.inf, np.nan])
def test_what_is_not_finite_is_not_hidden(bad):
  x_BC = jnp.ones((3, 4)).at[1, 2].set(bad)
  assert not np.isfinite(total(x_BC))
  finite_C = np.isfinite(column_sums(x_BC))
  np.testing.assert_array_equal(finite_C, [True, True, False, True])


@pytest.mark.parametrize('sums', [total, column_sums])
def test_operands_of_cpus_alone_are_products(sums):
  traced = jax.jit(sums).trace(jnp.ones((4, 6)))
  for platform, product in (('cpu', True), ('tpu', False), ('cuda', False)):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ('dot_general' in text) == product, platform


@pytest.mark.parametrize('sums', [total, column_sums])
def test_digits_are_not_rounded_to_those_of_bfloat16(sums):
  x_BC = jnp.full((8, 8), 1 + 2.0**-20)
  np.testing.assert_array_equal(sums(x_BC) % 1 > 0, True)
