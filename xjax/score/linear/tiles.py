"""Sparse matrices on devices, and their product with dense ones.

A row's entries are cut into tiles of WIDTH, the last one filled with zeros: so
little is filled, however much rows differ in length, and shapes are fixed. A
tile's sum is of gathered rows, as an embedding's; the sums of a row's tiles
are added up.
"""

import functools

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

WIDTH = 16

# Tiles that are summed at a time: on CPUs their sums stay in a core's cache, on
# others a block must keep thousands of threads busy.
_BLOCK = {'cpu': 1024}
_OTHER_BLOCK = 32768


@struct.dataclass
class Tiles:
  """A sparse matrix [R, K].

  Attributes:
    ids: int32 [blocks, WIDTH, block], columns; 0 where filled.
    values: float32, as ids; 0 where filled.
    rows: int32 [blocks, block], the row of each tile, ascending.
    n_rows: R.
  """

  ids: jax.Array
  values: jax.Array
  rows: jax.Array
  n_rows: int = struct.field(pytree_node=False)


def tiles_of(matrix: sparse.csr_array) -> Tiles:
  """Cuts a matrix into tiles, NumPy arrays, for the default backend."""
  block = _BLOCK.get(jax.default_backend(), _OTHER_BLOCK)
  tiles_R = -(-np.diff(matrix.indptr) // WIDTH)
  first_R = np.cumsum(tiles_R) - tiles_R
  rows = np.repeat(np.arange(len(tiles_R), dtype=np.int32), tiles_R)
  starts = matrix.indptr[rows] + WIDTH * (np.arange(len(rows)) - first_R[rows])
  at = starts[:, None] + np.arange(WIDTH)
  inside = at < matrix.indptr[rows + 1][:, None]
  at[~inside] = 0
  n_blocks = max(1, -(-len(rows) // block))
  fill = [(0, n_blocks * block - len(rows)), (0, 0)]

  def blocks(entries: np.ndarray, dtype: type) -> np.ndarray:
    chosen = np.where(inside, entries[at], 0).astype(dtype)
    chosen = np.pad(chosen, fill).reshape(n_blocks, block, WIDTH)
    return np.ascontiguousarray(chosen.swapaxes(1, 2))

  last = max(0, len(tiles_R) - 1)  # what fills adds 0 to it
  return Tiles(
    ids=blocks(matrix.indices, np.int32),
    values=blocks(matrix.data, np.float32),
    rows=np.pad(rows, fill[0], constant_values=last).reshape(n_blocks, block),
    n_rows=len(tiles_R),
  )


def product(tiles: Tiles, dense_KC: jax.Array) -> jax.Array:
  """The sparse matrix times a dense one: float32 [R, C].

  On GPUs a row's tiles are added in no fixed order: the last bits may differ
  from one run to the next.
  """

  def add(
    total: jax.Array, block: tuple[jax.Array, jax.Array, jax.Array]
  ) -> tuple[jax.Array, None]:
    ids, values, rows = block
    # Written out, so that what is gathered is never stored.
    terms = (v[:, None] * dense_KC[i] for i, v in zip(ids, values))
    of_tiles = functools.reduce(jnp.add, terms)
    added = total.at[rows].add(of_tiles, indices_are_sorted=True)
    return added, None

  zeros = jnp.zeros((tiles.n_rows, dense_KC.shape[1]))
  return lax.scan(add, zeros, (tiles.ids, tiles.values, tiles.rows))[0]
