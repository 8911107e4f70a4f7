"""Changes bfloat16 rows of labels by Kahan summation, to keep rounding errors.

Only labels with many documents are compensated. Their rounding errors are
stored, and are added to the next change of the row, which then has the
precision of 16 bits of fraction (ELMO, ICML 2025).

The rows are divided into LABEL_MULTIPLE blocks of consecutive rows. A place
stores the rounding errors of one row. All blocks have as many places as the
block with the most compensated labels needs, so that the places can be sharded
like the rows on any mesh. If labels are sorted by frequency, this may be a
place for every row.
"""

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Bool, Float32, Int32, UInt16, UInt32
import numpy as np

from xjax.core.mesh import padded_labels
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.core.types import PAD
from xjax.networks.heads.chunks import ALL_DEVICES
from xjax.networks.rows.storage import to_bfloat16

# These two slots are stored in addition to a rule's slots. PLACE is int32 [L],
# a label's place in its block, or PAD for labels that are not compensated.
# LEFT_OUT is uint16 [places, D]. It holds the bits of the rounding errors,
# which are bfloat16 numbers. The dtype is not bfloat16, because XLA on CPUs
# would convert the entire array to float32 to write a few rows.
PLACE, LEFT_OUT = 'place', 'left_out'


def kahan_places(
  compensated: Bool[np.ndarray, ' L'],
) -> Int32[np.ndarray, ' padded']:
  """Returns the slot PLACE, which numbers the compensated labels of a block."""
  marked = np.zeros(padded_labels(len(compensated)), bool)
  marked[: len(compensated)] = compensated
  blocks = marked.reshape(LABEL_MULTIPLE, -1)
  counted = np.cumsum(blocks, axis=1, dtype=np.int32)
  return np.where(blocks, counted - 1, np.int32(PAD)).reshape(-1)


def kahan_slots(
  compensated: Bool[np.ndarray, ' L'], dim: int
) -> dict[str, jax.Array]:
  """Returns the initial slots PLACE and LEFT_OUT, without rounding errors."""
  place_L = kahan_places(compensated)
  places = max(1, int(place_L.max()) + 1)  # number of places of each block
  return {
    PLACE: jnp.asarray(place_L),
    LEFT_OUT: jnp.zeros((LABEL_MULTIPLE * places, dim), jnp.uint16),
  }


def kahan_step(
  values_CD: Float32[Array, 'C D'],
  change_CD: Float32[Array, 'C D'],
  bits_CD: UInt32[Array, 'C D'],
  slots: dict[str, jax.Array],
  row_C: Int32[Array, ' C'],
) -> tuple[BFloat16[Array, 'C D'], UInt16[Array, 'places D']]:
  """Adds a change and the stored rounding errors to the rows of a chunk.

  Rows that are not compensated are rounded stochastically. Numbers in row_C
  beyond the shard stand for no row. The second result is the slot LEFT_OUT.
  """
  place_L, left_out_by_place = slots[PLACE], slots[LEFT_OUT]
  place_C = place_L.at[row_C].get(mode='fill', fill_value=PAD)
  blocks = LABEL_MULTIPLE // lax.axis_size(ALL_DEVICES)  # blocks of this shard
  rows, places = len(place_L) // blocks, len(left_out_by_place) // blocks
  at_C = row_C // rows * places + place_C
  has_C = place_C != PAD
  left_out_CD = lax.bitcast_convert_type(left_out_by_place[at_C], jnp.bfloat16)
  carried_CD = jnp.where(has_C[:, None], left_out_CD, 0).astype(jnp.float32)
  exact_CD = values_CD + (change_CD + carried_CD)
  nearest_CD = exact_CD.astype(jnp.bfloat16)
  rest_CD = (exact_CD - nearest_CD.astype(jnp.float32)).astype(jnp.bfloat16)
  rest_CD = lax.bitcast_convert_type(rest_CD, jnp.uint16)
  beyond = len(left_out_by_place)
  return (
    jnp.where(has_C[:, None], nearest_CD, to_bfloat16(exact_CD, bits_CD)),
    left_out_by_place.at[jnp.where(has_C, at_C, beyond)].set(
      rest_CD, mode='drop'
    ),
  )
