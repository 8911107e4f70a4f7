"""A small state, and steps of it that are saved."""

from flax import nnx
import grain
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.mesh import LABEL
from xjax.train.checkpoint import Checkpoints


class Small(nnx.Module):
  def __init__(self, rngs):
    key = rngs.params()
    self.rows = nnx.Param(
      jax.random.normal(key, (128, 3)), out_sharding=(LABEL, None)
    )
    self.bias = nnx.Param(jnp.zeros(5))


def fresh(plan):
  with jax.set_mesh(plan.shardings.step.mesh):
    return plan.init(jax.random.key(0))


def batches():
  return iter(grain.MapDataset.range(1000).to_iter_dataset())


def write(folder, plan, advance, steps, keep=3, best=None):
  """Saves each of some steps; returns what they held, as NumPy."""
  state, iterator, held = fresh(plan), batches(), {}
  with Checkpoints(folder, keep) as checkpoints:
    for step in range(1, max(steps) + 1):
      state = advance(state)
      next(iterator)
      if step in steps:
        held[step] = jax.tree.map(np.array, state)
        checkpoints.save(state, step, iterator, {'third': step / 3}, best)
        # The state is donated while the write goes on.
  return held


def equal(found, expected):
  return all(
    np.array_equal(a, b)
    for a, b in zip(
      jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
    )
  )
