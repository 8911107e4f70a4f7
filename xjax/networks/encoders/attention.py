"""Computes self-attention.

On CPUs a few heads are computed at a time, so that their arrays fit in caches.
"""

from collections.abc import Sequence
import functools
import math

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32, UInt32

from xjax.core.mesh import platform
from xjax.core.numerics import full_precision, product
from xjax.networks.encoders.layers import seeded_dropout
from xjax.networks.heads.attend import MASKED

# Says which tokens attend to each other. `self_attention` explains the values.
Segments = Bool[Array, 'B T'] | Int32[Array, 'B T']

# Keys and values of some vectors, side by side.
Memory = Float[Array, 'B _ both']

# A head may have at most this many features, so that cuDNN's flash kernel runs
# on all GPUs.
_FLASH_HEAD = 128

# At most this many attention weights are computed at a time: 8 MiB of float32.
# The last-level cache of a CPU has room for a few arrays of this size.
_MOST_WEIGHTS = 2**21


def self_attention(
  inputs_BTX: Float[Array, 'B T X'],
  segments_BT: Segments,
  heads: int,
  rate: float = 0.0,
  seeds: UInt32[Array, '2'] | None = None,
) -> Float[Array, 'B T D']:
  """Computes softmax(q k^T / sqrt(d)) v for each head.

  This is equation 1 of Vaswani et al. (2017); d is D / heads.

  inputs_BTX has query, key and value side by side (X = 3D), and the features of
  the heads are side by side in each of them and in the result. A bool
  segments_BT is False at padding, which comes last in a row. An int32 is 0 at
  padding, and 1, 2, ... for the first, second, ... document of a row. A token
  attends to the tokens of its own document. seeds come from seeds_of, or are
  None for no dropout. Results at padding are finite, but have no meaning.
  """
  on_cpu = platform() == 'cpu'
  if seeds is None or not rate:
    if not on_cpu:
      # On GPUs, cuDNN's flash kernel for 16-bit inputs of suitable sizes.
      return _library_attention(inputs_BTX, segments_BT, heads)
    seeds = None
  batch, tokens, _ = inputs_BTX.shape
  group = heads_per_group(heads, batch * tokens**2) if on_cpu else heads
  size = group, inputs_BTX.shape[2] // 3 // heads
  inputs_BT3D = inputs_BTX.reshape(batch, tokens, 3, -1)
  return _grouped_attention(inputs_BT3D, segments_BT, seeds, size, rate)


def heads_per_group(heads: int, entries: int) -> int:
  """Returns how many heads, of B x T x T entries each, run at a time."""
  divisors = (n for n in range(1, heads + 1) if heads % n == 0)
  return max(n for n in divisors if n == 1 or n * entries <= _MOST_WEIGHTS)


def _library_attention(inputs_BTX, segments_BT, heads) -> Float[Array, 'B T D']:
  batch, tokens, width = inputs_BTX.shape
  split = inputs_BTX.reshape(batch, tokens, 3, heads, -1)
  arguments = {'implementation': 'xla'}
  sixteen_bits = inputs_BTX.dtype in (jnp.bfloat16, jnp.float16)
  fits = split.shape[-1] % 8 == 0 and split.shape[-1] <= _FLASH_HEAD
  fits &= tokens % 2 == 0
  if platform() == 'gpu' and sixteen_bits and fits:
    arguments['implementation'] = 'cudnn'
  if segments_BT.dtype == jnp.bool_:
    # A length of 0 would cause a division by zero.
    lengths_B = jnp.maximum(segments_BT.sum(axis=1, dtype=jnp.int32), 1)
    arguments['key_value_seq_lengths'] = lengths_B
  else:
    arguments['mask'] = visible_tokens(segments_BT)[:, None]
  # A context manager sets the precision, because dot_product_attention has no
  # argument for the precision.
  precision = full_precision(inputs_BTX.dtype)
  with jax.default_matmul_precision(precision and precision.name.lower()):
    out = jax.nn.dot_product_attention(
      *(split[:, :, i] for i in range(3)), **arguments
    )
  return out.reshape(batch, tokens, width // 3)


def visible_tokens(segments_BT: Segments) -> Bool[Array, 'B _ T']:
  """Returns whether one token (axis 1) attends to another token (axis 2).

  If all tokens of a row attend to the same tokens, axis 1 has size 1.
  """
  if segments_BT.dtype == jnp.bool_:
    return segments_BT[:, None, :]
  same = segments_BT[:, :, None] == segments_BT[:, None, :]
  return same & (segments_BT != 0)[:, None, :]


# The gradient is written by hand to save memory, not time. A training step of
# two MiniLM layers at 512 tokens needs 0.94 GiB of temporary memory; with JAX's
# gradient 2.07 GiB, to which each further layer adds. With jax.checkpoint, the
# step needs a tenth more memory, and takes 1.2 times as long.
@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _grouped_attention(inputs_BT3D, segments_BT, seeds, size, rate):
  """Computes `self_attention` for one group of heads after the other.

  `size` is (heads of a group, features).
  """
  return _forward(inputs_BT3D, segments_BT, seeds, size, rate)[0]


def _forward(inputs_BT3D, segments_BT, seeds, size, rate):
  batch, tokens, _, dim = inputs_BT3D.shape
  sees = visible_tokens(segments_BT)[:, None]
  # The scale multiplies the queries, not the scores: a token has d numbers in
  # the queries, but T numbers in the scores.
  scale = size[1] ** -0.5

  def step(out_BT1D: jax.Array, turn: jax.Array) -> tuple[jax.Array, jax.Array]:
    query, key, value = _cut_heads(inputs_BT3D, turn, size)
    score = _scores(query * scale, key, sees)
    top = score.max(axis=3, keepdims=True)
    # The weights' sum divides the weighted values, not the weights: a token has
    # d weighted values, but T weights.
    weight = jnp.exp(score - top)
    total = weight.sum(axis=3, keepdims=True)
    weight = seeded_dropout(weight, rate, seeds, turn)
    mixed = product(weight.astype(value.dtype), value, (3, 2), shared=2) / total
    return _put_heads(out_BT1D, mixed, turn, 0), top + jnp.log(total)

  out_BT1D = jnp.zeros((batch, tokens, 1, dim), inputs_BT3D.dtype)
  turns = jnp.arange(dim // math.prod(size))
  out_BT1D, log_total = lax.scan(step, out_BT1D, turns)
  saved = inputs_BT3D, segments_BT, seeds, out_BT1D, log_total
  return out_BT1D[:, :, 0], saved


# The attention weights are computed again, because these B x heads x T x T
# floats would be most of a layer's memory.
def _backward(size, rate, saved, d_BTD) -> tuple:
  inputs_BT3D, segments_BT, seeds, out_BT1D, log_total = saved
  sees = visible_tokens(segments_BT)[:, None]
  scale = size[1] ** -0.5
  d_BT1D = d_BTD[:, :, None]
  means = _means(out_BT1D, d_BT1D, size)

  def step(x_BT3D: jax.Array, turn_inputs: tuple) -> tuple[jax.Array, None]:
    turn, log_total, mean = turn_inputs
    query, key, value = _cut_heads(x_BT3D, turn, size)
    (d_mixed,) = _cut_heads(d_BT1D, turn, size)
    query *= scale
    weight = jnp.exp(_scores(query, key, sees) - log_total)
    d_weight = seeded_dropout(
      product(d_mixed, value, (3, 3), shared=2), rate, seeds, turn
    )
    d_score = (weight * (d_weight - mean)).astype(value.dtype)
    weight = seeded_dropout(weight, rate, seeds, turn).astype(value.dtype)
    # The gradients of a turn overwrite the query, key and value of that turn,
    # so that no second array is needed. The key's gradient is written first,
    # because it depends on everything that the turn reads from x. In another
    # order XLA would copy x.
    x_BT3D = _put_heads(x_BT3D, _transposed_product(d_score, query), turn, 1)
    x_BT3D = _put_heads(x_BT3D, _transposed_product(weight, d_mixed), turn, 2)
    x_BT3D = _put_heads(
      x_BT3D, product(d_score, key, (3, 2), shared=2) * scale, turn, 0
    )
    return x_BT3D, None

  turns = jnp.arange(len(log_total)), log_total, means
  d_BT3D, _ = lax.scan(step, inputs_BT3D, turns)
  return d_BT3D, None, None


_grouped_attention.defvjp(_forward, _backward)


def _means(out_BT1D, d_BT1D, size) -> Float32[Array, 'turns B group T 1']:
  """Averages the gradients of attention weights, by these weights."""
  # The average is the dot product of a head's result and the result's gradient.
  # So it is known before the gradients, and takes 1/T of the weights' memory.
  products = out_BT1D.astype(jnp.float32) * d_BT1D.astype(jnp.float32)
  batch, tokens = products.shape[:2]
  products = products.reshape(batch, tokens, -1, *size).sum(axis=4)
  return jnp.moveaxis(products, (2, 3), (0, 2))[..., None]


def _cut_heads(
  x: Float[Array, 'B T parts D'], turn: Int32[Array, ''], size: tuple[int, int]
) -> list[Float[Array, 'B group T size']]:
  """Returns the heads of a turn, one array for each part of x."""
  batch, tokens, parts, _ = x.shape
  width = math.prod(size)
  cut = lax.dynamic_slice_in_dim(x, turn * width, width, axis=3)
  cut = cut.reshape(batch, tokens, parts, *size)
  return [cut[:, :, part].swapaxes(1, 2) for part in range(parts)]


def _put_heads(
  x: Float[Array, 'B T parts D'],
  heads: Float[Array, 'B group T size'],
  turn: Int32[Array, ''],
  part: int,
) -> Float[Array, 'B T parts D']:
  """Writes a turn's heads to one part of x, where _cut_heads reads them."""
  batch, group, tokens, size = heads.shape
  wide = heads.swapaxes(1, 2).reshape(batch, tokens, 1, group * size)
  place = 0, 0, part, turn * group * size
  return lax.dynamic_update_slice(x, wide.astype(x.dtype), place)


def _scores(
  query: Float[Array, 'B group T size'],
  key: Float[Array, 'B group T size'],
  sees: Bool[Array, 'B 1 _ T'],
) -> Float32[Array, 'B group T T']:
  """Returns the products of queries and keys, or MASKED where sees is False."""
  return jnp.where(sees, product(query, key, (3, 3), shared=2), MASKED)


def _transposed_product(
  weight: Float[Array, 'B group T T'], x: Float[Array, 'B group T size']
) -> Float[Array, 'B group T size']:
  """Computes weight^T x as (x^T weight)^T, to transpose only small arrays."""
  return product(x.swapaxes(2, 3), weight, (3, 2), shared=2).swapaxes(2, 3)


def attend_to_parts(
  query_BND: Float[Array, 'B N D'],
  parts: Sequence[Memory],
  sees_BNX: Bool[Array, '_ _ X'],
  heads: int,
  rate: float = 0.0,
  seeds: UInt32[Array, '2'] | None = None,
) -> Float[Array, 'B N D']:
  """Computes the attention of some queries to the parts of a memory.

  The result is that of self_attention, with any mask. A part has keys and
  values side by side, [B, M, 2D], and is never copied. sees_BNX, broadcast to
  [B, N, X], says what each query attends to, with the parts side by side. A
  query that sees nothing attends to everything.
  """
  batch, count, dim = query_BND.shape

  def split(x: jax.Array) -> jax.Array:
    """Returns [B, heads, M, D / heads]."""
    return x.reshape(batch, x.shape[1], heads, -1).swapaxes(1, 2)

  query = split(query_BND * (dim // heads) ** -0.5)
  scores = [
    product(query, split(part[:, :, :dim]), (3, 3), shared=2) for part in parts
  ]
  score = jnp.concatenate(scores, axis=3)
  score = jnp.where(sees_BNX[:, None], score, MASKED)
  weight = seeded_dropout(jax.nn.softmax(score, axis=3), rate, seeds)
  mixed, start = 0.0, 0
  for part in parts:
    stop = start + part.shape[1]
    own = weight[:, :, :, start:stop].astype(part.dtype)
    value = split(part[:, :, dim:])
    mixed, start = mixed + product(own, value, (3, 2), shared=2), stop
  mixed_BND = mixed.swapaxes(1, 2).reshape(batch, count, dim)
  return mixed_BND.astype(query_BND.dtype)
