"""Defines encoders of the BERT family, with post-norm transformer layers."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, ClassVar

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Float32, Int32, UInt32

from xjax.core.errors import ConfigError
from xjax.core.mesh import platform
from xjax.networks.encoders.attention import Segments, self_attention
from xjax.networks.encoders.encoder import (
  EncoderInputs,
  PretrainedConfig,
  Remat,
)
from xjax.networks.encoders.layers import (
  DENSE,
  Dense,
  LayerNorm,
  seeded_dropout,
  seeds_of,
)
from xjax.networks.heads.head import normal
from xjax.networks.pretrained.architecture import (
  Activation,
  Architecture,
  BertArchitecture,
)

# The segments that `self_attention` reads, but with time as the first axis.
SegmentsTB = Bool[Array, 'T B'] | Int32[Array, 'T B']


class Transformer(nnx.Module):
  """Encodes text with transformer layers, and joins the states of some."""

  def __init__(
    self,
    architecture: Architecture,
    config: PretrainedConfig,
    *,
    dtype: DTypeLike = jnp.float32,
  ):
    # A subclass makes `layers`, one module for all of them (see `stacked`).
    self.width, self.count = architecture.dim, (n := architecture.layers)
    if any(not 1 <= abs(layer) <= n for layer in config.joined):
      raise ConfigError(
        f'config.model.encoder.joined={config.joined}: the encoder has the '
        f'layers 1 to {n}, or -{n} to -1'
      )
    # -1 is the last layer.
    joined = (x - n - 1 if x > 0 else x for x in config.joined)
    self.joined = tuple(joined) or (-1,)
    self.dim = self.width * len(self.joined)
    self.dtype = jnp.dtype(dtype)
    self.remat = config.remat

  def __call__(
    self,
    ids_TB: Int32[Array, 'T B'],
    segments_TB: SegmentsTB,
    rngs: nnx.Rngs | None,
    kept_BT: Float32[Array, 'B T'] | None = None,
  ) -> Float[Array, 'T B {self.dim}']:
    """Returns the states of the joined layers, by default of the last layer.

    Positions of each document start from 0. kept_BT are factors of the word
    vectors, for encoders that can mask words (EncoderConfig.masks_words).
    States are 0 at padding.
    """
    kept = {} if kept_BT is None else {'kept_BT': kept_BT}
    states = self.states(ids_TB, segments_TB, rngs, **kept)
    h_BTD = jnp.concatenate([states[layer] for layer in self.joined], axis=-1)
    real_BT1 = (segments_TB.T != 0)[:, :, None]
    return jnp.where(real_BT1, h_BTD, 0).swapaxes(0, 1)

  def states(
    self,
    ids_TB: Int32[Array, 'T B'],
    segments_TB: SegmentsTB,
    rngs: nnx.Rngs | None,
  ) -> list[Float[Array, 'B T {self.width}']]:
    """Returns the embeddings and then the states of each layer.

    If only the last layer is joined, they are only the states of that layer.
    States at padding mean nothing. Encoders that mask words also take kept_BT.
    """
    raise NotImplementedError

  def seeds(self, rngs: nnx.Rngs | None) -> tuple[jax.Array | None, ...]:
    """Draws seeds of the embeddings [3, 2] and of the layers [layers, 3, 2]."""
    if rngs is None:
      return None, None
    seeds = seeds_of(rngs.dropout(), 1 + self.count, 3)
    return seeds[0], seeds[1:]

  def run(
    self,
    attend: 'Attend',
    h_BTD: Float[Array, 'B T D'],
    seeds: UInt32[Array, 'layers 3 2'] | None,
    keep: Callable[[jax.Array, jax.Array], Any] = lambda *_: None,
    inputs: tuple[Any, ...] = (),
  ) -> tuple[Float[Array, 'B T D'], Any]:
    """Runs all layers, in a loop except when CPUs train.

    Returns the last states, and what `keep` returns for each layer, stacked. It
    is called with the two results of a layer. `inputs` are stacked too; those
    of a layer become the first arguments of `attend`.
    """
    graphdef, params = nnx.split(self.layers)

    def body(h_BTD: jax.Array, of_layer: tuple) -> tuple[jax.Array, Any]:
      params, seeds, inputs = of_layer
      layer = nnx.merge(graphdef, params)
      results = layer(functools.partial(attend, *inputs), h_BTD, seeds)
      return results[1], keep(*results)

    # Seeds are given instead of rngs, because rngs must not be used inside
    # these traces. In a loop, XLA cannot merge what is computed again with what
    # was computed first, so nothing has to prevent this.
    if self.remat is not Remat.NONE:
      policy = _POLICIES.get(self.remat)
      body = jax.checkpoint(body, policy=policy, prevent_cse=False)
    # In a loop, which copies weights and states, CPUs take 1.07 times as long
    # for a training step. Compilers of TPUs take six times as long without the
    # loop. Only training has seeds.
    on_cpu, kept = platform() == 'cpu', self.remat is Remat.NONE
    unroll = on_cpu and kept and seeds is not None
    return lax.scan(body, h_BTD, (params, seeds, inputs), unroll=unroll)

  def all_states(
    self,
    attend: 'Attend',
    h_BTD: Float[Array, 'B T D'],
    seeds: UInt32[Array, 'layers 3 2'] | None,
  ) -> list[Float[Array, 'B T D']]:
    """Returns `states`, of layers that read the embeddings h_BTD."""
    if set(self.joined) == {-1}:
      return [self.run(attend, h_BTD, seeds)[0]]
    return [h_BTD, *self.run(attend, h_BTD, seeds, lambda _, h_BTD: h_BTD)[1]]


_POLICIES = {Remat.DOTS: jax.checkpoint_policies.save_only_these_names(DENSE)}


def stacked(build: Callable[[], nnx.Module], count: int) -> nnx.Module:
  """Builds some modules, and returns one whose parameters are stacked."""
  graphdefs, params = zip(*(nnx.split(build()) for _ in range(count)))
  return nnx.merge(graphdefs[0], jax.tree.map(lambda *x: jnp.stack(x), *params))


@dataclasses.dataclass
class BertConfig(PretrainedConfig):
  """Fine-tunes a pretrained transformer of the BERT family.

  This encoder needs data.tokens=SubwordsConfig(...) and
  model.embedding=NoEmbedding().
  """

  architecture = BertArchitecture
  masks_words = True

  def build(self, inputs: EncoderInputs, rngs: nnx.Rngs) -> nnx.Module:
    return Bert(inputs.architecture, self, dtype=inputs.dtype, rngs=rngs)


STDDEV = 0.02  # standard deviation of fresh weights


class Bert(Transformer):
  """Encodes text with BERT (Devlin et al. 2019) or RoBERTa (Liu et al. 2019).

  The layers are those of Vaswani et al. 2017, Section 3. Parameters are
  float32. Products are computed in dtype. Softmax and norms are computed in
  float32.
  """

  def __init__(
    self,
    architecture: BertArchitecture,
    config: BertConfig,
    *,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
  ):
    super().__init__(architecture, config, dtype=dtype)
    self.embeddings = _BertEmbeddings(architecture, config.dropout, rngs)
    self.layers = stacked(
      lambda: Layer(Attention, architecture, config, rngs), self.count
    )

  def states(
    self,
    ids_TB: Int32[Array, 'T B'],
    segments_TB: SegmentsTB,
    rngs: nnx.Rngs | None,
    kept_BT: Float32[Array, 'B T'] | None = None,
  ) -> list[Float[Array, 'B T {self.width}']]:
    segments_BT, (first, seeds) = segments_TB.T, self.seeds(rngs)
    h_BTD = self._embedded(ids_TB, segments_BT, first, kept_BT)
    return self.all_states(
      functools.partial(_attend, segments_BT), h_BTD, seeds
    )

  def memory(
    self,
    ids_TB: Int32[Array, 'T B'],
    segments_TB: SegmentsTB,
    rngs: nnx.Rngs | None,
  ) -> Float[Array, 'layers B T X']:
    """Returns each layer's keys and values of tokens, side by side (X = 2D).

    Further vectors can then attend to the tokens (see encoders.prefix). Values
    at padding have no meaning.
    """
    segments_BT, (first, seeds) = segments_TB.T, self.seeds(rngs)
    h_BTD = self._embedded(ids_TB, segments_BT, first)
    attend = functools.partial(_attend, segments_BT)
    return self.run(attend, h_BTD, seeds, self.keys_and_values)[1]

  def keys_and_values(
    self, inputs_BTX: Float[Array, 'B T X'], _: jax.Array
  ) -> Float[Array, 'B T both']:
    """Returns the part of a layer's first result that others attend to."""
    return inputs_BTX[:, :, self.width :]

  def _embedded(self, ids_TB, segments_BT, seeds, kept_BT=None):
    places_BT = _positions(segments_BT)
    h_BTD = self.embeddings(ids_TB.T, places_BT, seeds, kept_BT)
    return h_BTD.astype(self.dtype)


def _positions(segments_BT: Segments) -> Int32[Array, '_ T']:
  places_1T = jnp.arange(segments_BT.shape[1])[None]
  if segments_BT.dtype == jnp.bool_:
    return places_1T
  changed = segments_BT[:, 1:] != segments_BT[:, :-1]
  # The place of a document's first token, which cummax repeats for the others.
  first = jnp.pad(jnp.where(changed, places_1T[:, 1:], 0), ((0, 0), (1, 0)))
  return places_1T - lax.cummax(first, axis=1)


class _BertEmbeddings(nnx.Module):
  """Computes dropout(norm(word[token] + position[place] + type[0]))."""

  def __init__(
    self, architecture: BertArchitecture, rate: float, rngs: nnx.Rngs
  ) -> None:
    dim = architecture.dim

    def table(rows: int) -> nnx.Param:
      return nnx.Param(normal(rngs, (rows, dim), STDDEV))

    self.word = table(architecture.vocab_size)
    self.position = table(architecture.positions)
    self.type = table(architecture.token_types)
    self.norm = LayerNorm(dim, architecture.norm_eps)
    self.offset = architecture.position_offset
    self.rate = rate

  def __call__(
    self,
    ids_BT: Int32[Array, 'B T'],
    places_BT: Int32[Array, '_ T'],
    seeds: UInt32[Array, 'draws 2'] | None,
    kept_BT: Float32[Array, 'B T'] | None,
  ) -> Float[Array, 'B T D']:
    word_BTD = self.word[...][ids_BT]
    if kept_BT is not None:
      word_BTD = word_BTD * kept_BT[:, :, None]
    return self.around(word_BTD, places_BT, 0, seeds)

  def around(
    self,
    vectors_BTD: Float[Array, 'B T D'],
    places_BT: Int32[Array, '_ T'],
    kind: int,
    seeds: UInt32[Array, 'draws 2'] | None,
  ) -> Float[Array, 'B T D']:
    """Embeds vectors instead of word vectors; `kind` is their token type."""
    position_BTD = self.position[...][places_BT + self.offset]
    h_BTD = self.norm(vectors_BTD + position_BTD + self.type[kind])
    return seeded_dropout(h_BTD, self.rate, None if seeds is None else seeds[0])


def _attend(segments_BT, attention, inputs_BTX, seeds) -> jax.Array:
  heads, rate = attention.heads, attention.weights_rate
  return self_attention(inputs_BTX, segments_BT, heads, rate, seeds)


class Attention(nnx.Module):
  """Holds the dense layers around the attention of all heads."""

  # The dense layers in the order of their drawing, and their outputs / D.
  dense: ClassVar[dict[str, int]] = {'inputs': 3, 'output': 1}
  biased: ClassVar[bool] = True  # whether the dense layers have biases

  def __init__(
    self, architecture: Architecture, config: PretrainedConfig, rngs: nnx.Rngs
  ) -> None:
    dim, self.heads = architecture.dim, architecture.heads
    self.rate, self.weights_rate = config.dropout, config.attention_dropout
    for name, size in self.dense.items():
      layer = Dense(dim, size * dim, stddev=STDDEV, rngs=rngs, bias=self.biased)
      setattr(self, name, layer)
    self.norm = LayerNorm(dim, architecture.norm_eps)


# attend(attention, inputs_BTX, seeds) -> mixed_BTD computes the attention of
# all heads, for queries, keys and values side by side.
Attend = Callable[[Attention, jax.Array, jax.Array | None], jax.Array]


class Layer(nnx.Module):
  """Applies attention, and then a feed-forward network.

  h becomes norm(h + dropout(output(attention of all heads))), and then
  norm(h + dropout(ffn(h))).
  """

  def __init__(
    self,
    attention: type[Attention],
    architecture: Architecture,
    config: PretrainedConfig,
    rngs: nnx.Rngs,
    inner_rate: float = 0.0,  # of the feed-forward network
  ) -> None:
    self.attention = attention(architecture, config, rngs)
    self.ffn = FeedForward(architecture, config.dropout, rngs, inner_rate)

  def __call__(
    self,
    attend: Attend,
    h_BTD: Float[Array, 'B T D'],
    seeds: UInt32[Array, '3 2'] | None,
  ) -> tuple[Float[Array, 'B T X'], Float[Array, 'B T D']]:
    """Returns queries, keys and values side by side, and the new states."""
    of_weights, of_output, of_ffn = [None] * 3 if seeds is None else seeds
    attention = self.attention
    inputs_BTX = attention.inputs(h_BTD)
    out_BTD = attention.output(attend(attention, inputs_BTX, of_weights))
    h_BTD = add_and_norm(
      h_BTD, out_BTD, attention.norm, attention.rate, of_output
    )
    return inputs_BTX, self.ffn(h_BTD, of_ffn)


class FeedForward(nnx.Module):
  """Computes norm(h + dropout(output(activation(inner(h)))))."""

  def __init__(
    self,
    architecture: Architecture,
    rate: float,
    rngs: nnx.Rngs,
    inner_rate: float = 0.0,  # dropout of the activations
  ) -> None:
    dim, inner = architecture.dim, architecture.inner
    self.rate, self.inner_rate = rate, inner_rate
    self.activation = architecture.activation
    self.inner = Dense(dim, inner, stddev=STDDEV, rngs=rngs)
    self.output = Dense(inner, dim, stddev=STDDEV, rngs=rngs)
    self.norm = LayerNorm(dim, architecture.norm_eps)

  def __call__(
    self, h_BTD: Float[Array, 'B T D'], seeds: UInt32[Array, '2'] | None
  ) -> Float[Array, 'B T D']:
    inner = activate(self.inner(h_BTD), self.activation)
    # Draw 1, because add_and_norm uses draw 0 of the same seeds.
    inner = seeded_dropout(inner, self.inner_rate, seeds, draw=1)
    out_BTD = self.output(inner)
    return add_and_norm(h_BTD, out_BTD, self.norm, self.rate, seeds)


# The gradient computes the activation again. Otherwise, the scan over layers
# would keep three more arrays of the inner size in float32. Without the loop,
# XLA computes it once.
@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=1)
def activate(
  x: Float[Array, '*shape'], kind: Activation
) -> Float[Array, '*shape']:
  """Applies an activation to each entry, computed in float32."""
  wide = x.astype(jnp.float32)
  match kind:
    case Activation.GELU:
      # jax.nn.gelu uses erfc, which is exact to the last bit even if the result
      # is almost 0. This code uses erf, because erfc takes twice the time.
      wide = wide * (0.5 + 0.5 * lax.erf(wide * 0.5**0.5))
    case Activation.GELU_TANH:
      wide = jax.nn.gelu(wide, approximate=True)
    case Activation.RELU:
      wide = jax.nn.relu(wide)
  return wide.astype(x.dtype)


def add_and_norm(
  h_BTD: Float[Array, 'B T D'],
  x_BTD: Float[Array, 'B T D'],
  norm: LayerNorm,
  rate: float,
  seeds: UInt32[Array, '2'] | None,
) -> Float[Array, 'B T D']:
  """Returns norm(h + dropout(x)) in h's dtype, summed in float32."""

  # Computed again for the gradient, as the activation is.
  @functools.partial(jax.checkpoint, prevent_cse=False)
  def summed(h_BTD: jax.Array, x_BTD: jax.Array) -> jax.Array:
    wide_BTD = seeded_dropout(x_BTD.astype(jnp.float32), rate, seeds)
    return norm(h_BTD.astype(jnp.float32) + wide_BTD).astype(h_BTD.dtype)

  return summed(h_BTD, x_BTD)
