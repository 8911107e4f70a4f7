"""Defines the neural model: embedding, encoder, pooling and head."""

import dataclasses
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.config_part import ConfigPart, field
from xjax.core.mesh import documents_first, documents_second
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import LabelSpace
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.networks.batch import TokenBatch, unpack_documents
from xjax.networks.encoders.encoder import (
  EncoderConfig,
  EncoderInputs,
  InputConfig,
)
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.prefix import read_prefix
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.heads.attend import attention_weights
from xjax.networks.heads.head import Head, HeadConfig, HeadInputs, TokenFeatures
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAll
from xjax.networks.heads.shortlist import shortlist_loss
from xjax.networks.pooling import Mean, NoPooling, PoolingConfig
from xjax.networks.pretrained.architecture import Architecture
from xjax.networks.rows.any_head import any_head_loss
from xjax.networks.rows.fused import RowUpdate, fused_loss
from xjax.networks.rows.update import Slots
from xjax.networks.views.hierarchy_views import (
  NoViews,
  ViewInputs,
  ViewsConfig,
  WordViews,
)


@dataclasses.dataclass
class TextModelConfig(ConfigPart, abstract=True):
  """Chooses a neural network: its embedding, encoder, pooling and head."""

  embedding: InputConfig = field(
    EmbeddingConfig, 'Turns each token into a vector.'
  )
  encoder: EncoderConfig = field(
    BiGRUConfig, 'Adds the context of the document to the vectors of tokens.'
  )
  pooling: PoolingConfig = field(
    NoPooling,
    'Computes one vector of the document, for heads that need such a vector.',
  )
  head: HeadConfig = field(
    LabelAttentionConfig, 'Computes the scores of labels.'
  )
  _: dataclasses.KW_ONLY
  views: ViewsConfig = field(
    NoViews, 'Further views of training documents, and the loss of the views.'
  )

  @property
  def reads_parents(self) -> bool:
    return self.head.reads_parents or self.views.reads_parents

  def scored_labels(self, space: LabelSpace) -> int:
    """Returns n; the model scores the first n labels of the space."""
    return space.n_inside if self.head.describes else space.n_trained

  def hierarchy(self, space: LabelSpace) -> Hierarchy:
    """Returns the hierarchy of the labels that the model scores.

    The other labels of the label space are concepts, like the other concepts of
    the taxonomy (see Hierarchy.of_space, which raises DataError).
    """
    return Hierarchy.of_space(space, self.scored_labels(space))


class TextModel(nnx.Module):
  """Scores labels by an embedding, an encoder, a pooling and a head.

  The scores of a document depend neither on the other documents of the batch
  nor on the padded length. The parts are functions:

  - embedding: (tokens_TB or features_TBD, dtype, rngs) -> x_TBD, or None if the
    encoder reads tokens_TB;
  - encoder: (x_TBD, real_TB, rngs) -> h_TBD, 0 at padding;
  - pooling: (TokenFeatures, rngs) -> document_BD, or None if the head reads
    tokens.

  Activations and products are in dtype. Softmax, loss, sums and parameters are
  float32; only label rows may be stored in another format.
  """

  def __init__(
    self,
    embedding: nnx.Module | None,
    encoder: nnx.Module,
    pooling: nnx.Module | None,
    head: Head,
    *,
    dtype: jnp.dtype,
    views: WordViews | None = None,
    summary_last: bool = False,
  ):
    self.embedding = embedding
    self.encoder = encoder
    self.pooling = pooling
    self.head = head
    self.views = views
    self.dtype = jnp.dtype(dtype)
    self.summary_last = summary_last

  def features(self, batch: TokenBatch, rngs: nnx.Rngs | None = None) -> Any:
    """Computes the input of the head from a batch, on the context mesh.

    The result is that of head.prepare, which gets document_BD if there is a
    pooling, else the encoded tokens, or a Prefix if the head reads it. rngs
    have the stream `dropout`, or are None in evaluation.
    """
    return self.head.prepare(self._head_input(batch, rngs))

  def vectors(self, batch: TokenBatch) -> jax.Array:
    """Computes one vector of each document, float32, on the context mesh.

    It is the result of the pooling. If there is no pooling, it is the mean over
    the document's encoded tokens.
    """
    pooled = self._pooled(batch, None)
    if self.pooling is None:
      pooled = Mean(self.encoder.dim)(pooled)
    return pooled.astype(jnp.float32)

  def _head_input(self, batch, rngs, kept_BT=None) -> Any:
    if not self.head.reads_prefix:
      return self._pooled(batch, rngs, kept_BT)
    ids_TB = documents_second(_time_first(batch))
    real_TB = _real_tokens(len(ids_TB), batch)
    return read_prefix(self.encoder, ids_TB, real_TB, batch.lengths_B, rngs)

  def _pooled(self, batch, rngs, kept_BT=None) -> Any:
    """Embeds, encodes and pools: document_BD, TokenFeatures if not pooled."""
    # Token ids, not vectors, if the batch has no vectors from files.
    x_TBD = documents_second(_time_first(batch))
    real_TB = _real_tokens(len(x_TBD), batch)
    if self.embedding is not None:
      x_TBD = documents_second(self.embedding(x_TBD, self.dtype, rngs))
      if kept_BT is not None:
        x_TBD = x_TBD * kept_BT.T[:, :, None].astype(self.dtype)
    if self.embedding is None and kept_BT is not None:
      h_TBD = self.encoder(x_TBD, real_TB, rngs, kept_BT=kept_BT)
    else:
      h_TBD = self.encoder(x_TBD, real_TB, rngs)
    # Not documents_second, then swapaxes: in a transformer, the TPU's compiler
    # would mix the arrays of both orders if there are as many documents as
    # tokens, and send all activations between devices.
    hidden_BTD = documents_first(h_TBD.swapaxes(0, 1))
    if batch.first_B is not None:
      hidden_BTD = unpack_documents(hidden_BTD, batch.first_B, batch.lengths_B)
    lengths_B = batch.lengths_B
    if lengths_B.ndim > 1:  # of zones, which the encoder turns into vectors
      lengths_B = (lengths_B > 0).sum(axis=1, dtype=jnp.int32)
    tokens = TokenFeatures(hidden_BTD, lengths_B, self.summary_last)
    return tokens if self.pooling is None else self.pooling(tokens, rngs)

  def loss(
    self,
    batch: TokenBatch,
    loss: ChunkLoss,
    rngs: nnx.Rngs | None = None,
    weights: LabelWeights | None = None,
  ) -> jax.Array:
    """Returns the loss, summed over real documents.

    The loss of a document is a sum or a mean over labels (loss.reduction): over
    all labels, or over its shortlist, if the batch has shortlists. If there are
    further views of documents, their losses are added.

    Rows that only fill the batch add 0. Without rngs, there is no dropout.
    `weights` are None if all labels count equally.
    """
    total, first = self._view_loss(batch, loss, rngs, weights)
    if self.views is None:
      return total
    kept_BT = self._kept(batch, rngs)
    more, second = self._view_loss(batch, loss, rngs, weights, kept_BT)
    return total + more + self.views.loss(first, second, batch.mask_B, rngs)

  def _view_loss(self, batch, loss, rngs, weights, kept_BT=None):
    head = self.head.ready(rngs)
    pooled, mask_B = self._head_input(batch, rngs, kept_BT), batch.mask_B
    features = self.head.prepare_loss(pooled)
    if batch.shortlist is not None:
      total = shortlist_loss(
        head, features, batch.shortlist, mask_B, loss, weights
      )
    else:
      gold = batch.positives_BP, mask_B
      total = head.loss(features, *gold, loss, weights, rngs)
    return total, pooled

  def _kept(self, batch: TokenBatch, rngs: nnx.Rngs | None) -> jax.Array:
    """Returns the factors of the words of the second view, float32 [B, T]."""
    if self.embedding is None:
      table = self.encoder.embeddings.word[...]
    else:
      table = self.embedding.table[...]
    return self.views.kept(batch, table, rngs)

  def fused_loss(
    self,
    batch: TokenBatch,
    loss: ChunkLoss,
    rngs: nnx.Rngs | None,
    weights: LabelWeights | None,
    rows: RowUpdate,
  ) -> tuple[jax.Array, tuple[nnx.State, Slots]]:
    """Returns the loss, and the head's label rows after one training step.

    If the batch has a shortlist, only rows of labels on the shortlist change.
    The loss is that before the step. The second result is a pair of the label
    rows and the slots of the update rule, both after the step.
    """
    features = self.head.prepare_loss(self._head_input(batch, rngs))
    step = batch.mask_B, loss, rows, weights
    if isinstance(self.head, OneVsAll):
      labels = batch.shortlist
      if labels is None:
        labels = batch.positives_BP
      return fused_loss(self.head, features, labels, *step)
    return any_head_loss(
      self.head.ready(rngs), features, batch.shortlist, *step
    )

  def attention(self, batch: TokenBatch, ids_BK: jax.Array) -> jax.Array:
    """Returns how much each label attends to each token (attention_weights).

    ids_BK are K labels of each document, with PAD at the end of shorter lists.
    The head must be an AttentionHead.
    """
    return attention_weights(self.head.ready(), self.features(batch), ids_BK)


def _time_first(batch: TokenBatch) -> jax.Array:
  if batch.features_BTD is not None:
    return jnp.moveaxis(batch.features_BTD, 1, 0)
  return jnp.moveaxis(batch.tokens_BT, -1, 0)


def _real_tokens(steps: int, batch: TokenBatch) -> jax.Array:
  """Returns which tokens are real, bool [T, B] or [T, B, Z].

  For packed documents, the result is int32 [T, rows]: 0 at padding, and 1, 2,
  ... for the tokens of the first, second, ... document of a row.
  """
  if batch.segments_BT is not None:
    return documents_second(batch.segments_BT.T)
  lengths = batch.lengths_B
  return jnp.arange(steps).reshape(-1, *[1] * lengths.ndim) < lengths


def build(
  config: TextModelConfig,
  *,
  vocab_size: int,
  n_labels: int,
  architecture: Architecture | None = None,
  label_priors: np.ndarray | None = None,
  unseen: np.ndarray | None = None,
  hidden: np.ndarray | None = None,
  train_counts: np.ndarray | None = None,
  levels: LabelLevels | None = None,
  hierarchy: Hierarchy | None = None,
  dtype: jnp.dtype = jnp.float32,
  rngs: nnx.Rngs,
) -> TextModel:
  """Makes a model with fresh parameters, in a mesh context (`jax.set_mesh`).

  The label rows of OneVsAll are sharded over all devices, those of other heads
  over the label axis. All other parameters are replicated.

  Args:
    vocab_size: number of word ids, including those of padding and of unknown
      words; 0 if documents do not consist of word ids.
    architecture: sizes of the pretrained encoder; None if it is not pretrained.
    label_priors: [L], probabilities strictly between 0 and 1 (smoothed_priors).
      The initial output biases are their logits, or 0 if this is None.
    unseen: bool [L], True for labels without training documents.
    hidden: bool [L], True for labels that a unified head treats as unseen, in
      order to calibrate its scores.
    train_counts: int [L], number of training documents of each label.
    levels: for a head with levels; None divides labels evenly, in their order.
    hierarchy: for a model that reads parents; None: no label has a parent.
  """
  bias = None if label_priors is None else initial_biases(label_priors)
  none = np.zeros(n_labels, bool)
  unseen, hidden = (none if x is None else x for x in (unseen, hidden))
  if config.head.levels is not None and levels is None:
    levels = LabelLevels.even([*config.head.levels.sizes, n_labels])
  if config.reads_parents and hierarchy is None:
    hierarchy = Hierarchy.flat(n_labels)
  embedding = config.embedding.build(vocab_size, rngs)
  dim = 0 if embedding is None else embedding.dim
  encoder = config.encoder.build(EncoderInputs(dim, dtype, architecture), rngs)
  pooling = config.pooling.build(encoder.dim, rngs)
  inputs = HeadInputs(
    dim=encoder.dim,
    n_labels=n_labels,
    bias_L=bias,
    seen_L=~(unseen | hidden),
    hidden_L=hidden,
    # Descriptors are means of word vectors, or outputs of the encoder.
    descriptor_dim=dim or encoder.dim,
    counts_L=train_counts,
    joined=max(1, len(config.encoder.joined)),
    levels=levels,
    hierarchy=hierarchy,
    encoder=encoder,
  )
  head = config.head.build(inputs, rngs)
  views = config.views.build(
    ViewInputs(
      word_dim=dim if architecture is None else architecture.dim,
      document_dim=encoder.dim if pooling is None else pooling.dim,
      dtype=dtype,
      hierarchy=inputs.hierarchy,
    ),
    rngs,
  )
  return TextModel(
    embedding,
    encoder,
    pooling,
    head,
    views=views,
    dtype=dtype,
    summary_last=architecture is not None and architecture.summary_last,
  )


def smoothed_priors(train_counts: np.ndarray, n_train: int) -> np.ndarray:
  """Returns label probabilities (n + 1/2) / (N + 1), which are never 0 or 1."""
  return (np.asarray(train_counts, np.float64) + 0.5) / (n_train + 1)


def initial_biases(priors: np.ndarray) -> np.ndarray:
  """Returns the logits of label probabilities; ValueError if one is 0 or 1."""
  priors = np.asarray(priors, np.float64)
  if not np.all((priors > 0) & (priors < 1)):
    raise ValueError('label priors must be strictly between 0 and 1')
  return np.log(priors) - np.log1p(-priors)
