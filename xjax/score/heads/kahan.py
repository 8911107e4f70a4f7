"""What rounding leaves out of the rows of labels with many documents.

Stored beside rows of bfloat16 and added to the next change, it makes them as
good as 16 bits of fraction (Kahan summation; of head labels as in ELMO, ICML
2025). Labels are divided into LABEL_MULTIPLE blocks of consecutive rows, each
with as many places as the block of most such labels needs: so places shard as
rows do, on any mesh. Where labels are in the order of their frequency, a block
may be full of such labels, and every row has a place then.
"""

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, BFloat16, Bool, Float32, Int32, UInt16, UInt32
import numpy as np

from xjax.core.mesh import LABEL_MULTIPLE, padded_labels
from xjax.core.types import PAD
from xjax.score.heads.contract import ALL_DEVICES
from xjax.score.heads.rounding import to_bfloat16

# Beside a rule's slots: of labels, the place in their block, int32 [L], PAD of
# those without; and by place what was left out, [places, D]: the bits of
# bfloat16, of which CPUs would make float32 as a whole to write a few.
PLACE, LEFT_OUT = 'place', 'left_out'


def kahan_places(
  compensated: Bool[np.ndarray, ' L'],
) -> Int32[np.ndarray, ' padded']:
  """The slot PLACE of labels to be compensated, by padded row."""
  marked = np.zeros(padded_labels(len(compensated)), bool)
  marked[: len(compensated)] = compensated
  blocks = marked.reshape(LABEL_MULTIPLE, -1)
  counted = np.cumsum(blocks, axis=1, dtype=np.int32)
  return np.where(blocks, counted - 1, np.int32(PAD)).reshape(-1)


def kahan_slots(
  compensated: Bool[np.ndarray, ' L'], dim: int
) -> dict[str, jax.Array]:
  """The slots of labels to be compensated, nothing left out yet."""
  place_L = kahan_places(compensated)
  most = max(1, int(place_L.max()) + 1)
  return {
    PLACE: jnp.asarray(place_L),
    LEFT_OUT: jnp.zeros((LABEL_MULTIPLE * most, dim), jnp.uint16),
  }


def kahan_step(
  values_CD: Float32[Array, 'C D'],
  change_CD: Float32[Array, 'C D'],
  bits_CD: UInt32[Array, 'C D'],
  slots: dict[str, jax.Array],
  start: jax.Array,
) -> tuple[BFloat16[Array, 'C D'], UInt16[Array, 'places D']]:
  """Rows after a change, and what rounding has left out by now.

  Args:
    values_CD: the stored rows.
    change_CD: to be added.
    bits_CD: random, for rows that are not compensated.
    slots: as of kahan_slots, this shard's.
    start: the shard's row that the chunk begins with.
  """
  place_L, left_out_by_place = slots[PLACE], slots[LEFT_OUT]
  row_C = start + jnp.arange(len(values_CD))
  place_C = place_L[row_C]
  blocks = LABEL_MULTIPLE // lax.axis_size(ALL_DEVICES)  # of this shard
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
