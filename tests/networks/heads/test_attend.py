"""Attention's gradients, written out, against those that JAX finds itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import assert_close
from xjax.networks.heads.attend import attend, attend_with_one_row, token_mask
from xjax.networks.heads.head import TokenFeatures

B, T, D, C = 4, 5, 6, 3
LENGTHS = np.array([5, 2, 1, 0], np.int32)
REAL_BT = np.arange(T) < LENGTHS[:, None]


def draw(seed=0, scale=1.0):
  """Hidden states, 0 at padding, and two rows for each label."""
  rng = np.random.default_rng(seed)
  hidden_BTD = rng.normal(size=(B, T, D)) * REAL_BT[..., None]
  rows = rng.normal(size=(2, C, D)) * scale
  return jnp.asarray(hidden_BTD, jnp.float32), *jnp.asarray(rows, jnp.float32)


def mask(hidden_BTD):
  return token_mask(TokenFeatures(hidden_BTD, jnp.asarray(LENGTHS)))


def plain(hidden_BTD, attention_CD, output_CD):
  """The same with [B, C, D] vectors and no gradient of its own."""
  score_BTC = jnp.einsum('BTD,CD->BTC', hidden_BTD, attention_CD)
  score_BTC = jnp.where(REAL_BT[..., None], score_BTC, -1e30)
  alpha_BTC = jax.nn.softmax(score_BTC, axis=1)
  vector_BCD = jnp.einsum('BTC,BTD->BCD', alpha_BTC, hidden_BTD)
  return jnp.einsum('BCD,CD->BC', vector_BCD, output_CD)


def by_two(hidden_BTD, attention_CD, output_CD):
  return attend(hidden_BTD, mask(hidden_BTD), attention_CD, output_CD)


def by_one(hidden_BTD, rows_CD):
  return attend_with_one_row(hidden_BTD, mask(hidden_BTD), rows_CD)


CASES = {
  'two rows': (by_two, plain, 2),
  'one row': (by_one, lambda hidden, rows: plain(hidden, rows, rows), 1),
}


@pytest.mark.parametrize('scale', [0.3, 3.0])
@pytest.mark.parametrize('name', CASES)
def test_values_and_gradients_are_those_of_the_definition(name, scale):
  ours, expected, count = CASES[name]
  arrays = draw(scale=scale)[: 1 + count]
  weight_BC = np.random.default_rng(1).normal(size=(B, C))

  def run(function):
    def total(*arrays):
      return (function(*arrays) * weight_BC).sum()

    return function(*arrays), jax.grad(total, argnums=range(1 + count))(*arrays)

  results, wanted = run(ours), run(expected)
  assert_close(results, wanted, 1e-5, 1e-5)
  assert all(np.abs(x).max() > 0.1 for x in jax.tree.leaves(wanted))


def test_rounded_inputs_have_rounded_gradients_of_their_own():
  hidden_BTD, rows_CD, _ = (x.astype(jnp.bfloat16) for x in draw())
  attended_BC, pull = jax.vjp(by_one, hidden_BTD, rows_CD)
  assert attended_BC.dtype == jnp.float32
  gradients = pull(jnp.ones_like(attended_BC))
  wide = [x.astype(jnp.float32) for x in (hidden_BTD, rows_CD)]
  expected_BC, pull = jax.vjp(by_one, *wide)
  np.testing.assert_allclose(attended_BC, expected_BC, atol=1e-2)
  for gradient, wanted in zip(gradients, pull(jnp.ones_like(expected_BC))):
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(gradient.astype(jnp.float32), wanted, atol=0.1)
