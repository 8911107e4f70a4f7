"""Defines the one-vs-all head, a dense layer on one vector per document."""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Float32

from xjax.core.config_part import AT_LEAST_0, field, kinds_that
from xjax.core.mesh import padded_labels
from xjax.core.mesh_config import LABEL_MULTIPLE
from xjax.core.numerics import product
from xjax.networks.encoders.layers import dense
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import ALL_DEVICES, row_spec
from xjax.networks.heads.head import (
  Head,
  HeadConfig,
  HeadInputs,
  chunk_field,
  normal,
  padded_row,
)
from xjax.networks.rows.storage import (
  Storage,
  decode_weights,
  encode_weights,
  random_bits,
)
from xjax.networks.rows.update import RowUpdateConfig

# At most this many rows are drawn at once. A head with more rows is drawn in
# LABEL_MULTIPLE blocks.
_MOST_ROWS = 1 << 17


def initial_rows(
  key: jax.Array, rows: int, dim: int, storage: Storage
) -> dict[str, jax.Array]:
  """Draws random rows of about unit length, the same on every context mesh.

  The number of rows is a multiple of LABEL_MULTIPLE.
  """
  if rows <= _MOST_ROWS:
    return _draw_rows(key, jnp.int32(0), rows, dim, storage)
  # Drawing takes several float32 arrays, but the stored rows may take only one
  # byte per weight. So the rows of large heads are drawn in blocks, each on the
  # device that stores it.
  spec = row_spec(ALL_DEVICES)
  draw = functools.partial(_draw_shard, rows // LABEL_MULTIPLE, dim, storage)
  return jax.shard_map(draw, in_specs=P(), out_specs=spec, check_vma=False)(key)


def _draw_shard(size, dim, storage, key) -> dict[str, jax.Array]:
  blocks = LABEL_MULTIPLE // lax.axis_size(ALL_DEVICES)
  first = lax.axis_index(ALL_DEVICES) * blocks

  def with_block(i: jax.Array, rows: dict[str, jax.Array]) -> dict:
    block = first + i
    block_key = jax.random.fold_in(key, block)
    new = _draw_rows(block_key, block * size, size, dim, storage)
    return chunks.RowSpan(i * size, size).write(rows, new)

  empty = jax.tree.map(
    lambda x: jnp.zeros((blocks * size, *x.shape[1:]), x.dtype),
    jax.eval_shape(lambda: _draw_rows(key, first, size, dim, storage)),
  )
  return lax.fori_loop(0, blocks, with_block, empty)


def _draw_rows(key, first, size, dim, storage) -> dict[str, jax.Array]:
  """Draws rows with indices from `first` on, and encodes the rows for storage.

  The bits for stochastic rounding depend on the row's index, as in training.
  """
  values = jax.random.normal(key, (size, dim)) * dim**-0.5
  ids = first + jnp.arange(size, dtype=jnp.int32)
  return encode_weights(storage, values, random_bits(jnp.uint32(0), ids, dim))


@dataclasses.dataclass
class OneVsAllConfig(HeadConfig):
  """Chooses a dense layer that reads one vector per document.

  The head needs a pooling.
  """

  pooled = True
  on_all_devices = True
  fusable = True

  chunk: int = chunk_field(8192)
  storage: Storage = field(
    Storage.FLOAT32,
    'How a weight is stored. All formats except FLOAT32 need a fused rule in '
    'train.rows.',
  )
  bottleneck: int = field(
    0,
    "Size to which a dense layer first reduces the document's vector. If 0, "
    'there is no such layer.',
    AT_LEAST_0,
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'OneVsAll':
    return OneVsAll(self, inputs, rngs=rngs)

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if self.storage is not Storage.FLOAT32 and not config.train.rows.fused:
      rules = kinds_that('fused', RowUpdateConfig)
      yield (
        f'{path}.storage={self.storage}: needs config.train.rows={rules}, '
        'because the optimizer trains only float32 weights'
      )


class OneVsAll(Head):
  """Scores labels by a dense layer, logit_l = document . k_l + b_l.

  This is the head of BIGRU-ATT and HAN (Chalkidis et al. 2019, Section 4), and
  the classifier of XMC systems with four thousand to a hundred million labels.
  The label rows are divided over all devices. If training changes the rows in
  the fused pass (rows/fused.py), a weight can be stored in 2 bytes or 1 byte.

  `kernel` is k; but with Storage.FLOAT8, k is `kernel` times 2^exponent, with
  one exponent for each label. `document` is the product of the document's
  vector with the `bottleneck`, if there is one.
  """

  axes = ALL_DEVICES

  def __init__(
    self, config: OneVsAllConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    self.n_labels, self.chunk = inputs.n_labels, config.chunk
    self.storage = config.storage
    dim, into = config.bottleneck or inputs.dim, None
    if config.bottleneck:
      into = nnx.Param(normal(rngs, (inputs.dim, dim), inputs.dim**-0.5))
    self.bottleneck = into
    rows = padded_labels(inputs.n_labels)
    arrays = initial_rows(rngs.params(), rows, dim, config.storage)
    sharding = (ALL_DEVICES, None)
    self.kernel = nnx.Param(arrays['kernel'], out_sharding=sharding)
    self.bias = nnx.Param(
      padded_row(inputs.bias_L, rows), out_sharding=sharding[:1]
    )
    if 'exponent' in arrays:
      exponent = arrays['exponent']
      self.exponent = nnx.Param(exponent, out_sharding=sharding[:1])

  def prepare(self, document_BD: Float[Array, 'B E']) -> Float[Array, 'B D']:
    if self.bottleneck is None:
      return document_BD
    return dense(document_BD, self.bottleneck[...])

  def logits(
    self, document_BD: Float[Array, 'B D'], chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    kernel_CD = decode_weights(chunk, document_BD.dtype)
    return scores(document_BD, kernel_CD) + chunk['bias']


# The gradient is written by hand, so that the two operands of a product have
# the same dtype. JAX's gradient would multiply a float32 array by an array of
# fewer bits, which is slow on hardware that is fast only if both have fewer.
@jax.custom_vjp
def scores(
  document_BD: Float[Array, 'B D'], kernel_CD: Float[Array, 'C D']
) -> Float32[Array, 'B C']:
  """Computes the dot product of each document with each label's weights."""
  return product(document_BD, kernel_CD, (1, 1))


def _scores(document_BD: jax.Array, kernel_CD: jax.Array) -> tuple:
  return scores(document_BD, kernel_CD), (document_BD, kernel_CD)


def _scores_backward(saved: tuple, dlogits_BC: jax.Array) -> tuple:
  document_BD, kernel_CD = saved
  dtype = document_BD.dtype
  dlogits_BC = dlogits_BC.astype(dtype)
  return (
    product(dlogits_BC, kernel_CD, (1, 0)).astype(dtype),
    product(dlogits_BC, document_BD, (0, 0)).astype(dtype),
  )


scores.defvjp(_scores, _scores_backward)
