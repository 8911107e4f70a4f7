"""Defines batches of tokens, which neural networks read, and unpacks them."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int32

from xjax.core.mesh import BATCH, DATA


@dataclasses.dataclass(frozen=True)
class Shortlist:
  """Holds the labels that each document of a batch is asked about.

  In training, all gold labels of a document should be among them. PAD fills
  ids_BA, and a document has each label at most once, in any order. gold_BA is
  read only in training, and only where ids_BA is not PAD.
  """

  ids_BA: jax.Array  # int32
  gold_BA: jax.Array  # bool
  # float32, how much each entry counts in the loss; None: all count equally
  weights_BA: jax.Array | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True)
class TokenBatch:
  """Holds a padded batch of documents: NumPy on hosts, jax.Array on a mesh.

  If the zones of documents are kept separate (data.tokens.by_zone), tokens are
  [B, Z, T] and lengths [B, Z]. Empty zones of a document come last, with
  length 0.
  """

  tokens_BT: jax.Array | None  # int32, 0 beyond a document; None for features
  lengths_B: jax.Array  # int32, number of tokens or vectors
  positives_BP: jax.Array  # int32 gold labels, PAD beyond a document's
  mask_B: jax.Array  # bool, False for rows that only fill the batch
  doc_B: jax.Array  # int32, row in the split; PAD for rows that only fill
  # If documents share rows, segments_BT and tokens_BT are int32 [rows, T].
  # segments_BT is 0 at padding, and 1, 2, ... for the first, second, ...
  # document of a row.
  segments_BT: jax.Array | None = None
  # int32 index of each document's first token in the flattened token rows of
  # the document's device, if documents share rows.
  first_B: jax.Array | None = None
  features_BTD: jax.Array | None = None  # float32, of an external encoder
  shortlist: Shortlist | None = None  # labels that training scores; None: all


for _kind in (TokenBatch, Shortlist):
  jax.tree_util.register_dataclass(
    _kind, [field.name for field in dataclasses.fields(_kind)], []
  )


def unpack_documents(
  packed: Float[Array, 'rows T D'],
  first_B: Int32[Array, ' B'],
  lengths_B: Int32[Array, ' B'],
) -> Float[Array, 'B T D']:
  """Returns each document in a row of its own, 0 beyond its length.

  first_B counts in the flattened rows of the document's device. The documents
  of a device are in its own rows, so nothing is sent between devices. The
  function runs on the context mesh (`jax.set_mesh`).
  """
  run = jax.shard_map(
    _unpack_shard, in_specs=(P(DATA), BATCH, BATCH), out_specs=BATCH
  )
  return run(packed, first_B, lengths_B)


def _unpack_shard(packed, first_B, lengths_B) -> Float[Array, 'B T D']:
  rows, steps, dim = packed.shape
  place_1T = jnp.arange(steps)[None]
  # A place beyond a document's end may belong to another document, or to none.
  # The vectors of such places are replaced by 0 below.
  at_BT = jnp.minimum(first_B[:, None] + place_1T, rows * steps - 1)
  gathered_BTD = packed.reshape(-1, dim)[at_BT]
  real_BT1 = (place_1T < lengths_B[:, None])[:, :, None]
  return jnp.where(real_BT1, gathered_BTD, 0)
