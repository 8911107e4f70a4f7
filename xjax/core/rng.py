"""Makes random numbers that depend only on the run's seed and the step."""

import hashlib
import typing

import numpy as np

if typing.TYPE_CHECKING:
  import jax


def step_key(key: 'jax.Array', step: 'jax.Array') -> 'jax.Array':
  """Returns the key of one training step; a resumed run gets the same keys."""
  import jax

  return jax.random.fold_in(key, step)


def host_generator(seed: int, *names: str | int) -> np.random.Generator:
  """Returns a NumPy generator that depends on a seed and on names.

  The seed of the generator is a SHA-256 hash, so the random numbers are the
  same on every machine. Each use of random numbers has its own names.
  """
  text = '/'.join(map(str, (seed, *names)))
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(int.from_bytes(digest[:16], 'little'))


def mix_bits(x: 'jax.Array') -> 'jax.Array':
  """Hashes uint32 numbers; each bit of a hash depends on all bits of its input.

  The hash is a permutation of the 32-bit numbers (C. Wellons), so different
  numbers have different hashes.
  """
  import jax.numpy as jnp

  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
