"""Randomness: the seed and the step decide everything."""

import hashlib

import jax
import numpy as np


def step_key(key: jax.Array, step: jax.Array) -> jax.Array:
  """The key of one training step, so that a resumed run draws the same."""
  return jax.random.fold_in(key, step)


def host_generator(seed: int, *names: str | int) -> np.random.Generator:
  """A NumPy generator of its own for each named purpose (stable hash)."""
  text = '/'.join(map(str, (seed, *names)))
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(int.from_bytes(digest[:16], 'little'))
