"""Random numbers, which depend only on the run's seed and the step."""

import hashlib

import jax
import numpy as np


def step_key(key: jax.Array, step: jax.Array) -> jax.Array:
  """Returns the key of one training step; a resumed run gets the same keys."""
  return jax.random.fold_in(key, step)


def host_generator(seed: int, *names: str | int) -> np.random.Generator:
  """Returns a NumPy generator that is seeded by the seed and the names.

  The seed of the generator is a SHA-256 hash, so it is the same on every
  machine. Each purpose gets names of its own.
  """
  text = '/'.join(map(str, (seed, *names)))
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(int.from_bytes(digest[:16], 'little'))
