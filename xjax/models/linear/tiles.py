"""Multiplies sparse matrices by dense matrices on devices.

The stored entries of each row of the sparse matrix are cut into tiles of WIDTH
entries, and the last tile of a row is padded with zeros. So rows of very
different lengths need little padding, and shapes are fixed. The product of a
tile and the dense matrix is a weighted sum of gathered rows of the dense
matrix, as in an embedding lookup. The products of a row's tiles are added up.
"""

import functools
from typing import no_type_check

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32, Shaped
import numpy as np
from scipy import sparse

WIDTH = 16

# The number of tiles in a block. Blocks are multiplied one after another. On
# CPUs, a block is so small that its products stay in a core's cache. On other
# devices, a block must keep thousands of threads busy.
_BLOCK = {'cpu': 1024}
_OTHER_BLOCK = 32768

# The arrays of a block: the columns of its entries, the values of its entries,
# and the rows of its tiles.
_Block = tuple[
  Int32[Array, 'width block'],
  Float32[Array, 'width block'],
  Int32[Array, ' block'],
]


# Types are not checked at run time, because within JAX the fields may also hold
# specs or None.
@no_type_check
@struct.dataclass
class Tiles:
  """Holds a sparse matrix [rows, columns], cut into tiles."""

  ids: Int32[Array | np.ndarray, 'blocks width block']  # columns, 0 at padding
  values: Float32[Array | np.ndarray, 'blocks width block']  # 0 at padding
  rows: Int32[Array | np.ndarray, 'blocks block']  # of each tile, ascending
  n_rows: int = struct.field(pytree_node=False)


def tiles_of(matrix: sparse.csr_array) -> Tiles:
  """Cuts a matrix into NumPy tiles, in blocks that suit the default backend."""
  block = _BLOCK.get(jax.default_backend(), _OTHER_BLOCK)
  n_tiles = -(-np.diff(matrix.indptr) // WIDTH)  # one number per row
  first_tile = np.cumsum(n_tiles) - n_tiles
  rows = np.repeat(np.arange(len(n_tiles), dtype=np.int32), n_tiles)
  starts = matrix.indptr[rows]
  starts = starts + WIDTH * (np.arange(len(rows)) - first_tile[rows])
  at = starts[:, None] + np.arange(WIDTH)
  inside = at < matrix.indptr[rows + 1][:, None]
  # The last tile of a row would read entries of the next row. Their values are
  # replaced by 0 below, but the index must exist.
  at[~inside] = 0
  n_blocks = max(1, -(-len(rows) // block))
  padding = [(0, n_blocks * block - len(rows)), (0, 0)]

  def blocks(
    entries: Shaped[np.ndarray, ' entries'], dtype: type
  ) -> Shaped[np.ndarray, 'blocks width block']:
    padded = np.where(inside, entries[at], 0).astype(dtype)
    padded = np.pad(padded, padding).reshape(n_blocks, block, WIDTH)
    # The width comes first, so that a slice has one entry of every tile.
    return np.ascontiguousarray(padded.swapaxes(1, 2))

  # The padding tiles belong to the last row, and add 0 to this row.
  last = max(0, len(n_tiles) - 1)
  rows = np.pad(rows, padding[0], constant_values=last)
  return Tiles(
    ids=blocks(matrix.indices, np.int32),
    values=blocks(matrix.data, np.float32),
    rows=rows.reshape(n_blocks, block),
    n_rows=len(n_tiles),
  )


def product(
  tiles: Tiles, dense: Float32[Array, 'columns C']
) -> Float32[Array, 'rows C']:
  """Multiplies a sparse matrix by a dense matrix."""

  def add(
    total: Float32[Array, 'rows C'], block: _Block
  ) -> tuple[Float32[Array, 'rows C'], None]:
    ids, values, rows = block
    # The sum has WIDTH separate terms. If a single array held all terms, XLA
    # would store the gathered rows.
    terms = (v[:, None] * dense[i] for i, v in zip(ids, values))
    sums = functools.reduce(jnp.add, terms)
    # GPUs add the tiles of a row in no fixed order, so the last bits of the
    # result may differ from one run to the next.
    added = total.at[rows].add(sums, indices_are_sorted=True)
    return added, None

  zeros = jnp.zeros((tiles.n_rows, dense.shape[1]))
  # Blocks are added one after another, since the gathered rows of all tiles at
  # once would not fit into memory.
  return lax.scan(add, zeros, (tiles.ids, tiles.values, tiles.rows))[0]
