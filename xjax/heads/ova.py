"""One-vs-all: a dense layer on one vector per document."""

from collections.abc import Mapping

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32
import numpy as np

from xjax.core.mesh import LABEL, padded_labels
from xjax.heads.contract import Head, padded_row
from xjax.heads.precision import full_precision


class OneVsAll(Head):
  """A dense output layer, logit_l = document . k_l + b_l.

  BIGRU-ATT's and HAN's (Chalkidis et al. 2019, Section 4).

  Attributes:
    kernel: k, float32 [L, D].
    bias: b, float32 [L].
  """

  def __init__(
    self,
    n_labels: int,
    dim: int,
    *,
    chunk: int,
    bias: np.ndarray | None = None,
    rngs: nnx.Rngs,
  ):
    """Random rows of about unit length.

    Args:
      n_labels: labels; rows are padded to a multiple that shards evenly.
      dim: size D of a document's vector.
      chunk: labels scored at a time.
      bias: [L] first biases; None: zeros.
      rngs: stream `params`.
    """
    self.n_labels = n_labels
    self.chunk = chunk
    rows = padded_labels(n_labels)
    normal = nnx.initializers.normal(dim**-0.5)
    self.kernel = nnx.Param(
      normal(rngs.params(), (rows, dim)), out_sharding=(LABEL, None)
    )
    self.bias = nnx.Param(padded_row(bias, rows), out_sharding=(LABEL,))

  def logits(
    self, document_BD: Float[Array, 'B D'], chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    """logits_BC of a chunk of label rows, summed in float32."""
    product_BC = lax.dot_general(
      document_BD,
      chunk['kernel'].astype(document_BD.dtype),
      (((1,), (1,)), ((), ())),
      precision=full_precision(document_BD.dtype),
      preferred_element_type=jnp.float32,
    )
    return product_BC + chunk['bias']
