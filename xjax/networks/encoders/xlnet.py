"""Defines XLNet, a transformer whose tokens see how far apart they are.

XLNet is by Yang et al. (2019). The attention with relative positions is that of
Transformer-XL (Dai et al. 2019). The second stream and the memory of earlier
texts, with which XLNet learns to guess tokens, are left out.
"""

import dataclasses
import functools

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Float32, Int32, UInt32

from xjax.core.mesh import platform
from xjax.core.numerics import product
from xjax.networks.encoders.attention import (
  Segments,
  heads_per_group,
  visible_tokens,
)
from xjax.networks.encoders.bert import (
  STDDEV,
  Attention,
  Layer,
  SegmentsTB,
  Transformer,
  stacked,
)
from xjax.networks.encoders.encoder import EncoderInputs, PretrainedConfig
from xjax.networks.encoders.layers import seeded_dropout
from xjax.networks.heads.attend import MASKED
from xjax.networks.heads.head import normal
from xjax.networks.pretrained.architecture import XLNetArchitecture


@dataclasses.dataclass
class XLNetConfig(PretrainedConfig):
  """Fine-tunes a pretrained XLNet.

  This encoder needs data.tokens=SubwordsConfig(...) and
  model.embedding=NoEmbedding(). Its token [CLS] is the last token of a text.
  """

  architecture = XLNetArchitecture

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return XLNet(inputs.architecture, self, dtype=inputs.dtype, rngs=rngs)


class XLNet(Transformer):
  """Encodes text with XLNet (Yang et al. 2019).

  The layers read the embeddings of tokens. They are as in BERT, but positions
  matter only in attention.

  A text and its last token, [CLS], are two segments. So `__call__` needs no
  types of tokens. As attention depends on differences of positions only, the
  states of a text depend neither on padding nor on the other documents of a
  packed row.
  """

  def __init__(
    self,
    architecture: XLNetArchitecture,
    config: XLNetConfig,
    *,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
  ):
    super().__init__(architecture, config, dtype=dtype)
    self.rate = config.dropout
    self.embeddings = _XLNetEmbeddings(architecture, rngs)
    self.layers = stacked(
      lambda: Layer(
        RelativeAttention, architecture, config, rngs, config.dropout
      ),
      self.count,
    )

  def states(
    self,
    ids_TB: Int32[Array, 'T B'],
    segments_TB: SegmentsTB,
    rngs: nnx.Rngs | None,
  ) -> list[Float[Array, 'B T {self.width}']]:
    segments_BT, (others, seeds) = segments_TB.T, self.seeds(rngs)
    first, places, last = [None] * 3 if others is None else others
    word_BTD = self.embeddings.word[...][ids_TB.T].astype(self.dtype)
    # All documents of a batch share the dropout of positions. Otherwise, each
    # layer would compute its keys of positions once for each document.
    offset_places = relative_positions(len(ids_TB), self.width).astype(
      self.dtype
    )
    offset_places = seeded_dropout(offset_places, self.rate, places)
    word_BTD = seeded_dropout(word_BTD, self.rate, first)

    def attend(attention, inputs_BTX, seeds):
      return attention(inputs_BTX, offset_places, segments_BT, seeds)

    states = self.all_states(attend, word_BTD, seeds)
    states[-1] = seeded_dropout(states[-1], self.rate, last)
    return states


def relative_positions(tokens: int, dim: int) -> Float32[Array, 'offsets D']:
  """Returns the sinusoids of all differences of positions (Dai et al. 2019).

  Row r belongs to the difference d = T - r, from T to 1 - T. It holds sin(d w)
  and then cos(d w), for the frequencies w = 10000^(-2i / D), i = 0, 1, ...
  """
  differences = jnp.arange(tokens, -tokens, -1, dtype=jnp.float32)
  frequency = 10_000.0 ** -(jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
  angles = differences[:, None] * frequency
  return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


class _XLNetEmbeddings(nnx.Module):
  """Holds the word table, under the path that it has in Bert as well."""

  def __init__(self, architecture: XLNetArchitecture, rngs: nnx.Rngs) -> None:
    shape = architecture.vocab_size, architecture.dim
    self.word = nnx.Param(normal(rngs, shape, STDDEV))


class RelativeAttention(Attention):
  """Holds the dense layers of an attention, and what it adds to its scores."""

  dense = {'inputs': 3, 'position': 1, 'output': 1}
  biased = False

  def __init__(
    self, architecture: XLNetArchitecture, config: XLNetConfig, rngs: nnx.Rngs
  ) -> None:
    super().__init__(architecture, config, rngs)
    size = self.heads, architecture.dim // self.heads

    def param(*shape: int) -> nnx.Param:
      return nnx.Param(normal(rngs, shape, STDDEV))

    self.word_bias, self.position_bias = param(*size), param(*size)
    self.segment_bias, self.segment = param(*size), param(2, *size)

  def __call__(
    self,
    inputs_BTX: Float[Array, 'B T X'],
    offset_places: Float[Array, 'offsets D'],
    segments_BT: Segments,
    seeds: UInt32[Array, '2'] | None,
  ) -> Float[Array, 'B T D']:
    biases = self.word_bias, self.position_bias, self.segment_bias, self.segment
    return relative_attention(
      inputs_BTX,
      self.position(offset_places),
      [x[...] for x in biases],
      segments_BT,
      self.weights_rate,
      seeds,
    )


def relative_attention(
  inputs_BTX: Float[Array, 'B T X'],
  offset_keys: Float[Array, 'offsets D'],
  biases: list[Float[Array, '...']],
  segments_BT: Segments,
  rate: float = 0.0,
  seeds: UInt32[Array, '2'] | None = None,
) -> Float[Array, 'B T D']:
  """Computes the attention of XLNet for all heads.

  For a query q_i, a key k_j and a head of size d, the score of token j for
  token i is

    ((q_i + u) k_j + (q_i + v) p_(i-j) + (q_i + w) s_ij) / sqrt(d)

  The first two terms are those of Dai et al. 2019 (Section 3.3). The third is
  that of Yang et al. 2019 (Section 2.5). p_(i-j) is the key of a difference of
  positions. s_ij is one of two vectors, for tokens of the same segment and of
  different segments. The last token of a document is a segment of its own.

  inputs_BTX, segments_BT and seeds are those of self_attention. offset_keys are
  the p, in the order of relative_positions. `biases` are u, v and w [heads, d],
  and the two vectors s [2, heads, d], that of the same segment first.
  """
  heads, size = biases[0].shape
  batch, tokens, _ = inputs_BTX.shape
  on_cpu = platform() == 'cpu'
  # A head has the scores of T keys, and the scores of 2T differences.
  entries = 3 * batch * tokens**2
  group = heads_per_group(heads, entries) if on_cpu else heads
  turns = heads // group
  split = inputs_BTX.reshape(batch, tokens, 3, turns, group, size)
  of_turns = (
    jnp.arange(turns),
    # [turns, 3, B, group, T, size]; the scan is over turns.
    split.transpose(3, 2, 0, 4, 1, 5),
    offset_keys.reshape(-1, turns, group, size).transpose(1, 2, 0, 3),
    [x.reshape(*x.shape[:-2], turns, group, size) for x in biases[:3]],
    biases[3].reshape(2, turns, group, size).swapaxes(0, 1),
  )
  last_BT = _is_last(segments_BT)
  masks = (
    visible_tokens(segments_BT)[:, None],
    last_BT[:, :, None] != last_BT[:, None],
  )
  run = jax.checkpoint(functools.partial(_attend, masks, rate, seeds))
  _, mixed = lax.scan(lambda _, turn: (None, run(*turn)), None, of_turns)
  # [turns, B, group, T, size] becomes [B, T, D].
  return mixed.transpose(1, 3, 0, 2, 4).reshape(batch, tokens, heads * size)


def _is_last(segments_BT: Segments) -> Bool[Array, 'B T']:
  after_BT = jnp.pad(segments_BT[:, 1:], ((0, 0), (0, 1)))
  return (segments_BT != 0) & (segments_BT != after_BT)


def _attend(
  masks: tuple[Bool[Array, 'B 1 _ T'], Bool[Array, 'B T T']],
  rate: float,
  seeds: UInt32[Array, '2'] | None,
  turn: Int32[Array, ''],
  parts: Float[Array, '3 B group T size'],
  position: Float[Array, 'group offsets size'],
  biases: list[Float[Array, 'group size']],
  segment: Float[Array, '2 group size'],
) -> Float[Array, 'B group T size']:
  """Computes the attention of a group of heads.

  The masks are True where a token attends to another token, and where two
  tokens are in different segments.
  """
  attends, differ_BTT = masks
  query, key, value = parts
  # Biases are added in float32, so that their gradients are summed in it.
  for_word, for_position, for_segment = (
    ((query + bias[:, None]) * query.shape[-1] ** -0.5).astype(query.dtype)
    for bias in biases
  )
  segment = segment.swapaxes(0, 1).astype(query.dtype)
  score = product(for_word, key, (3, 3), shared=2)
  score += _shift(_by_head(for_position, position))
  same, other = jnp.split(_by_head(for_segment, segment), 2, 3)
  score += jnp.where(differ_BTT[:, None], other, same)
  weight = jax.nn.softmax(jnp.where(attends, score, MASKED), axis=3)
  weight = seeded_dropout(weight, rate, seeds, turn)
  mixed = product(weight.astype(value.dtype), value, (3, 2), shared=2)
  return mixed.astype(value.dtype)


def _by_head(
  query: Float[Array, 'B group T size'], key: Float[Array, 'group N size']
) -> Float32[Array, 'B group T N']:
  """Returns the products of queries with keys that all documents share."""
  scores = product(query.swapaxes(0, 1), key, (3, 2), shared=1)
  return scores.swapaxes(0, 1)


def _shift(
  by_difference: Float32[Array, 'B group T offsets'],
) -> Float32[Array, 'B group T T']:
  """Returns the scores of tokens j, from the scores of differences i - j."""
  *outer, tokens, columns = by_difference.shape
  # The score of j for i is in column T - (i - j). So each row of the result
  # starts one column earlier than the row above it. Rows of 2T - 1 columns,
  # read from the same numbers without the first T, are shifted in this way.
  flat = by_difference.reshape(*outer, tokens * columns)[..., tokens:]
  return flat.reshape(*outer, tokens, columns - 1)[..., :tokens]
