"""Encoders of the BERT family: embeddings and post-norm transformer layers."""

import dataclasses

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp

from xjax.core.config_part import RATE, field
from xjax.score.encoders.attention import self_attention
from xjax.score.encoders.coins import dropped, seeds_of
from xjax.score.encoders.contract import EncoderConfig, EncoderInputs
from xjax.score.encoders.layers import Dense, LayerNorm
from xjax.score.pretrained.architecture import Activation, Architecture


@dataclasses.dataclass
class BertConfig(EncoderConfig):
  """A pretrained transformer of the BERT family, fine-tuned.

  Needs SubwordsConfig as data's, and NoEmbedding.
  """

  folder: str = field(
    '',
    "In Hugging Face's layout, with config.json, model.safetensors and the "
    'tokenizer; or the name of a model in the local Hugging Face cache. It is '
    'read when a run begins, never after; of several hosts each reads it, so '
    'each needs it, at this path. Empty: a small encoder with fresh weights '
    'that reads the words of train, with SyntheticData alone.',
    may_change=True,
    tiny='',
  )
  dropout: float = field(
    0.1,
    'Rate over the embeddings and over what each part of a layer adds.',
    RATE,
  )
  attention_dropout: float = field(
    0.1,
    "Rate over attention's weights; at 0, and with "
    'train.compute_dtype=bfloat16, GPUs use a flash kernel.',
    RATE,
  )
  remat: bool = field(
    False,
    'Whether layers are computed again for gradients: less memory, more time, '
    'the same result.',
    may_change=True,
  )
  spare_rows: bool = field(
    False,
    'Whether the word table of the folder may end in any number of rows that '
    'its tokenizer has no ids for. Else it may where it is rounded up to a '
    'multiple of 8, 16, 32, 64 or 128, and a table of any other size is taken '
    'for that of another model.',
    may_change=True,
  )

  pretrained = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return Bert(inputs.architecture, self, dtype=inputs.dtype, rngs=rngs)


_STDDEV = 0.02  # of fresh weights


class Bert(nnx.Module):
  """BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019).

  Embeddings of tokens, positions and the token type are summed and normed; then
  come layers of self-attention and a feed-forward network, each with dropout,
  a residual connection and a norm after it (Vaswani et al. 2017, Section 3).
  Parameters are float32; products are in dtype, softmax and norms in float32.

  Attributes:
    dim: size D of the states.
    embeddings: what a token is before any context.
    layers: one after the other.
  """

  def __init__(
    self,
    architecture: Architecture,
    config: BertConfig,
    *,
    dtype: jnp.dtype = jnp.float32,
    rngs: nnx.Rngs,
  ):
    """Fresh weights, normal with standard deviation 0.02.

    Args:
      architecture: sizes.
      config: dropout, and whether layers are computed again for gradients.
      dtype: of activations and products.
      rngs: stream `params`.
    """
    self.dim = architecture.dim
    self.dtype = jnp.dtype(dtype)
    self.remat = config.remat
    self.embeddings = _Embeddings(architecture, config.dropout, rngs)
    self.layers = nnx.List(
      [_Layer(architecture, config, rngs) for _ in range(architecture.layers)]
    )

  def __call__(
    self, ids_TB: jax.Array, segments_TB: jax.Array, rngs: nnx.Rngs | None
  ) -> jax.Array:
    """States of the last layer.

    Args:
      ids_TB: int32 token ids, time first.
      segments_TB: bool, False at padding; or int32, 0 at padding and else the
        number of the document among those that share a column: tokens attend
        to their own document's alone, whose positions begin at 0.
      rngs: stream `dropout`, or None: no dropout.

    Returns:
      h_TBD in dtype, 0 at padding.
    """
    h_BTD = self.states(ids_TB, segments_TB, rngs)[-1]
    real_BT1 = (segments_TB.T != 0)[:, :, None]
    return jnp.where(real_BT1, h_BTD, 0).swapaxes(0, 1)

  def states(
    self, ids_TB: jax.Array, segments_TB: jax.Array, rngs: nnx.Rngs | None
  ) -> list[jax.Array]:
    """What the embeddings and each layer give, h_BTD each; padding is not 0.

    Args:
      ids_TB, segments_TB, rngs: as of a call.
    """
    segments_BT = segments_TB.T
    seeds: list[jax.Array | None] = [None] * (1 + len(self.layers))
    if rngs is not None:
      seeds = list(seeds_of(rngs.dropout(), len(seeds), 3))
    h_BTD = self.embeddings(ids_TB.T, _positions(segments_BT), seeds[0])
    states = [h_BTD.astype(self.dtype)]
    for layer, layer_seeds in zip(self.layers, seeds[1:]):
      # Called in a trace of its own where it is computed again.
      run = jax.checkpoint(layer) if self.remat else layer
      states.append(run(states[-1], segments_BT, layer_seeds))
    return states


def _positions(segments_BT: jax.Array) -> jax.Array:
  """int32 [B, T] or [1, T], from 0 on in each document."""
  places_1T = jnp.arange(segments_BT.shape[1])[None]
  if segments_BT.dtype == jnp.bool_:
    return places_1T
  changed = segments_BT[:, 1:] != segments_BT[:, :-1]
  first = jnp.pad(jnp.where(changed, places_1T[:, 1:], 0), ((0, 0), (1, 0)))
  return places_1T - lax.cummax(first, axis=1)


class _Embeddings(nnx.Module):
  """word[token] + position[place] + type[0], normed, with dropout."""

  def __init__(
    self, architecture: Architecture, rate: float, rngs: nnx.Rngs
  ) -> None:
    dim = architecture.dim
    normal = nnx.initializers.normal(_STDDEV)

    def table(rows: int) -> nnx.Param:
      return nnx.Param(normal(rngs.params(), (rows, dim)))

    self.word = table(architecture.vocab_size)
    self.position = table(architecture.positions)
    self.type = table(architecture.token_types)
    self.norm = LayerNorm(dim, architecture.norm_eps)
    self.offset = architecture.position_offset
    self.rate = rate

  def __call__(
    self, ids_BT: jax.Array, places_BT: jax.Array, seeds: jax.Array | None
  ) -> jax.Array:
    word_BTD = self.word[...][ids_BT]
    position_BTD = self.position[...][places_BT + self.offset]
    h_BTD = self.norm(word_BTD + position_BTD + self.type[0])
    return dropped(h_BTD, self.rate, None if seeds is None else seeds[0])


class _Layer(nnx.Module):
  """Self-attention, then a feed-forward network."""

  def __init__(
    self, architecture: Architecture, config: BertConfig, rngs: nnx.Rngs
  ) -> None:
    self.attention = _Attention(architecture, config, rngs)
    self.ffn = _FeedForward(architecture, config, rngs)

  def __call__(
    self,
    h_BTD: jax.Array,
    segments_BT: jax.Array,
    seeds: jax.Array | None,
  ) -> jax.Array:
    weights, attention, ffn = [None] * 3 if seeds is None else seeds
    h_BTD = self.attention(h_BTD, segments_BT, weights, attention)
    return self.ffn(h_BTD, ffn)


class _Attention(nnx.Module):
  """norm(h + dropout(output(attention of all heads)))."""

  def __init__(
    self, architecture: Architecture, config: BertConfig, rngs: nnx.Rngs
  ) -> None:
    dim = architecture.dim
    self.heads = architecture.heads
    self.rate, self.weights_rate = config.dropout, config.attention_dropout
    self.inputs = Dense(dim, 3 * dim, stddev=_STDDEV, rngs=rngs)
    self.output = Dense(dim, dim, stddev=_STDDEV, rngs=rngs)
    self.norm = LayerNorm(dim, architecture.norm_eps)

  def __call__(
    self,
    h_BTD: jax.Array,
    segments_BT: jax.Array,
    weights_seeds: jax.Array | None,
    seeds: jax.Array | None,
  ) -> jax.Array:
    mixed_BTD = self_attention(
      self.inputs(h_BTD),
      segments_BT,
      self.heads,
      self.weights_rate,
      weights_seeds,
    )
    out_BTD = self.output(mixed_BTD)
    return _added(h_BTD, out_BTD, self.norm, self.rate, seeds)


class _FeedForward(nnx.Module):
  """norm(h + dropout(output(activation(inner(h)))))."""

  def __init__(
    self, architecture: Architecture, config: BertConfig, rngs: nnx.Rngs
  ) -> None:
    dim, inner = architecture.dim, architecture.inner
    self.rate = config.dropout
    self.activation = architecture.activation
    self.inner = Dense(dim, inner, stddev=_STDDEV, rngs=rngs)
    self.output = Dense(inner, dim, stddev=_STDDEV, rngs=rngs)
    self.norm = LayerNorm(dim, architecture.norm_eps)

  def __call__(self, h_BTD: jax.Array, seeds: jax.Array | None) -> jax.Array:
    out_BTD = self.output(activated(self.inner(h_BTD), self.activation))
    return _added(h_BTD, out_BTD, self.norm, self.rate, seeds)


def activated(x: jax.Array, kind: Activation) -> jax.Array:
  """The activation of each entry, float32 within, in x's dtype."""
  wide = x.astype(jnp.float32)
  match kind:
    case Activation.GELU:
      # By erf: jax.nn.gelu's erfc takes twice the time, to be exact to the
      # last bit where the result is next to nothing.
      wide = wide * (0.5 + 0.5 * lax.erf(wide * 0.5**0.5))
    case Activation.GELU_TANH:
      wide = jax.nn.gelu(wide, approximate=True)
    case Activation.RELU:
      wide = jax.nn.relu(wide)
  return wide.astype(x.dtype)


def _added(
  h_BTD: jax.Array,
  x_BTD: jax.Array,
  norm: LayerNorm,
  rate: float,
  seeds: jax.Array | None,
) -> jax.Array:
  """norm(h + dropout(x)) in h's dtype, summed in float32."""
  wide_BTD = dropped(x_BTD.astype(jnp.float32), rate, seeds)
  return norm(h_BTD.astype(jnp.float32) + wide_BTD).astype(h_BTD.dtype)
