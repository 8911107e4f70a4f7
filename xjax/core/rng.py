"""Makes random numbers that depend only on the run's seed and the step."""

import hashlib
import typing

import numpy as np

if typing.TYPE_CHECKING:
  import jax


def host_generator(seed: int, *names: str | int) -> np.random.Generator:
  """Returns a generator for a seed and the names of one use of randomness."""
  # Its seed is a SHA-256 hash, so it is the same on every machine.
  text = '/'.join(map(str, (seed, *names)))
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(int.from_bytes(digest[:16], 'little'))


def mix_bits(x: 'jax.Array') -> 'jax.Array':
  """Hashes uint32 numbers by a permutation (C. Wellons), without collisions."""
  import jax.numpy as jnp

  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
