"""Draws the weights of documents for bootstrap and randomization tests.

A replicate gives a weight to each document: how often a bootstrap draws it, or
1 if a significance test exchanges two systems' outputs for it, else 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from jaxtyping import Int, Shaped, UInt8
import numpy as np

from xjax.core.progress import Progress

# _COUNTS is the largest number of label counts in a block of replicates, so
# that the counts fit in a core's cache. _WEIGHTS is the largest number of
# document weights in a block, so that the weights fit in memory.
_COUNTS, _WEIGHTS = 1 << 21, 1 << 25
# A block of at most _FEWEST replicates may have more than _COUNTS counts. No
# block has more than _MOST replicates.
_FEWEST, _MOST = 16, 512
_GROUPS = 100  # groups of documents, for the jackknife


# From weights of documents, int [N, R], to sums by name, float64 [R]; a sum
# that does not depend on the weights is one number.
SumsOf = Callable[
  [Int[np.ndarray, 'N R']], Mapping[str, np.ndarray | int | float]
]


def bootstrap_weights(
  seed: int, n_docs: int
) -> Iterator[Int[np.ndarray, ' N']]:
  """Yields how often each document is drawn in N draws, int [N].

  They depend only on the seed and on N, so all systems get the same draws.
  """
  rng = np.random.default_rng((seed, n_docs))
  while True:
    drawn = rng.integers(0, n_docs, n_docs, np.int32)
    yield np.bincount(drawn, minlength=n_docs)


def jackknife_weights(
  seed: int, n_docs: int
) -> Iterator[UInt8[np.ndarray, ' N']]:
  """Yields weights that leave out one group of documents at a time, uint8 [N].

  Documents are split at random into n_groups(n_docs) groups of equal size, up
  to one.
  """
  rng = np.random.default_rng((seed, n_docs, 2))
  groups = rng.permutation(n_docs) % n_groups(n_docs)
  for group in range(n_groups(n_docs)):
    yield (groups != group).astype(np.uint8)


def n_groups(n_docs: int) -> int:
  """Returns the number of groups that the jackknife leaves out in turn."""
  return min(_GROUPS, n_docs)


def exchange_weights(
  seed: int, n_docs: int
) -> Iterator[UInt8[np.ndarray, ' N']]:
  """Yields weights that exchange two systems' outputs at random, uint8 [N].

  A fair coin is thrown for each document (Noreen 1989): with exactly half
  exchanged, the observed result, where none is, could never be drawn.
  """
  rng = np.random.default_rng((seed, n_docs, 1))
  while True:
    coins = np.frombuffer(rng.bytes(-(-n_docs // 8)), np.uint8)
    yield np.unpackbits(coins, count=n_docs)


def resample(
  systems: Sequence[SumsOf],
  columns: Iterator[Int[np.ndarray, ' N']],
  n_docs: int,
  n_counted: int,
  n_replicates: int,
  task: str,
) -> list[dict[str, Shaped[np.ndarray, ' R']]]:
  """Computes the sums in each replicate, name -> [R], for each system.

  All systems get the same weights, of which `columns` yields at least
  n_replicates. In each replicate, a system counts up to n_counted labels.
  """
  size = block_size(n_docs, n_counted, n_replicates)
  blocks: list[list[dict[str, np.ndarray]]] = [[] for _ in systems]
  with Progress(task, n_replicates) as progress:
    for start in range(0, n_replicates, size):
      n = min(size, n_replicates - start)
      weights_NR = np.zeros((n_docs, n), np.int32)
      for i in range(n):
        weights_NR[:, i] = next(columns)
      for block, system in zip(blocks, systems):
        sums = system(weights_NR)
        block.append({name: np.broadcast_to(x, n) for name, x in sums.items()})
      progress.update(n)
  return [
    {name: np.concatenate([part[name] for part in block]) for name in block[0]}
    for block in blocks
  ]


def block_size(n_docs: int, n_counted: int, n_replicates: int) -> int:
  """Returns how many replicates to compute at a time, a power of two."""
  size = _MOST
  while size > 1 and (
    size >= 2 * n_replicates
    or size * n_docs > _WEIGHTS
    or (size > _FEWEST and size * n_counted > _COUNTS)
  ):
    size //= 2
  return size
