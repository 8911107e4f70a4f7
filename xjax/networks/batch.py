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

  Attributes:
    tokens_BT: int32 token ids, 0 beyond a document's length; None if documents
      are given as vectors (features_BTD).
    lengths_B: int32 number of tokens or vectors.
    positives_BP: int32 gold label indices, PAD beyond a document's labels.
    mask_B: bool, False for rows that only fill the batch.
    doc_B: int32 row of the document in its split, PAD for rows that only fill
      the batch.
    segments_BT: None if every document has its own row. If documents share
      rows, segments_BT and tokens_BT are int32 [rows, T]. segments_BT is 0 at
      padding, and 1, 2, ... for the first, second, ... document of a row.
    first_B: int32 index of each document's first token in the flattened token
      rows of the document's device. None if segments_BT is None.
    features_BTD: float32 vectors of an external encoder, 0 beyond a document's
      length. None for other inputs.
    shortlist: the labels that training scores; None means all labels.
  """

  tokens_BT: jax.Array | None
  lengths_B: jax.Array
  positives_BP: jax.Array
  mask_B: jax.Array
  doc_B: jax.Array
  segments_BT: jax.Array | None = None
  first_B: jax.Array | None = None
  features_BTD: jax.Array | None = None
  shortlist: Shortlist | None = None


for _kind in (TokenBatch, Shortlist):
  jax.tree_util.register_dataclass(
    _kind, [field.name for field in dataclasses.fields(_kind)], []
  )
