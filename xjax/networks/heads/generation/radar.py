"""Defines RADAr, a head that writes the labels of a document one by one.

See Yousef et al., "A Transformer-based Autoregressive Decoder Architecture for
Hierarchical Text Classification", 2025 (RADAr, arXiv 2501.13598), and Bertalis
et al. (2025) for RADAr++, whose sizes, order and loss are the defaults here.
"""

import dataclasses
import enum
from typing import NamedTuple

from flax import nnx, struct
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, Int32
import numpy as np

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.errors import ConfigError
from xjax.core.mesh import padded_labels
from xjax.core.numerics import product
from xjax.losses.loss import LabelWeights
from xjax.losses.sequence import SequenceLoss
from xjax.networks.encoders.layers import dropout
from xjax.networks.heads.generation.decoder import Decoder
from xjax.networks.heads.generation.emitting import EmittingHead, Ranking
from xjax.networks.heads.head import (
  Frozen,
  HeadConfig,
  HeadInputs,
  TokenFeatures,
  label_rows,
  normal,
)


class Order(enum.Enum):
  """Says in which order the levels of a label sequence come."""

  ROOTS_FIRST = 'roots_first'  # as in RADAr++ (Bertalis et al. 2025)
  LEAVES_FIRST = 'leaves_first'  # better, says RADAr (Yousef et al. 2025)


@dataclasses.dataclass
class RadarConfig(HeadConfig):
  """Chooses RADAr, which writes label sequences (Yousef et al. 2025).

  The head needs train.loss=SequenceLossConfig(). The encoder and the head often
  have different learning rates, see train.rates.
  """

  sequential = True
  reads_parents = True
  row_biases = False
  chooses_labels = True
  weighs_evenly = True

  layers: int = field(2, 'Number of layers of the decoder.', AT_LEAST_1)
  heads: int = field(
    8,
    'Number of attention heads of a layer. It must divide the size of the '
    "encoder's vectors.",
    AT_LEAST_1,
  )
  expansion: int = field(
    4,
    'Size of the hidden layer of the feed-forward networks, divided by the '
    "size of the encoder's vectors.",
    AT_LEAST_1,
  )
  dropout: float = field(
    0.2,
    'Dropout rate of the vectors of symbols, and in the layers of the decoder.',
    RATE,
  )
  order: Order = field(
    Order.ROOTS_FIRST, 'The order of the levels of a label sequence.'
  )
  most_symbols: int = field(
    100,
    'Largest number of symbols that are written for a document. Symbols are '
    'its labels, the ends of its levels, and the end of the sequence. It has '
    'no effect on training.',
    AT_LEAST_1,
  )
  ranking: Ranking = field(
    Ranking.EMITTED, 'Which labels of a document are ranked.'
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'Radar':
    if inputs.dim % self.heads:
      raise ConfigError(
        f'config.model.head.heads={self.heads}: must divide {inputs.dim}, the '
        "size of the encoder's vectors"
      )
    return Radar(self, inputs, rngs=rngs)


class DecodingState(NamedTuple):
  """Holds the state of greedy decoding after some steps."""

  at: jax.Array  # int32, number of symbols written so far
  last_B: jax.Array  # int32, the symbol that was written last
  ended_B: jax.Array  # bool, whether the end has been written
  # Keys and values of the earlier symbols, for each layer, with room for those
  # of symbols that are not written yet.
  pairs: list[jax.Array]
  emitted_BL: jax.Array  # bool, the labels written so far
  odds_BL: jax.Array  # float32, log odds of labels (see Radar), or -inf


class Logits(NamedTuple):
  """Holds the logits of all symbols."""

  labels: jax.Array  # float32 [..., L or more], -inf beyond the labels
  # float32 [..., 2], the end of a level, and the end of the sequence.
  others: jax.Array

  @property
  def total(self) -> jax.Array:
    """Returns the logarithm of the sum of exp(logit) over all symbols."""
    of_labels = jax.nn.logsumexp(self.labels, axis=-1, keepdims=True)
    both = jnp.concatenate([of_labels, self.others], axis=-1)
    return jax.nn.logsumexp(both, axis=-1)


class Radar(EmittingHead):
  """Writes labels with a transformer decoder that attends to all tokens.

  A label sequence has the labels of a document, level by level (see
  label_sequences). The probability of the next symbol is a softmax over the
  labels, the end of a level and the end of the sequence. The public code also
  has outputs for the start, for padding and for unknown labels, which are never
  right; here, they are left out.

  In prediction, the head writes the most probable symbol, again and again, up
  to the end of the sequence or to most_symbols symbols. A label that is written
  is not written again: the next best symbol takes its place. The probabilities
  are those of the softmax over all symbols, including labels that are already
  written.

  A label that the head writes with probability p in its step has the score

    logit((1 + p) / 2)

  which is above 0, so F1 judges the labels that the head writes. (1 + p) / 2 is
  the mean of p and of the decision, which is 1. Other labels have the score
  -inf or, with Ranking.FULL, the score

    logit(p / 2)

  where p is the largest probability of the label in any step up to the end, and
  the decision is 0. This score is below 0. The full ranking is not in the
  papers. The public code of RADAr++ ranks labels by level and frequency, not by
  probability.

  Memory: the logits of training are float32 [B, steps, L]; prediction keeps
  three arrays [B, L].

  The input vectors of symbols (`embedding`) and their output vectors (`kernel`)
  are not tied. other_embedding belongs to the end of a level and the start, and
  other_kernel and other_bias to the end of a level and the end of the sequence.
  Levels start at 1, and also count levels of the hierarchy without labels.
  """

  def __init__(
    self, config: RadarConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    super().__init__(inputs.n_labels, config.chunk)
    self.rate, self.ranking = config.dropout, config.ranking
    self.most_symbols = config.most_symbols
    n, dim = inputs.n_labels, inputs.dim
    rows = padded_labels(n)
    levels_L = inputs.hierarchy.levels[:n]
    self.n_levels = len(np.unique(levels_L))
    ranks_L = label_ranks(levels_L, inputs.counts_L, config.order)
    self.level = label_rows(levels_L.astype(np.int32), Frozen)
    self.rank = label_rows(ranks_L, Frozen)
    self.embedding = label_rows(normal(rngs, (rows, dim), 1.0))
    stddev = (3 * dim) ** -0.5
    self.kernel = label_rows(normal(rngs, (rows, dim), stddev))
    self.bias = label_rows(jnp.zeros(rows))
    self.other_embedding = nnx.Param(normal(rngs, (2, dim), 1.0))
    self.other_kernel = nnx.Param(normal(rngs, (2, dim), stddev))
    self.other_bias = nnx.Param(jnp.zeros(2))
    self.decoder = Decoder(
      dim,
      layers=config.layers,
      heads=config.heads,
      inner=config.expansion * dim,
      rate=config.dropout,
      rngs=rngs,
    )

  def loss(
    self,
    features: TokenFeatures,
    positives_BP: Int32[Array, 'B P'],
    mask_B: Bool[Array, ' B'],
    loss: SequenceLoss,
    weights: LabelWeights | None = None,
    rngs: nnx.Rngs | None = None,
  ) -> Float32[Array, '']:
    """Returns the loss of the gold label sequences, summed over documents."""
    # In each step, the head reads the gold symbols before the step (teacher
    # forcing).
    del weights
    sequences = label_sequences(
      positives_BP,
      self.rank[...],
      self.level[...],
      self.n_labels,
      self.n_levels,
    )
    hidden_BTD = features.hidden_BTD
    x = self._embed(sequences.inputs).astype(hidden_BTD.dtype)
    states = self.decoder(
      dropout(x, self.rate, rngs),
      self.decoder.memory(hidden_BTD),
      features.real_BT,
      rngs,
    )
    right, mean = self._logs(self._logits(states), sequences.targets)
    loss_B = loss(right, mean, sequences.real)
    return jnp.where(mask_B, loss_B, 0).sum()

  def prepare(self, features: TokenFeatures) -> Float32[Array, 'B L_or_more']:
    written = self.write(features)
    # With odds o = p / (1 - p), (1 + p) / (1 - p) is 1 + 2 o, and p / (2 - p)
    # is 1 / (1 + 2 / o).
    two = np.log(2.0)
    # The sign says whether a label is written, so no score may be rounded to 0.
    above = jnp.maximum(jax.nn.softplus(written.odds_BL + two), 1e-30)
    below = jnp.minimum(-jax.nn.softplus(two - written.odds_BL), -1e-30)
    return jnp.where(written.emitted_BL, above, below)

  def write(self, features: TokenFeatures) -> DecodingState:
    """Writes the label sequences of documents greedily."""
    memory = self.decoder.memory(features.hidden_BTD)

    def body(state: DecodingState) -> DecodingState:
      x_BD = self._embed(state.last_B).astype(features.hidden_BTD.dtype)
      h_BD, pairs = self.decoder.step(
        x_BD, state.pairs, state.at, memory, features.real_BT
      )
      return self._written(state, self._logits(h_BD), pairs)

    def goes_on(state: DecodingState) -> jax.Array:
      return (state.at < self.most_symbols) & ~state.ended_B.all()

    # A document that has ended does not change any more, so it does not depend
    # on other documents.
    return lax.while_loop(goes_on, body, self._start(features))

  def _start(self, features: TokenFeatures) -> DecodingState:
    documents, _, dim = features.hidden_BTD.shape
    labels = len(self.index)
    room = documents, self.most_symbols, 2 * dim
    return DecodingState(
      at=jnp.int32(0),
      last_B=jnp.full(documents, self.n_labels + 1, jnp.int32),
      ended_B=jnp.zeros(documents, bool),
      pairs=[
        jnp.zeros(room, features.hidden_BTD.dtype) for _ in self.decoder.layers
      ],
      emitted_BL=jnp.zeros((documents, labels), bool),
      odds_BL=jnp.full((documents, labels), -jnp.inf),
    )

  def _written(
    self, state: DecodingState, logits: Logits, pairs: list[jax.Array]
  ) -> DecodingState:
    allowed_BL = jnp.where(state.emitted_BL, -jnp.inf, logits.labels)
    label_B = jnp.argmax(allowed_BL, axis=1).astype(jnp.int32)
    other_B = jnp.argmax(logits.others, axis=1).astype(jnp.int32)
    is_label_B = allowed_BL.max(axis=1) >= logits.others.max(axis=1)
    new_B = jnp.where(is_label_B, label_B, self.n_labels + other_B)
    live_B = ~state.ended_B
    is_new_BL = (self.index[...] == new_B[:, None]) & live_B[:, None]
    # The sum over all other symbols is exact even if p is nearly 1.
    others_B = Logits(
      jnp.where(is_new_BL, -jnp.inf, logits.labels), logits.others
    ).total
    new_odds_BL = logits.labels - others_B[:, None]
    odds_BL = state.odds_BL
    if self.ranking is Ranking.FULL:
      log_BL = logits.labels - logits.total[:, None]
      largest_BL = jnp.maximum(odds_BL, log_BL - jnp.log1p(-jnp.exp(log_BL)))
      waits_BL = ~state.emitted_BL & live_B[:, None]
      odds_BL = jnp.where(waits_BL, largest_BL, odds_BL)
    return DecodingState(
      at=state.at + 1,
      last_B=new_B,
      ended_B=state.ended_B | (new_B == self.n_labels + 1),
      pairs=pairs,
      emitted_BL=state.emitted_BL | is_new_BL,
      odds_BL=jnp.where(is_new_BL, new_odds_BL, odds_BL),
    )

  def _embed(
    self, symbols: Int32[Array, '*steps']
  ) -> Float32[Array, '*steps D']:
    is_label = symbols < self.n_labels
    labels = self.embedding[...][jnp.where(is_label, symbols, 0)]
    others = jnp.where(is_label, 0, symbols - self.n_labels)
    others = self.other_embedding[...][others]
    return jnp.where(is_label[..., None], labels, others)

  def _logits(self, states: Float[Array, '*steps D']) -> Logits:
    """Returns the logits of the symbols that follow the given states."""
    last, dtype = states.ndim - 1, states.dtype
    kernel, others = (
      x[...].astype(dtype) for x in (self.kernel, self.other_kernel)
    )
    labels = product(states, kernel, (last, 1)) + self.bias[...]
    return Logits(
      jnp.where(self._is_label, labels, -jnp.inf),
      product(states, others, (last, 1)) + self.other_bias[...],
    )

  @property
  def _is_label(self) -> Bool[Array, ' L_or_more']:
    return self.index[...] < self.n_labels

  def _logs(
    self, logits: Logits, targets: Int32[Array, 'B steps']
  ) -> tuple[Float32[Array, 'B steps'], Float32[Array, 'B steps']]:
    """Returns log p of the right symbols, and its mean over all symbols."""
    total, symbols = logits.total, self.n_labels + 2
    # Sums over all labels are fast even if label rows are on several devices.
    labels = jnp.where(self._is_label, logits.labels, 0)
    is_right = self.index[...] == targets[..., None]
    is_other = jnp.arange(2) == targets[..., None] - self.n_labels
    right = jnp.where(is_right, labels, 0).sum(axis=-1)
    right += jnp.where(is_other, logits.others, 0).sum(axis=-1)
    mean = (labels.sum(axis=-1) + logits.others.sum(axis=-1)) / symbols
    return right - total, mean - total


def label_ranks(
  levels_L: Int[np.ndarray, ' L'],
  counts_L: Int[np.ndarray, ' L'] | None,
  order: Order,
) -> Int32[np.ndarray, ' L']:
  """Returns the place of each label in the order of label sequences.

  Labels are sorted by level, from 1 at the roots, then by falling frequency (as
  in the public code of RADAr++), then by index.
  """
  if counts_L is None:
    counts_L = np.zeros(len(levels_L), np.int64)
  sign = 1 if order is Order.ROOTS_FIRST else -1
  by_rank = np.lexsort((-np.asarray(counts_L, np.int64), sign * levels_L))
  ranks = np.empty(len(levels_L), np.int32)
  ranks[by_rank] = np.arange(len(levels_L))
  return ranks


@struct.dataclass
class Sequences:
  """Holds the label sequences of a batch.

  With L labels, the symbols 0 to L - 1 are the labels, and L ends a level. The
  symbol L + 1 starts a sequence in `inputs`, and ends it in `targets`.
  """

  inputs: jax.Array  # int32, the start and then the symbols before the end
  targets: jax.Array  # int32, the symbol that follows each input
  real: jax.Array  # bool, False after the end


def label_sequences(
  positives_BP: Int32[Array, 'B P'],
  ranks_L: Int32[Array, ' L_or_more'],
  levels_L: Int32[Array, ' L_or_more'],
  n_labels: int,
  n_levels: int,
) -> Sequences:
  """Makes the label sequences of documents.

  A sequence has the gold labels of a document in the order of their ranks. The
  symbol L follows the labels of each level that has some. Repeated labels count
  once, and labels from n_labels on are ignored. The sequences have P + min(P,
  n_levels) + 1 steps.
  """
  documents, most = positives_BP.shape
  steps = most + min(most, n_levels) + 1
  inside_BP = (positives_BP >= 0) & (positives_BP < n_labels)
  labels_BP = jnp.where(inside_BP, positives_BP, 0)
  keys_BP = jnp.where(inside_BP, ranks_L[labels_BP], n_labels)
  order_BP = jnp.argsort(keys_BP, axis=1)
  keys_BP = jnp.take_along_axis(keys_BP, order_BP, axis=1)
  labels_BP = jnp.take_along_axis(labels_BP, order_BP, axis=1)
  kept_BP = (keys_BP < n_labels) & _differs_from_last(keys_BP)
  opens_BP = kept_BP & _differs_from_last(levels_L[labels_BP])
  # Before a label come the labels of lower rank, and the ends of the levels
  # that came before its own.
  # Both sums include the label and its own level, hence - 2.
  place_BP = jnp.cumsum(kept_BP, axis=1) + jnp.cumsum(opens_BP, axis=1) - 2
  place_BP = jnp.where(kept_BP, place_BP, steps)
  size_B1 = (kept_BP.sum(axis=1) + opens_BP.sum(axis=1))[:, None]
  at = jnp.arange(steps)
  targets = jnp.where(at < size_B1, n_labels, n_labels + 1).astype(jnp.int32)
  rows_B1 = jnp.arange(documents)[:, None]
  targets = targets.at[rows_B1, place_BP].set(labels_BP, mode='drop')
  start_B1 = jnp.full((documents, 1), n_labels + 1, jnp.int32)
  inputs = jnp.concatenate([start_B1, targets[:, :-1]], axis=1)
  return Sequences(inputs, targets, at <= size_B1)


def _differs_from_last(x_BP: Int32[Array, 'B P']) -> Bool[Array, 'B P']:
  """Returns where an entry differs from its predecessor; True at first."""
  differs = x_BP[:, 1:] != x_BP[:, :-1]
  return jnp.pad(differs, ((0, 0), (1, 0)), constant_values=True)
