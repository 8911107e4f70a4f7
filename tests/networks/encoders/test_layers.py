import math

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.networks.encoders.bert import activate
from xjax.networks.encoders.layers import (
  EmbeddingConfig,
  LayerNorm,
  WordEmbedding,
  dense,
  dropout,
)
from xjax.networks.pretrained.architecture import Activation


def drawn(seed):
  return nnx.Rngs(dropout=jax.random.key(seed))


@pytest.mark.parametrize('rate', [0.2, 0.5, 0.9])
def test_dropout_keeps_the_mean(rate):
  x = jnp.ones((100, 70, 31))
  y = dropout(x, rate, drawn(0))
  assert abs(float((y == 0).mean()) - rate) < 0.005
  np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-4)
  assert (dropout(x, rate, drawn(1)) != y).any()
  np.testing.assert_array_equal(dropout(x, rate, drawn(0)), y)


def test_no_dropout_without_randomness():
  x = jnp.ones((3, 4), jnp.bfloat16)
  assert dropout(x, 0.5, None) is x
  assert dropout(x, 0.0, drawn(0)) is x
  assert dropout(x, 0.5, drawn(0)).dtype == jnp.bfloat16


def test_rates_next_to_the_bounds():
  x = jnp.ones((300, 1000))
  assert dropout(x, 1e-6, drawn(0)) is x
  few = np.asarray(dropout(x, 2**-16, drawn(0)))
  assert 0 < (few == 0).sum() < 50
  y = np.asarray(dropout(x, 0.999999, drawn(0)))
  assert set(np.unique(y)) == {0, 2**16}  # one of 2^16 is kept
  assert (y > 0).sum() < 50


def test_embedding_drops_channels_and_words():
  config = EmbeddingConfig(dim=50, dropout=0.4, word_dropout=0.0)
  embedding = WordEmbedding(9, config, rngs=nnx.Rngs(0))
  tokens_TB = jnp.tile(jnp.arange(9)[:, None], (1, 6))
  plain = np.asarray(embedding(tokens_TB, jnp.float32, None))
  np.testing.assert_array_equal(plain[:, 0], embedding.table[...])
  zero = np.asarray(embedding(tokens_TB, jnp.float32, drawn(0))) == 0
  assert (zero == zero[:1]).all() and 0.2 < zero.mean() < 0.6
  assert (zero[0, 0] != zero[0, 1]).any()  # another draw for each document
  config.dropout, config.word_dropout = 0.0, 0.4
  zero = np.asarray(embedding(tokens_TB, jnp.float32, drawn(0))) == 0
  assert (zero == zero[..., :1]).all() and 0.2 < zero.mean() < 0.6


def normed(x, norm):
  """By the definition."""
  centred = x - x.mean(2, keepdims=True)
  variance = (centred**2).mean(2, keepdims=True)
  out = centred / (variance + norm.eps) ** 0.5
  return out * np.asarray(norm.scale[...]) + np.asarray(norm.bias[...])


def random_norm():
  norm, rng = LayerNorm(8, 1e-3), np.random.default_rng(0)
  norm.scale[...], norm.bias[...] = rng.normal(size=(2, 8)).astype(np.float32)
  return norm, rng.normal(size=(2, 3, 8))


def test_norm_by_definition():
  norm, x = random_norm()
  out = norm(jnp.asarray(x, jnp.float32))
  np.testing.assert_allclose(out, normed(x, norm), atol=2e-6)


def test_sixteen_bits_are_normed_in_32():
  """Around 300 bfloat16 can tell even numbers apart, and little more."""
  norm, x = random_norm()
  x = jnp.asarray(300 + np.round(4 * x), jnp.bfloat16)
  out = norm(x)
  assert out.dtype == jnp.bfloat16
  expected = normed(np.asarray(x, np.float64), norm)
  np.testing.assert_allclose(out.astype(np.float32), expected, atol=0.02)


def test_gradients_of_dense_layers_are_summed_in_32_bits():
  rng = np.random.default_rng(0)
  x, d = jnp.asarray(rng.normal(size=(2, 2, 300, 4)), jnp.bfloat16)
  kernel, bias = jnp.float32(rng.normal(size=(4, 4))), jnp.zeros(4)
  out, gradient = jax.vjp(dense, x, kernel, bias)
  assert out.dtype == jnp.bfloat16
  dx, dkernel, dbias = gradient(d)
  x, d = (np.asarray(a, np.float64).reshape(-1, 4) for a in (x, d))
  np.testing.assert_allclose(dkernel, x.T @ d, rtol=1e-5)
  np.testing.assert_allclose(dbias, d.sum(0), rtol=1e-5)
  assert dx.dtype == jnp.bfloat16
  dx = np.asarray(dx, np.float64).reshape(-1, 4)
  np.testing.assert_allclose(dx, d @ kernel.T, atol=0.05)


def gelu(x):
  return x * 0.5 * math.erfc(-x / 2**0.5)


def gelu_tanh(x):
  return 0.5 * x * (1 + math.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
  ('kind', 'by_hand'),
  [
    (Activation.GELU, gelu),
    (Activation.GELU_TANH, gelu_tanh),
    (Activation.RELU, lambda x: max(x, 0.0)),
  ],
)
def test_activations_by_definition(kind, by_hand):
  x = np.linspace(-8, 8, 41).astype(np.float32)
  expected = [by_hand(float(value)) for value in x]
  np.testing.assert_allclose(
    activate(jnp.asarray(x), kind), expected, atol=1e-6
  )
