"""Random numbers, which depend only on the run's seed and the step."""

import hashlib

import jax
import jax.numpy as jnp
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


def mix_bits(x: jax.Array) -> jax.Array:
  """Returns a hash of each number; every bit depends on all of its bits.

  The hash is a permutation of the 32-bit numbers (C. Wellons).

  Args:
    x: uint32, any shape.

  Returns:
    uint32, x's shape; different for different numbers.
  """
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
