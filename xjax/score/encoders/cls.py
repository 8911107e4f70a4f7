"""A document's first vector, [CLS]."""

from flax import nnx
import jax
import jax.numpy as jnp

from xjax.score.config import ClsConfig
from xjax.score.encoders.layers import Dense, dropout
from xjax.score.heads.contract import TokenFeatures


class Cls(nnx.Module):
  """BERT's pooling (Devlin et al. 2019, Section 3): h_0, or tanh(W h_0 + b).

  Attributes:
    dim: size of the vectors, and of the document's.
    dense: W and b, the pooler; None: there is none.
  """

  def __init__(self, dim: int, config: ClsConfig, *, rngs: nnx.Rngs):
    """Fresh weights.

    Args:
      dim: size of the vectors.
      config: dropout, and whether there is a pooler.
      rngs: stream `params`.
    """
    self.dim = dim
    self.rate = config.dropout
    self.dense = (
      Dense(dim, dim, stddev=0.02, rngs=rngs) if config.pooler else None
    )

  def __call__(
    self, features: TokenFeatures, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """document_BD in the features' dtype.

    Args:
      features: encoded tokens.
      rngs: stream `dropout`, or None: no dropout.
    """
    first_BD = features.hidden_BTD[:, 0]
    if self.dense is not None:
      first_BD = jnp.tanh(self.dense(first_BD))
    return dropout(first_BD, self.rate, rngs)
