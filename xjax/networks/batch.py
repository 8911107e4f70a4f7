"""Defines batches of tokens, which neural networks read."""

import dataclasses

import jax


@dataclasses.dataclass(frozen=True)
class Shortlist:
  """Holds the labels that each document of a batch is asked about.

  In training, all gold labels of a document should be among them.

  PAD fills ids_BA, and a document has each label at most once, in any order.
  gold_BA is read only in training, and only where ids_BA is not PAD.
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
  features_BTD: jax.Array | None = None  # float32, of an external encoder
  shortlist: Shortlist | None = None  # labels that training scores; None: all


for _kind in (TokenBatch, Shortlist):
  jax.tree_util.register_dataclass(
    _kind, [field.name for field in dataclasses.fields(_kind)], []
  )
