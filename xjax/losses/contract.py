"""What a loss gives for one chunk of labels."""

from collections.abc import Callable

import jax

# (logits_BC, targets_BC) -> (loss_B, dlogits_BC).
#
#   logits_BC: float32; -inf where a column is no label at all, which must cost
#     nothing and have derivative 0.
#   targets_BC: bool.
#   loss_B: float32, summed over the chunk's labels.
#   dlogits_BC: float32, the derivative of loss_B with respect to logits_BC.
ChunkLoss = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
