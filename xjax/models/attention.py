"""Self-attention of all heads, head after head where arrays live in a cache."""

import functools

import jax
from jax import lax
import jax.numpy as jnp

from xjax.heads.precision import full_precision
from xjax.models.coins import dropped

_MASKED = -1e30  # finite: a row that sees no token at all must not make NaN
_FLASH_HEAD = 128  # the largest head that cuDNN's kernels take everywhere

# Weights of as many heads as make up this many at a time: 8 MiB of float32,
# of which a handful fit into the last cache of a CPU.
_AT_ONCE = 2**21


def self_attention(
  inputs_BTE: jax.Array,
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
    inputs_BTE: query, key and value side by side, E = 3D; within each the
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
      return _library(inputs_BTE, segments_BT, heads)
    seeds = None
  batch, tokens, _ = inputs_BTE.shape
  group = _group(heads, batch * tokens**2) if on_cpu else heads
  return _by_group(inputs_BTE, segments_BT, seeds, heads, group, rate)


def _group(heads: int, entries: int) -> int:
  """The most heads at a time that divide all and stay below _AT_ONCE."""
  fitting = (n for n in range(1, heads + 1) if heads % n == 0)
  return max(n for n in fitting if n == 1 or n * entries <= _AT_ONCE)


def _library(
  inputs_BTE: jax.Array, segments_BT: jax.Array, heads: int
) -> jax.Array:
  """By jax.nn.dot_product_attention, with a flash kernel where there is one."""
  batch, tokens, width = inputs_BTE.shape
  split = inputs_BTE.reshape(batch, tokens, 3, heads, -1)
  arguments = {'implementation': 'xla'}
  sixteen_bits = inputs_BTE.dtype in (jnp.bfloat16, jnp.float16)
  fits = split.shape[-1] % 8 == 0 and split.shape[-1] <= _FLASH_HEAD
  if jax.default_backend() == 'gpu' and sixteen_bits and fits:
    arguments['implementation'] = 'cudnn'
  if segments_BT.dtype == jnp.bool_:
    # A row of no tokens at all would divide by zero.
    lengths_B = jnp.maximum(segments_BT.sum(axis=1, dtype=jnp.int32), 1)
    arguments['key_value_seq_lengths'] = lengths_B
  else:
    arguments['mask'] = _sees(segments_BT)[:, None]
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _by_group(
  inputs_BTE: jax.Array,
  segments_BT: jax.Array,
  seeds: jax.Array | None,
  heads: int,
  group: int,
  rate: float,
) -> jax.Array:
  """As self_attention, of group heads at a time."""
  return _forward(inputs_BTE, segments_BT, seeds, heads, group, rate)[0]


def _forward(
  inputs_BTE: jax.Array,
  segments_BT: jax.Array,
  seeds: jax.Array | None,
  heads: int,
  group: int,
  rate: float,
) -> tuple[jax.Array, tuple]:
  """The result, and what its gradient needs."""
  batch, tokens, width = inputs_BTE.shape
  dim = width // 3
  cut = functools.partial(_heads_of, group=group, size=dim // heads)
  scale = (dim // heads) ** -0.5  # of small arrays: a pass fewer over scores
  sees = _sees(segments_BT)[:, None]

  def step(out_BTD: jax.Array, turn: jax.Array) -> tuple[jax.Array, jax.Array]:
    query, key, value = (cut(inputs_BTE, turn, i * dim) for i in range(3))
    score = _scores(query * scale, key, sees)
    top = score.max(axis=3, keepdims=True)
    # Sums divide what they weight, a T-th of the weights' number.
    weight = jnp.exp(score - top)
    total = weight.sum(axis=3, keepdims=True)
    weight = dropped(weight, rate, seeds, turn)
    mixed = _product(weight.astype(value.dtype), value, (3, 2)) / total
    out_BTD = _put(out_BTD, mixed, turn, 0)
    return out_BTD, top + jnp.log(total)

  out_BTD = jnp.zeros((batch, tokens, dim), inputs_BTE.dtype)
  out_BTD, log_total = lax.scan(step, out_BTD, jnp.arange(heads // group))
  return out_BTD, (inputs_BTE, segments_BT, seeds, out_BTD, log_total)


def _backward(
  heads: int, group: int, rate: float, saved: tuple, d_BTD: jax.Array
) -> tuple:
  inputs_BTE, segments_BT, seeds, out_BTD, log_total = saved
  dim = inputs_BTE.shape[2] // 3
  cut = functools.partial(_heads_of, group=group, size=dim // heads)
  scale = (dim // heads) ** -0.5  # of small arrays: a pass fewer over scores
  sees = _sees(segments_BT)[:, None]

  def step(d_BTE: jax.Array, turn: tuple) -> tuple[jax.Array, None]:
    turn, log_total = turn
    query, key, value = (cut(inputs_BTE, turn, i * dim) for i in range(3))
    d_mixed = cut(d_BTD, turn, 0)
    mixed = cut(out_BTD, turn, 0).astype(jnp.float32)
    query *= scale
    weight = jnp.exp(_scores(query, key, sees) - log_total)
    d_weight = dropped(_product(d_mixed, value, (3, 3)), rate, seeds, turn)
    mean = (mixed * d_mixed).sum(axis=3, keepdims=True)
    d_score = (weight * (d_weight - mean)).astype(value.dtype)
    weight = dropped(weight, rate, seeds, turn).astype(value.dtype)
    d_BTE = _put(d_BTE, _product(d_score, key, (3, 2)) * scale, turn, 0)
    d_BTE = _put(d_BTE, _transposed_product(d_score, query), turn, dim)
    d_BTE = _put(d_BTE, _transposed_product(weight, d_mixed), turn, 2 * dim)
    return d_BTE, None

  turns = jnp.arange(heads // group), log_total
  d_BTE, _ = lax.scan(step, jnp.zeros_like(inputs_BTE), turns)
  return d_BTE, None, None


_by_group.defvjp(_forward, _backward)


def _heads_of(
  x_BTD: jax.Array, turn: jax.Array, start: int, *, group: int, size: int
) -> jax.Array:
  """[B, group, T, size]: a turn's heads of those that begin at start."""
  batch, tokens, _ = x_BTD.shape
  width = group * size
  cut = lax.dynamic_slice_in_dim(x_BTD, start + turn * width, width, axis=2)
  return cut.reshape(batch, tokens, group, size).swapaxes(1, 2)


def _put(
  x_BTD: jax.Array, heads: jax.Array, turn: jax.Array, start: int
) -> jax.Array:
  """Puts a turn's [B, group, T, size] where _heads_of finds them in x."""
  batch, group, tokens, size = heads.shape
  wide = heads.swapaxes(1, 2).reshape(batch, tokens, group * size)
  place = start + turn * group * size
  return lax.dynamic_update_slice_in_dim(
    x_BTD, wide.astype(x_BTD.dtype), place, axis=2
  )


def _scores(query: jax.Array, key: jax.Array, sees: jax.Array) -> jax.Array:
  """float32 [B, group, T, T], _MASKED where a token is not seen."""
  return jnp.where(sees, _product(query, key, (3, 3)), _MASKED)


def _product(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
  """Contracts one axis of each head's matrices, summed in float32."""
  return lax.dot_general(
    a,
    b,
    (((axes[0],), (axes[1],)), ((0, 1), (0, 1))),
    precision=full_precision(a.dtype),
    preferred_element_type=jnp.float32,
  )


def _transposed_product(weight: jax.Array, x: jax.Array) -> jax.Array:
  """weight^T x, as (x^T weight)^T: it is the small arrays that are copied."""
  return _product(x.swapaxes(2, 3), weight, (3, 2)).swapaxes(2, 3)
