"""Compares GRU and LSTM with their equations, and their own gradients."""

import dataclasses
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.networks.encoders.recurrent import Direction, recurrence
from xjax.networks.encoders.recurrent_cells import GRU, LSTM, BiGRU, BiGRUConfig

T, B, D, H = 6, 8, 4, 5
LENGTHS = np.array([6, 3, 1, 0, 2, 6, 5, 4])
REAL_TB = np.arange(T)[:, None] < LENGTHS


def gru_step(carry, x, kernel, bias, recurrent, candidate_bias):
  (h,) = carry
  xr, xz, xn = jnp.split(x @ kernel + bias, 3, axis=-1)
  ur, uz, un = jnp.split(h @ recurrent, 3, axis=-1)
  r, z = jax.nn.sigmoid(xr + ur), jax.nn.sigmoid(xz + uz)
  n = jnp.tanh(xn + r * (un + candidate_bias))
  return ((1 - z) * n + z * h,)


def lstm_step(carry, x, kernel, bias, recurrent, *first):
  h, c = carry
  summed = x @ kernel + bias + h @ recurrent
  i, f, g, o = jnp.split(summed, 4, axis=-1)
  c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
  return jax.nn.sigmoid(o) * jnp.tanh(c), c


@dataclasses.dataclass(frozen=True)
class Cell:
  """A cell: its class, its step, its numbers of gates and of products."""

  kind: type[Direction]
  step: Any
  gates: int
  products: int

  def draw(self):
    last = ((H,),) * len(self.kind.vectors)
    shapes = (T, B, D), (D, self.gates * H), (self.gates * H,)
    shapes = *shapes, (H, self.gates * H), *last
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(k, shape) for k, shape in zip(keys, shapes)]

  def function(self, x_TBD, real_TB, *weights_and_reverse):
    *weights, reverse = weights_and_reverse
    arrays = x_TBD, real_TB, *weights[:3], tuple(weights[3:])
    return recurrence(self.kind, reverse, *arrays)

  def first(self, weights):
    return weights[3:] if self.kind is LSTM else [jnp.zeros(H)]

  def plain(self, x_TBD, real_TB, *weights_and_reverse):
    """A scan that JAX differentiates by itself, and that keeps its state."""
    *weights, reverse = weights_and_reverse

    def step(carry, inputs):
      x, real = inputs[0], inputs[1][:, None] > 0
      new = self.step(carry, x, *weights)
      carry = tuple(jnp.where(real, a, b) for a, b in zip(new, carry))
      return carry, jnp.where(real, carry[0], 0)

    first = tuple(jnp.broadcast_to(x, (B, H)) for x in self.first(weights))
    return lax.scan(step, first, (x_TBD, real_TB), reverse=reverse)[1]


CELLS = {'gru': Cell(GRU, gru_step, 3, 8), 'lstm': Cell(LSTM, lstm_step, 4, 9)}


@pytest.fixture(params=CELLS)
def cell(request):
  with on_mesh():
    yield CELLS[request.param]


@pytest.mark.parametrize('reverse', [False, True])
def test_definition_and_padding(cell, reverse):
  """Step by step, in float64, and each document alone."""
  x_TBD, *weights = cell.draw()
  real_TB = jnp.asarray(REAL_TB, jnp.float32)
  h_TBH = np.asarray(cell.function(x_TBD, real_TB, *weights, reverse))
  with jax.enable_x64(True):
    x_TBD, *weights = (jnp.asarray(x, jnp.float64) for x in (x_TBD, *weights))
    for b, n in enumerate(LENGTHS):
      order = np.arange(n)[::-1] if reverse else np.arange(n)
      state = tuple(cell.first(weights))
      for t in order:
        state = cell.step(state, x_TBD[t, b], *weights)
        np.testing.assert_allclose(h_TBH[t, b], state[0], atol=1e-5)
      np.testing.assert_array_equal(h_TBH[n:, b], 0)


@pytest.mark.parametrize('reverse', [False, True])
def test_gradient(cell, reverse):
  x_TBD, *weights = cell.draw()
  real_TB = jnp.asarray(REAL_TB, jnp.float32)
  w_TBH = jax.random.normal(jax.random.key(1), (T, B, H))

  def gradients(function):
    def loss(*arrays):
      return (function(arrays[0], real_TB, *arrays[1:], reverse) * w_TBH).sum()

    return jax.grad(loss, argnums=range(1 + len(weights)))(x_TBD, *weights)

  for ours, expected in zip(gradients(cell.function), gradients(cell.plain)):
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(ours, expected, 1e-5, 1e-5)


def test_the_loops_hold_one_product_each(cell):
  arrays, real_TB = cell.draw(), jnp.ones((T, B))
  run = jax.grad(
    lambda *x: cell.function(x[0], real_TB, *x[1:], False).sum(),
    argnums=range(len(arrays)),
  )
  text = str(jax.make_jaxpr(run)(*arrays))
  assert text.count('scan[') == 2
  # W x by gate; U h in its loop; U transposed in its own; dx, dW, dU.
  assert text.count('dot_general[') == cell.products


@pytest.mark.thorough
def test_layers_are_residual():
  x_TBD, real_TB = CELLS['gru'].draw()[0], jnp.asarray(REAL_TB)
  with on_mesh():
    model, first = (
      BiGRU(D, BiGRUConfig(H, layers, dropout=0.0), rngs=nnx.Rngs(0))
      for layers in (2, 1)
    )
    first.forwards[0], first.backwards[0] = (
      model.forwards[0],
      model.backwards[0],
    )
    below = first(x_TBD, real_TB, None)
    above = [
      layer(below, real_TB) for layer in (model.forwards[1], model.backwards[1])
    ]
    expected = below + jnp.concatenate(above, axis=2)
    whole = model(x_TBD, real_TB, None)
  np.testing.assert_allclose(whole, expected, atol=1e-6)
