"""Makes random numbers that depend only on the run's seed and the step."""

import hashlib

import numpy as np


def host_generator(seed: int, *names: str | int) -> np.random.Generator:
  """Returns a generator for a seed and the names of one use of randomness."""
  # Its seed is a SHA-256 hash, so it is the same on every machine.
  text = '/'.join(map(str, (seed, *names)))
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(int.from_bytes(digest[:16], 'little'))
