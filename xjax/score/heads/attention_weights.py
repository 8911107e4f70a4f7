"""How much a few labels attend to each token of a document."""

from collections.abc import Mapping

from flax import nnx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int32

from xjax.core.numerics import full_precision
from xjax.core.types import PAD
from xjax.score.heads.contract import Head, TokenFeatures, split_head


class AttentionHead(Head):
  """A head each of whose labels attends to the tokens of a document.

  Its features are TokenFeatures, and a label's weights are the softmax over a
  document's tokens of hidden_t . query_l: by these, logits weighs tokens.
  """

  def queries(self, chunk: Mapping[str, jax.Array]) -> Float[Array, 'C D']:
    """What labels attend with.

    Args:
      chunk: label rows, as of logits; of any labels in any order.

    Returns:
      queries_CD: float32.
    """
    raise NotImplementedError


def attention_weights(
  head: AttentionHead, features: TokenFeatures, ids_BK: Int32[Array, 'B K']
) -> Float32[Array, 'B K T']:
  """The weights by which documents' labels are scored.

  Only the rows of the labels asked for are gathered, from whichever shard has
  them: no [B, L, T] array is made. Runs under jit on the context mesh.

  Args:
    head: whose labels attend to tokens.
    features: as its logits takes them.
    ids_BK: int32, K labels of each document, PAD beyond a list.

  Returns:
    alpha_BKT: float32, sums to 1 over a document's tokens; 0 beyond them, and
      where ids are PAD.
  """
  graphdef, rows, shared = split_head(head)
  ids_X = jnp.where(ids_BK == PAD, 0, ids_BK).reshape(-1)
  rows = jax.tree.map(lambda x: jnp.take(x, ids_X, axis=0), rows)
  picked = nnx.merge(graphdef, rows, shared)
  queries_XD = picked.queries(nnx.to_pure_dict(rows))
  hidden_BTD = features.hidden_BTD
  score_BKT = jnp.einsum(
    'BTD,BKD->BKT',
    hidden_BTD,
    # Rounded as in the scores.
    queries_XD.astype(hidden_BTD.dtype).reshape(*ids_BK.shape, -1),
    precision=full_precision(hidden_BTD.dtype),
    preferred_element_type=jnp.float32,
  )
  # A row that only fills the batch may have no token: its weights are all 0.
  asked_BKT = features.real_BT[:, None] & (ids_BK != PAD)[:, :, None]
  return jax.nn.softmax(score_BKT, axis=2, where=asked_BKT)
