"""XLNet: attention by hand, positions, and the summary of a document."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.networks.encoders import xlnet as module
from xjax.networks.encoders.xlnet import relative_attention, relative_positions
from xjax.networks.heads.head import TokenFeatures
from xjax.networks.pooling import Cls, ClsConfig

D, HEADS = 16, 4


def close(one, other, atol=1e-5):
  np.testing.assert_allclose(one, other, rtol=0, atol=atol)


def by_hand(inputs_BTX, offset_keys, biases, lengths):
  """Computes the attention token by token, in float64."""
  u, v, w, segment = (np.asarray(x, np.float64) for x in biases)
  batch, tokens, _ = inputs_BTX.shape
  shape = batch, tokens, 3, HEADS, D // HEADS
  parts = np.asarray(inputs_BTX, np.float64).reshape(shape)
  keys = np.asarray(offset_keys, np.float64).reshape(-1, HEADS, D // HEADS)
  out = np.zeros((batch, tokens, D))
  for b, n in enumerate(lengths):
    query, key, value = np.moveaxis(parts[b, :n], 1, 0)
    for i in range(n):
      score = np.zeros((n, HEADS))
      for j in range(n):
        s = segment[int((i == n - 1) != (j == n - 1))]
        terms = (query[i] + u) * key[j] + (query[i] + w) * s
        terms += (query[i] + v) * keys[tokens - (i - j)]
        score[j] = terms.sum(axis=1) / (D // HEADS) ** 0.5
      weight = np.exp(score - score.max(axis=0))
      weight /= weight.sum(axis=0)
      out[b, i] = np.einsum('jn,jnd->nd', weight, value).reshape(D)
  return out


@pytest.mark.parametrize('group', [1, HEADS])
def test_attention_by_hand(group, monkeypatch):
  monkeypatch.setattr(module, 'heads_per_group', lambda heads, entries: group)
  rng = np.random.default_rng(0)

  def normal(*shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)

  lengths, size = [5, 2, 1], (HEADS, D // HEADS)
  inputs, keys = normal(3, 5, 3 * D), normal(10, D)
  biases = [*(normal(*size) for _ in range(3)), normal(2, *size)]
  real_BT = np.arange(5) < np.array(lengths)[:, None]
  out = jax.jit(relative_attention)(inputs, keys, biases, jnp.asarray(real_BT))
  wanted = by_hand(inputs, keys, biases, lengths)
  close(np.asarray(out)[real_BT], wanted[real_BT])
  assert np.isfinite(out).all()


def test_positions_are_sinusoids_of_differences():
  rows = np.asarray(relative_positions(3, 4))
  assert rows.shape == (6, 4)
  for row, difference in zip(rows, (3, 2, 1, 0, -1, -2)):
    angles = difference / np.array([1.0, 100.0])
    close(row, [*np.sin(angles), *np.cos(angles)], 1e-6)


@pytest.mark.parametrize('pooler', [False, True])
def test_the_summary_is_that_of_the_last_token(pooler):
  hidden_BTD = np.random.default_rng(0).normal(size=(3, 4, D))
  lengths_B = np.array([4, 2, 0], np.int32)
  hidden_BTD *= (np.arange(4) < lengths_B[:, None])[:, :, None]
  hidden_BTD = jnp.asarray(hidden_BTD, jnp.float32)
  pooling = Cls(D, ClsConfig(pooler=pooler), rngs=nnx.Rngs(0))
  at_last = TokenFeatures(hidden_BTD, jnp.asarray(lengths_B), True)
  wanted = np.stack([hidden_BTD[0, 3], hidden_BTD[1, 1], np.zeros(D)])
  if pooler:
    wanted = np.tanh(wanted @ pooling.dense.kernel[...])
  close(pooling(at_last, None), wanted)
  at_first = TokenFeatures(hidden_BTD, jnp.asarray(lengths_B))
  first_BD = np.asarray(hidden_BTD[:, 0])
  close(at_first.summary_BD, first_BD, 0)
