"""Checks softmax over all labels, with a head whose logits are its inputs."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import on_mesh
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD
from xjax.losses.loss import LabelWeights
from xjax.losses.softmax import Softmax
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.heads.streaming import head_loss

B, L = 8, 37
MASK_B = np.arange(B) < B - 1
POSITIVES_BP = np.array(
  [
    [3, 3, 36, L + 5],  # twice the same; none of this head
    [0, 1, 2, 3],
    [PAD] * 4,  # no gold label
    [7, PAD, PAD, PAD],
    [5, 9, PAD, 20],
    [36, PAD, PAD, 0],
    [11, 12, 13, PAD],
    [2, 4, PAD, PAD],  # only fills
  ],
  np.int32,
)


@functools.cache
def program(loss, mesh, chunk):
  """(logits_BL, weights) -> the loss's sum and its slope by logits."""
  with on_mesh(*mesh):
    head = OneVsAllConfig(chunk=chunk).build(HeadInputs(L, L), nnx.Rngs(0))
    head.kernel[...] = jnp.eye(padded_labels(L), L)

  def run(logits_BL, weights):
    given = (jnp.asarray(POSITIVES_BP), jnp.asarray(MASK_B))
    return head_loss(head, logits_BL, *given, loss, weights)

  return jax.jit(jax.value_and_grad(run))


def found(loss, logits_BL, weights=None, mesh=(1, 1), chunk=16):
  with on_mesh(*mesh):
    given = jnp.asarray(logits_BL, jnp.float32)
    pair = program(loss, mesh, chunk)(given, weights)
    return jax.tree.map(np.asarray, jax.block_until_ready(pair))


def shares(averaged, weight_L):
  """a_BL of the definition: of each document's gold labels."""
  gold_BL = (POSITIVES_BP[:, :, None] == np.arange(L)).any(axis=1)
  a_BL = np.where(gold_BL & MASK_B[:, None], weight_L, 0.0)
  sum_B1 = a_BL.sum(axis=1, keepdims=True)
  return a_BL / np.where(sum_B1 > 0, sum_B1, 1) if averaged else a_BL


def reference(logits_BL, a_BL):
  """The loss and its slope by definition, float64."""
  z_BL = np.asarray(logits_BL, np.float64)
  highest_B1 = z_BL.max(axis=1, keepdims=True)
  e_BL = np.exp(z_BL - highest_B1)
  log_B1 = highest_B1 + np.log(e_BL.sum(axis=1, keepdims=True))
  p_BL = np.exp(z_BL - log_B1)
  slope_BL = a_BL.sum(axis=1, keepdims=True) * p_BL - a_BL
  return (a_BL * (log_B1 - z_BL)).sum(), slope_BL


def draw(scale=3):
  return scale * np.random.default_rng(0).normal(size=(B, L)).astype(np.float32)


def weights():
  """Returns random weights of labels where they are gold and where not."""
  draw = np.random.default_rng(1).uniform(0.2, 3, (2, padded_labels(L)))
  draw[0, 12] = 0
  return LabelWeights(*jnp.asarray(draw, jnp.float32))


@pytest.mark.parametrize('averaged', [True, False])
@pytest.mark.parametrize('weighted', [False, True])
def test_definition(averaged, weighted):
  given = weights() if weighted else None
  weight_L = np.asarray(given.positive_L[:L]) if weighted else 1.0
  total, slope_BL = reference(draw(), shares(averaged, weight_L))
  loss, dlogits_BL = found(Softmax(averaged), draw(), given)
  np.testing.assert_allclose(loss, total, rtol=1e-6)
  np.testing.assert_allclose(dlogits_BL, slope_BL, 1e-5, 1e-6)
  # Neither filling rows nor documents without gold labels count.
  np.testing.assert_array_equal(dlogits_BL[[2, 7]], 0)


@pytest.mark.parametrize(('mesh', 'chunk'), [((2, 4), 16), ((1, 1), 7)])
def test_meshes_and_chunks(mesh, chunk):
  given = weights()
  total, slope_BL = reference(
    draw(), shares(True, np.asarray(given.positive_L[:L]))
  )
  loss, dlogits_BL = found(Softmax(), draw(), given, mesh, chunk)
  np.testing.assert_allclose(loss, total, rtol=1e-6)
  np.testing.assert_allclose(dlogits_BL, slope_BL, 1e-5, 1e-6)


def test_golden():
  logits_BL = np.full((B, L), -100.0)
  logits_BL[3, [7, 8]] = np.log([1.0, 3.0])
  logits_BL[3, 9] = np.log(4.0)
  _, dlogits_BL = found(Softmax(), logits_BL)
  # 1/8, 3/8 and 4/8; label 7 is gold.
  np.testing.assert_allclose(
    dlogits_BL[3, [7, 8, 9, 10]], [-7 / 8, 3 / 8, 1 / 2, 0], 1e-5, 1e-12
  )


@pytest.mark.parametrize('sign', [1, -1])
@pytest.mark.parametrize('all_labels', [False, True])
def test_extremes(sign, all_labels):
  logits_BL = draw(1.0)
  logits_BL[:, slice(None) if all_labels else slice(0, L, 2)] += sign * 1e4
  total, slope_BL = reference(logits_BL, shares(True, 1.0))
  loss, dlogits_BL = found(Softmax(), logits_BL)
  np.testing.assert_allclose(loss, total, rtol=1e-6, atol=1e-2)
  # Logits of 10,000 have three digits after the point.
  np.testing.assert_allclose(dlogits_BL, slope_BL, atol=2e-3)
  assert np.isfinite(dlogits_BL).all()
