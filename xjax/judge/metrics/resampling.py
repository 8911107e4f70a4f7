"""Sums of many replicates: of drawn documents, or of exchanged outputs."""

from collections.abc import Iterator, Sequence

import numpy as np

from xjax.core.progress import Progress
from xjax.judge.metrics.reweighing import Reweighing

# Numbers of a block, at most: counts per label should stay in a core's cache,
# weights of documents in memory.
_COUNTS, _WEIGHTS = 1 << 21, 1 << 25
_FEWEST, _MOST = 16, 512  # replicates of a block
_GROUPS = 100  # of documents, for the jackknife


def draws(seed: int, n_docs: int) -> Iterator[np.ndarray]:
  """Yields int [N]: how often each document is drawn, N times in all.

  They depend on the seed and N alone, so that systems are compared on the same
  draws.
  """
  rng = np.random.default_rng((seed, n_docs))
  while True:
    drawn = rng.integers(0, n_docs, n_docs, np.int32)
    yield np.bincount(drawn, minlength=n_docs)


def leave_outs(seed: int, n_docs: int) -> Iterator[np.ndarray]:
  """Yields uint8 [N] for each group of documents: 0 for those in it, else 1.

  n_groups(n_docs) of them, at random, of sizes that differ by one at most.
  """
  rng = np.random.default_rng((seed, n_docs, 2))
  groups = rng.permutation(n_docs) % n_groups(n_docs)
  for group in range(n_groups(n_docs)):
    yield (groups != group).astype(np.uint8)


def n_groups(n_docs: int) -> int:
  """Groups of documents that the jackknife leaves out, one after the other."""
  return min(_GROUPS, n_docs)


def swaps(seed: int, n_docs: int) -> Iterator[np.ndarray]:
  """Yields uint8 [N]: 1 where two systems' outputs are exchanged.

  A fair coin for each document (Noreen 1989), so half of them on average: if
  the systems are alike, all 2^N ways are as likely as the one that was seen,
  which is among them. With exactly half exchanged it could not be.
  """
  rng = np.random.default_rng((seed, n_docs, 1))
  while True:
    coins = np.frombuffer(rng.bytes(-(-n_docs // 8)), np.uint8)
    yield np.unpackbits(coins, count=n_docs)


def resample(
  weighings: Sequence[Reweighing],
  columns: Iterator[np.ndarray],
  n_replicates: int,
  what: str,
) -> list[dict[str, np.ndarray]]:
  """The sums of every replicate.

  Args:
    weighings: of the same N documents, which get the same weights.
    columns: yields weights [N], of a replicate each, without end.
    n_replicates: how many.
    what: says the progress.

  Returns:
    For each of weighings: name -> float64 [n_replicates].
  """
  n_docs = weighings[0].n_docs
  size = block_size(n_docs, max(w.n_found for w in weighings), n_replicates)
  weights_NR = np.zeros((n_docs, size), np.int32)
  blocks: list[list[dict[str, np.ndarray]]] = [[] for _ in weighings]
  with Progress(what, n_replicates) as shown:
    for start in range(0, n_replicates, size):
      n = min(size, n_replicates - start)
      for i in range(n):  # the columns after them are cut off below
        weights_NR[:, i] = next(columns)
      for block, weighing in zip(blocks, weighings):
        sums = weighing.sums(weights_NR)
        block.append(
          {name: np.broadcast_to(row, size)[:n] for name, row in sums.items()}
        )
      shown.update(n)
  return [
    {name: np.concatenate([part[name] for part in block]) for name in block[0]}
    for block in blocks
  ]


def block_size(n_docs: int, n_found: int, n_replicates: int) -> int:
  """Replicates at a time: a power of two.

  Args:
    n_docs: documents.
    n_found: labels that are counted one by one.
    n_replicates: of all blocks.
  """
  size = _MOST
  while size > 1 and (
    size >= 2 * n_replicates
    or size * n_docs > _WEIGHTS
    or (size > _FEWEST and size * n_found > _COUNTS)
  ):
    size //= 2
  return size
