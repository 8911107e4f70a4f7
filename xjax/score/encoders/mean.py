"""The mean of a document's vectors."""

from flax import nnx
import jax
import jax.numpy as jnp

from xjax.score.heads.contract import TokenFeatures


class Mean(nnx.Module):
  """document = sum_t h_t / T over the document's T tokens.

  Attributes:
    dim: size of the vectors, and of the document's.
  """

  def __init__(self, dim: int):
    """For vectors of size dim."""
    self.dim = dim

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None = None
  ) -> jax.Array:
    """document_BD in the features' dtype; 0 for a document of no tokens.

    Args:
      features: encoded tokens.
      rngs: not read.
    """
    del rngs
    hidden_BTD = features.hidden_BTD
    # Padding is 0, so that all may be summed.
    total_BD = hidden_BTD.sum(axis=1, dtype=jnp.float32)
    count_B1 = jnp.maximum(features.lengths_B, 1)[:, None]
    return (total_BD / count_B1).astype(hidden_BTD.dtype)
