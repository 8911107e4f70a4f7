"""Self-attention of all heads, head after head where arrays live in a cache.

Its gradient is written by hand for memory, not for time: left to JAX, a
training step of two of MiniLM's layers at 512 tokens takes as long (1.00), but
2.07 GiB of temporary memory instead of 0.94, and each further layer adds to it.
"""

import functools
import math

import jax
from jax import lax
import jax.numpy as jnp

from xjax.core.numerics import full_precision, product
from xjax.score.encoders.coins import dropped
from xjax.score.heads.attend import MASKED

_FLASH_HEAD = 128  # features of the largest that cuDNN takes on all GPUs

# Weights of as many heads as make up this many at a time: 8 MiB of float32,
# of which a handful fit into the last cache of a CPU.
_AT_ONCE = 2**21


def self_attention(
  inputs_BTX: jax.Array,
  segments_BT: jax.Array,
  heads: int,
  rate: float = 0.0,
  seeds: jax.Array | None = None,
) -> jax.Array:
  """softmax(q k^T / sqrt(d)) v of each head (Vaswani et al. 2017, eq. 1).

  On GPUs and without dropout, operands of 16 bits go through cuDNN's flash
  kernel. Elsewhere the gradient is written out, and computes the weights again
  rather than keep them: B x heads x T x T floats are most of a layer's memory.

  Args:
    inputs_BTX: query, key and value side by side, X = 3D; within each the
      heads, of D / heads features each, side by side.
    segments_BT: bool, False at padding, which comes last; or int32, 0 at
      padding and else the number of the document among those of a row. Tokens
      see those of their own document.
    heads: how many; they divide D.
    rate: of dropout over the weights, in [0, 1).
    seeds: uint32 [2] of coins.seeds_of; None: nothing is dropped.

  Returns:
    [B, T, D] in the inputs' dtype: the heads' results side by side. Of no
    meaning at padding, but finite.
  """
  on_cpu = jax.default_backend() == 'cpu'
  if seeds is None or not rate:
    if not on_cpu:
      return _library(inputs_BTX, segments_BT, heads)
    seeds = None
  batch, tokens, _ = inputs_BTX.shape
  group = _group(heads, batch * tokens**2) if on_cpu else heads
  size = group, inputs_BTX.shape[2] // 3 // heads
  inputs_BT3D = inputs_BTX.reshape(batch, tokens, 3, -1)
  return _by_group(inputs_BT3D, segments_BT, seeds, size, rate)


def _group(heads: int, entries: int) -> int:
  """The most heads at a time that divide all and stay below _AT_ONCE."""
  fitting = (n for n in range(1, heads + 1) if heads % n == 0)
  return max(n for n in fitting if n == 1 or n * entries <= _AT_ONCE)


def _library(
  inputs_BTX: jax.Array, segments_BT: jax.Array, heads: int
) -> jax.Array:
  """By jax.nn.dot_product_attention, with a flash kernel where there is one."""
  batch, tokens, width = inputs_BTX.shape
  split = inputs_BTX.reshape(batch, tokens, 3, heads, -1)
  arguments = {'implementation': 'xla'}
  sixteen_bits = inputs_BTX.dtype in (jnp.bfloat16, jnp.float16)
  fits = split.shape[-1] % 8 == 0 and split.shape[-1] <= _FLASH_HEAD
  fits &= tokens % 2 == 0
  if jax.default_backend() == 'gpu' and sixteen_bits and fits:
    arguments['implementation'] = 'cudnn'
  if segments_BT.dtype == jnp.bool_:
    # A row of no tokens at all would divide by zero.
    lengths_B = jnp.maximum(segments_BT.sum(axis=1, dtype=jnp.int32), 1)
    arguments['key_value_seq_lengths'] = lengths_B
  else:
    arguments['mask'] = _sees(segments_BT)[:, None]
  # The library takes no precision; the surroundings take its name.
  precision = full_precision(inputs_BTX.dtype)
  with jax.default_matmul_precision(precision and precision.name.lower()):
    out = jax.nn.dot_product_attention(
      *(split[:, :, i] for i in range(3)), **arguments
    )
  return out.reshape(batch, tokens, width // 3)


def _sees(segments_BT: jax.Array) -> jax.Array:
  """Which tokens (last) a token sees: bool [B, T, T], or [B, 1, T]."""
  if segments_BT.dtype == jnp.bool_:
    return segments_BT[:, None, :]
  same = segments_BT[:, :, None] == segments_BT[:, None, :]
  return same & (segments_BT != 0)[:, None, :]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _by_group(
  inputs_BT3D: jax.Array,
  segments_BT: jax.Array,
  seeds: jax.Array | None,
  size: tuple[int, int],
  rate: float,
) -> jax.Array:
  """As self_attention; size is that of a turn: heads, features of a head."""
  return _forward(inputs_BT3D, segments_BT, seeds, size, rate)[0]


def _forward(
  inputs_BT3D: jax.Array,
  segments_BT: jax.Array,
  seeds: jax.Array | None,
  size: tuple[int, int],
  rate: float,
) -> tuple[jax.Array, tuple]:
  """The result, and what its gradient needs."""
  batch, tokens, _, dim = inputs_BT3D.shape
  sees = _sees(segments_BT)[:, None]
  scale = size[1] ** -0.5  # of small arrays: a pass fewer over scores

  def step(out_BT1D: jax.Array, turn: jax.Array) -> tuple[jax.Array, jax.Array]:
    query, key, value = _cut(inputs_BT3D, turn, size)
    score = _scores(query * scale, key, sees)
    top = score.max(axis=3, keepdims=True)
    # Sums divide what they weight, a T-th of the weights' number.
    weight = jnp.exp(score - top)
    total = weight.sum(axis=3, keepdims=True)
    weight = dropped(weight, rate, seeds, turn)
    mixed = product(weight.astype(value.dtype), value, (3, 2), shared=2) / total
    return _put(out_BT1D, mixed, turn, 0), top + jnp.log(total)

  out_BT1D = jnp.zeros((batch, tokens, 1, dim), inputs_BT3D.dtype)
  turns = jnp.arange(dim // math.prod(size))
  out_BT1D, log_total = lax.scan(step, out_BT1D, turns)
  saved = inputs_BT3D, segments_BT, seeds, out_BT1D, log_total
  return out_BT1D[:, :, 0], saved


def _backward(
  size: tuple[int, int], rate: float, saved: tuple, d_BTD: jax.Array
) -> tuple:
  inputs_BT3D, segments_BT, seeds, out_BT1D, log_total = saved
  sees = _sees(segments_BT)[:, None]
  scale = size[1] ** -0.5
  d_BT1D = d_BTD[:, :, None]
  means = _means(out_BT1D, d_BT1D, size)

  def step(x_BT3D: jax.Array, turn: tuple) -> tuple[jax.Array, None]:
    turn, log_total, mean = turn
    query, key, value = _cut(x_BT3D, turn, size)
    (d_mixed,) = _cut(d_BT1D, turn, size)
    query *= scale
    weight = jnp.exp(_scores(query, key, sees) - log_total)
    d_weight = dropped(
      product(d_mixed, value, (3, 3), shared=2), rate, seeds, turn
    )
    d_score = (weight * (d_weight - mean)).astype(value.dtype)
    weight = dropped(weight, rate, seeds, turn).astype(value.dtype)
    # A turn's gradients take the places of what they are the gradients of: no
    # second array. The key's is first: it needs all that is read of x, which
    # XLA would else copy to be safe.
    x_BT3D = _put(x_BT3D, _transposed_product(d_score, query), turn, 1)
    x_BT3D = _put(x_BT3D, _transposed_product(weight, d_mixed), turn, 2)
    x_BT3D = _put(
      x_BT3D, product(d_score, key, (3, 2), shared=2) * scale, turn, 0
    )
    return x_BT3D, None

  turns = jnp.arange(len(log_total)), log_total, means
  d_BT3D, _ = lax.scan(step, inputs_BT3D, turns)
  return d_BT3D, None, None


_by_group.defvjp(_forward, _backward)


def _means(
  out_BT1D: jax.Array, d_BT1D: jax.Array, size: tuple[int, int]
) -> jax.Array:
  """float32 [turns, B, group, T, 1]: d(score)'s mean, weighted as values are.

  Equal to the result's product with its gradient, of one T-th of the size.
  """
  products = out_BT1D.astype(jnp.float32) * d_BT1D.astype(jnp.float32)
  batch, tokens = products.shape[:2]
  products = products.reshape(batch, tokens, -1, *size).sum(axis=4)
  return jnp.moveaxis(products, (2, 3), (0, 2))[..., None]


def _cut(
  x: jax.Array, turn: jax.Array, size: tuple[int, int]
) -> list[jax.Array]:
  """A turn's heads of each part of [B, T, parts, D]: [B, group, T, size]."""
  batch, tokens, parts, _ = x.shape
  width = math.prod(size)
  cut = lax.dynamic_slice_in_dim(x, turn * width, width, axis=3)
  cut = cut.reshape(batch, tokens, parts, *size)
  return [cut[:, :, part].swapaxes(1, 2) for part in range(parts)]


def _put(
  x: jax.Array, heads: jax.Array, turn: jax.Array, part: int
) -> jax.Array:
  """Puts a turn's heads of a part where _cut finds them in x."""
  batch, group, tokens, size = heads.shape
  wide = heads.swapaxes(1, 2).reshape(batch, tokens, 1, group * size)
  place = 0, 0, part, turn * group * size
  return lax.dynamic_update_slice(x, wide.astype(x.dtype), place)


def _scores(query: jax.Array, key: jax.Array, sees: jax.Array) -> jax.Array:
  """float32 [B, group, T, T], MASKED where a token is not seen."""
  return jnp.where(sees, product(query, key, (3, 3), shared=2), MASKED)


def _transposed_product(weight: jax.Array, x: jax.Array) -> jax.Array:
  """weight^T x, as (x^T weight)^T: it is the small arrays that are copied."""
  return product(x.swapaxes(2, 3), weight, (3, 2), shared=2).swapaxes(2, 3)
