"""What a loss gives for one chunk of labels, and how much labels count."""

from collections.abc import Callable

from flax import struct
import jax

# (logits_BC, targets_BC) -> (loss_BC, dlogits_BC), elementwise.
#
#   logits_BC: float32; -inf where a column is no label at all, which must cost
#     nothing and have derivative 0 where it is no target.
#   targets_BC: bool.
#   loss_BC: float32.
#   dlogits_BC: float32, the derivative of loss_BC by logits_BC.
#
# It is hashable, since compiled steps are known by it.
ChunkLoss = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


@struct.dataclass
class LabelWeights:
  """What a label's part of the loss is multiplied by.

  Attributes:
    positive_L: float32 or float64 [L], at least 0, where the label is gold.
    negative_L: likewise, where it is not. Both of the labels a head scores;
      rows that pad them may have any finite value.
  """

  positive_L: jax.Array
  negative_L: jax.Array
