"""Defines further views of training documents, among them those of HGCLR.

A view is a changed copy of a document. Training compares the views of a
document with each other and with those of others; predictions read none.
"""

import abc
from collections.abc import Callable, Iterator
import dataclasses
import functools
from typing import Any, ClassVar

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_1,
  POSITIVE,
  RATE,
  ConfigPart,
  field,
  kinds_that,
)
from xjax.core.mesh import BATCH
from xjax.core.numerics import product
from xjax.data.hierarchy import Hierarchy
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.bert import STDDEV
from xjax.networks.encoders.encoder import EncoderConfig
from xjax.networks.encoders.layers import Dense, dropout
from xjax.networks.heads.attend import MASKED
from xjax.networks.views.label_encoder import LabelEncoder, TaxonomyParts


@dataclasses.dataclass(frozen=True)
class ViewInputs:
  """Holds the facts about a run that views need when they are built."""

  word_dim: int  # size of the vectors in the model's table of words or pieces
  document_dim: int  # size of a document's vector, after the pooling
  dtype: DTypeLike  # of activations and products
  hierarchy: Hierarchy | None = None  # None if the views do not read it


@dataclasses.dataclass
class ViewsConfig(ConfigPart, abstract=True):
  """Chooses the further views of training documents, and their loss."""

  reads_parents: ClassVar[bool] = False  # needs ViewInputs.hierarchy

  @abc.abstractmethod
  def build(self, inputs: ViewInputs, rngs: nnx.Rngs) -> 'WordViews | None':
    """Makes the module of the views, or None if there are no further views.

    Like WordViews, it has `kept`, factors of words [B, T] in the second view
    (any at padding), and `loss`, which compares views of real documents.
    """

  def check_hierarchy(self, hierarchy: Hierarchy) -> None:
    """Raises ConfigError if the views do not suit the hierarchy of labels."""


@dataclasses.dataclass
class NoViews(ViewsConfig):
  """Chooses no further views, so that training reads only the documents."""

  def build(self, inputs: ViewInputs, rngs: nnx.Rngs) -> None:
    return None


# Returns the Gumbel noise of a part of the taxonomy, given its index and the
# shape [B, T, C].
Noise = Callable[[jax.Array, tuple[int, ...]], jax.Array]


@dataclasses.dataclass
class HierarchyViews(ViewsConfig):
  """Chooses the views of HGCLR (Wang et al. 2022).

  A label encoder reads the names of the labels and their taxonomy. Each word of
  a training document chooses labels by attention. The second view of the
  document keeps the words that choose its gold labels. A contrastive loss moves
  the vectors of both views together. A training step takes about twice as long
  as without views. The label encoder is not used in prediction.

  The contrastive loss compares the documents of a micro-batch with each other
  only. So train.accumulate changes this loss: with a larger number, a document
  has fewer negatives.
  """

  reads_parents = True

  weight: float = field(
    0.05,
    'Factor of the contrastive loss. The papers of HGCLR use the mean over '
    'labels as the loss of labels (loss.reduction=MEAN_LABELS). The '
    'contrastive loss compares the documents of a micro-batch, so '
    'train.accumulate above 1 changes it.',
    AMOUNT,
  )
  threshold: float = field(
    0.02,
    'A word is kept if the probability that it chooses a gold label is above '
    'this number.',
    RATE,
  )
  temperature: float = field(
    1.0, 'Temperature of the choice of labels (Gumbel softmax).', POSITIVE
  )
  contrast_temperature: float = field(
    1.0, 'Temperature of the contrastive loss.', POSITIVE
  )
  dropout: float = field(
    0.1, 'Dropout rate of the layers between a vector and the loss.', RATE
  )
  heads: int = field(
    12,
    'Number of heads with which labels attend to each other. It must divide '
    'the size of a word vector.',
    AT_LEAST_1,
  )
  token_heads: int = field(
    8,
    'Number of heads with which words attend to labels. The scores of the '
    'heads are averaged, so the number only scales the scores.',
    AT_LEAST_1,
  )
  name_tokens: int = field(
    16,
    'Number of words or pieces that are read from the start of a name.',
    AT_LEAST_1,
  )
  segment: int = field(
    512,
    'Largest number of nodes of the taxonomy that the label encoder reads at a '
    'time. A larger taxonomy is cut into sub-trees of this size.',
    AT_LEAST_1,
  )

  def build(self, inputs: ViewInputs, rngs: nnx.Rngs) -> 'WordViews':
    return WordViews(self, inputs, rngs)

  def check_hierarchy(self, hierarchy: Hierarchy) -> None:
    # Raises ConfigError if segments are too small.
    TaxonomyParts.of(hierarchy, self.segment)

  def faults(self, config: Any, path: str) -> Iterator[str]:
    where, model = f'{path}=HierarchyViews(...)', config.model
    tokens = config.data.tokens
    if not model.pooling.pools:
      yield (
        f'{where}: needs a config.model.pooling, because the loss compares one '
        'vector of each document'
      )
    if not model.encoder.masks_words:
      kinds = kinds_that('masks_words', EncoderConfig)
      yield f'{where}: needs config.model.encoder={kinds}'
    if tokens.dense or tokens.by_zone or tokens.packed:
      yield (
        f'{where}: needs data.tokens with one row of words or pieces for each '
        'document; config.data.tokens must not be FeatureFilesConfig(...), and '
        'must not have by_zone=True or packed=True'
      )
    if config.train.rows.fused:
      yield (
        f'{where}: needs config.train.rows=ByOptimizer(), because the label '
        'rows have gradients from both views'
      )


class WordViews(nnx.Module):
  """Chooses words by the labels that they attend to.

  The second view is the document after the vectors of its words are multiplied
  by the numbers of `kept`. The training loss is the loss of the document's
  labels, plus the same loss for the second view, plus `loss`.
  """

  def __init__(
    self, config: HierarchyViews, inputs: ViewInputs, rngs: nnx.Rngs
  ):
    self.config, self.dtype = config, jnp.dtype(inputs.dtype)
    dim, units = inputs.word_dim, inputs.document_dim
    self.labels = LabelEncoder(
      TaxonomyParts.of(inputs.hierarchy, config.segment),
      dim,
      heads=config.heads,
      name_tokens=config.name_tokens,
      dtype=self.dtype,
      rngs=rngs,
    )
    dense = functools.partial(Dense, stddev=STDDEV, rngs=rngs)
    self.query, self.key = dense(dim, dim), dense(dim, dim)
    self.inner, self.outer = dense(units, units), dense(units, units)

  def kept(
    self,
    batch: TokenBatch,
    table: Float32[Array, 'words D'],
    rngs: nnx.Rngs | None,
  ) -> Float32[Array, 'B T']:
    """Returns 1 for kept words, else 0; no Gumbel noise without rngs."""
    # The gradient is the gradient of the importance of the word
    # (straight-through estimator).
    noise = None
    if rngs is not None:
      noise = functools.partial(_gumbel, rngs.dropout())
    words_BTD = _by_document(table[batch.tokens_BT].astype(self.dtype))
    importance_BT = self.importance(words_BTD, table, batch.positives_BP, noise)
    kept_BT = (importance_BT > self.config.threshold).astype(jnp.float32)
    # The difference is exactly 0.
    return kept_BT + (importance_BT - lax.stop_gradient(importance_BT))

  def importance(
    self,
    words_BTD: Float[Array, 'B T D'],
    table: Float32[Array, 'words D'],
    positives_BP: Int32[Array, 'B P'],
    noise: Noise | None = None,
  ) -> Float32[Array, 'B T']:
    """Returns the probability that a word chooses a gold label.

    A word chooses among all labels with the probabilities

      softmax over labels of (s + Gumbel noise) / temperature

    where s is the mean over heads of the attention scores. A label that is in
    several parts is counted in its first part. Nodes that are no labels are not
    counted; they only change the vectors of labels.
    """
    query_BTD = self.query(words_BTD)
    # The mean over H heads of q_h . k_h / (D / H)^0.5.
    scale = (self.config.token_heads * words_BTD.shape[2]) ** -0.5

    def add_part(totals: tuple, part: tuple) -> tuple[tuple, None]:
      index, nodes_C, paths, counted_C = part
      key_CD = self.key(self.labels(nodes_C, paths, table))
      logits_BTC = product(query_BTD, key_CD, (2, 1)) * scale
      if noise is not None:
        logits_BTC += noise(index, logits_BTC.shape)
      logits_BTC /= self.config.temperature
      is_gold_BC = (positives_BP[:, :, None] == nodes_C).any(axis=1) & counted_C
      masks = counted_C, is_gold_BC[:, None]
      sums = (_log_sum(jnp.where(mask, logits_BTC, MASKED)) for mask in masks)
      totals = (jnp.logaddexp(*pair) for pair in zip(totals, sums))
      return tuple(map(_by_document, totals)), None

    parts = [x[...] for x in (self.labels.nodes, self.labels.paths)]
    parts = [jnp.arange(len(parts[0])), *parts, self.labels.counted[...]]
    none_BT = jnp.full(words_BTD.shape[:2], MASKED, jnp.float32)
    # The parts are processed one after the other, and again for the gradient.
    # So only one array of B x T x C scores is in memory, where C is the size of
    # a part.
    body = jax.checkpoint(add_part, prevent_cse=False)
    (all_BT, gold_BT), _ = lax.scan(body, (none_BT, none_BT), tuple(parts))
    return jnp.exp(gold_BT - all_BT)

  def loss(
    self,
    first_BD: Float[Array, 'B D'],
    second_BD: Float[Array, 'B D'],
    mask_B: Bool[Array, ' B'],
    rngs: nnx.Rngs | None,
  ) -> Float32[Array, '']:
    """Returns the weighted contrastive loss, summed over real documents.

    Two dense layers turn each vector into a point. The loss of a document is
    the mean of the losses of its two points (contrast_losses).
    """
    pairs = jnp.stack([self._point(x, rngs) for x in (first_BD, second_BD)])
    # Every device compares its documents with the documents of all devices.
    points_2BD = lax.with_sharding_constraint(pairs, P())
    losses_2B = contrast_losses(
      points_2BD, mask_B, self.config.contrast_temperature
    )
    return self.config.weight * losses_2B.mean(axis=0).sum()

  def _point(self, document_BD, rngs) -> Float32[Array, 'B D']:
    """Returns outer(dropout(relu(inner(dropout(document)))))."""
    rate = self.config.dropout
    inner = jax.nn.relu(self.inner(dropout(document_BD, rate, rngs)))
    return self.outer(dropout(inner, rate, rngs)).astype(jnp.float32)


def contrast_losses(
  points_2BD: Float32[Array, '2 B D'],
  mask_B: Bool[Array, ' B'],
  temperature: float,
) -> Float32[Array, '2 B']:
  """Returns the loss of each point, NT-Xent (Chen et al. 2020).

  The loss of a point is a softmax cross entropy over the points of all other
  views, where the other view of the same document is the target. The logits are
  cosines, divided by the temperature. Points of real documents must not be 0.
  No point is compared with rows that only fill the batch; their loss is 0.
  """
  _, batch, dim = points_2BD.shape
  points_XD = points_2BD.reshape(-1, dim)
  square_X1 = jnp.square(points_XD).sum(axis=1, keepdims=True)
  points_XD = points_XD * lax.rsqrt(jnp.maximum(square_X1, 1e-16))
  logits_XX = product(points_XD, points_XD, (1, 1)) / temperature
  mask_X = jnp.tile(mask_B, 2)
  compared_XX = mask_X & ~jnp.eye(2 * batch, dtype=bool)
  logits_XX = jnp.where(compared_XX, logits_XX, MASKED)
  # Points i and i + B are the two views of one document.
  target_X = jnp.roll(jnp.arange(2 * batch), batch)
  target_X1 = jnp.take_along_axis(logits_XX, target_X[:, None], axis=1)
  losses_X = _log_sum(logits_XX) - target_X1[:, 0]
  return jnp.where(mask_X, losses_X, 0).reshape(2, batch)


def _gumbel(key, index, shape) -> Float32[Array, '*shape']:
  return jax.random.gumbel(jax.random.fold_in(key, index), shape, jnp.float32)


def _log_sum(logits: Float32[Array, '*axes C']) -> Float32[Array, '*axes']:
  return jax.nn.logsumexp(logits, axis=-1)


def _by_document(x: jax.Array) -> jax.Array:
  return lax.with_sharding_constraint(x, BATCH)
