"""One-vs-all: a dense layer on one vector per document."""

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
import numpy as np

from xjax.core.config_part import AT_LEAST_0, field, kinds_that
from xjax.core.mesh import LABEL_MULTIPLE, padded_labels
from xjax.core.numerics import product
from xjax.score.heads import chunks
from xjax.score.heads.contract import (
  ALL_DEVICES,
  Head,
  HeadConfig,
  HeadInputs,
  padded_row,
  row_spec,
)
from xjax.score.heads.rounding import random_bits
from xjax.score.heads.storage import Storage, decode_weights, encode_weights
from xjax.score.heads.update import RowsConfig

_AT_ONCE = 1 << 17  # rows; more are drawn in LABEL_MULTIPLE blocks


def initial_rows(
  key: jax.Array, rows: int, dim: int, storage: Storage
) -> dict[str, jax.Array]:
  """Rows of normal entries, of about unit length, the same on every mesh.

  Needs a mesh context. Drawing takes several arrays of float32 where storing
  takes one of perhaps a byte a weight: so large heads are drawn in blocks, each
  on the device that it lies on.

  Args:
    key: of them all.
    rows: a multiple of LABEL_MULTIPLE.
    dim: entries of a row.
    storage: what they are stored as.

  Returns:
    Arrays by name, as of storage.encode_weights, [rows, ...].
  """
  if rows <= _AT_ONCE:
    return _drawn(key, jnp.int32(0), rows, dim, storage)
  spec = row_spec(ALL_DEVICES)
  draw = functools.partial(_shard_rows, rows // LABEL_MULTIPLE, dim, storage)
  return jax.shard_map(draw, in_specs=P(), out_specs=spec, check_vma=False)(key)


def _shard_rows(
  size: int, dim: int, storage: Storage, key: jax.Array
) -> dict[str, jax.Array]:
  blocks = LABEL_MULTIPLE // lax.axis_size(ALL_DEVICES)
  first = lax.axis_index(ALL_DEVICES) * blocks

  def with_block(i: jax.Array, rows: dict[str, jax.Array]) -> dict:
    block = first + i
    block_key = jax.random.fold_in(key, block)
    new = _drawn(block_key, block * size, size, dim, storage)
    return chunks.write_rows(rows, new, i * size)

  empty = jax.tree.map(
    lambda x: jnp.zeros((blocks * size, *x.shape[1:]), x.dtype),
    jax.eval_shape(lambda: _drawn(key, first, size, dim, storage)),
  )
  return lax.fori_loop(0, blocks, with_block, empty)


def _drawn(
  key: jax.Array, first: jax.Array, size: int, dim: int, storage: Storage
) -> dict[str, jax.Array]:
  """The rows from `first` on, rounded by their places as in training."""
  values = jax.random.normal(key, (size, dim)) * dim**-0.5
  ids = first + jnp.arange(size, dtype=jnp.int32)
  return encode_weights(storage, values, random_bits(jnp.uint32(0), ids, dim))


@dataclasses.dataclass
class OneVsAllConfig(HeadConfig):
  """A dense layer on a document's one vector; needs a pooling."""

  pooled = True
  on_all_devices = True
  fusable = True

  chunk: int = field(
    8192, 'Labels scored at a time; never changes results.', tiny=8
  )
  storage: Storage = field(
    Storage.FLOAT32,
    'What a weight is stored as; but for FLOAT32 it needs label rows that '
    'training changes by themselves, train.rows.',
  )
  bottleneck: int = field(
    0,
    'Size that a dense layer before it makes of the vector; 0: none.',
    AT_LEAST_0,
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'OneVsAll':
    return OneVsAll(
      inputs.n_labels,
      inputs.dim,
      chunk=self.chunk,
      bias=inputs.bias_L,
      storage=self.storage,
      bottleneck=self.bottleneck,
      rngs=rngs,
    )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    if self.storage is not Storage.FLOAT32 and not config.train.rows.fused:
      rules = kinds_that('fused', RowsConfig)
      yield (
        f'{path}.storage={self.storage}: needs config.train.rows={rules}; the '
        'optimizer trains float32'
      )


class OneVsAll(Head):
  """A dense output layer, logit_l = document . k_l + b_l.

  BIGRU-ATT's and HAN's (Chalkidis et al. 2019, Section 4), and the classifier
  of XMC systems from four thousand labels to a hundred million: label rows lie
  on all devices, each a part of its own, and may be stored in 2 bytes or 1 a
  weight where training writes them itself (heads/fused.py).

  Attributes:
    kernel: k, [L, D] of storage.dtype.
    exponent: of Storage.FLOAT8, int8 [L]: k is what kernel says times
      2^exponent.
    bias: b, float32 [L].
    bottleneck: float32 [document's size, D], what makes D features of a
      document's vector; or None.
    storage: what the kernel is stored as.
  """

  axes = ALL_DEVICES

  def __init__(
    self,
    n_labels: int,
    dim: int,
    *,
    chunk: int,
    bias: np.ndarray | None = None,
    storage: Storage = Storage.FLOAT32,
    bottleneck: int = 0,
    rngs: nnx.Rngs,
  ):
    """Random rows of about unit length.

    Args:
      n_labels: labels; rows are padded to a multiple that shards evenly.
      dim: size of a document's vector.
      chunk: labels scored at a time.
      bias: [L] first biases; None: zeros.
      storage: what the kernel is stored as.
      bottleneck: size D of what label rows read; 0: the document's vector.
      rngs: stream `params`.
    """
    self.n_labels = n_labels
    self.chunk = chunk
    self.storage = storage
    if bottleneck:
      normal = nnx.initializers.normal(dim**-0.5)
      self.bottleneck = nnx.Param(normal(rngs.params(), (dim, bottleneck)))
      dim = bottleneck
    else:
      self.bottleneck = None
    rows = padded_labels(n_labels)
    arrays = initial_rows(rngs.params(), rows, dim, storage)
    sharding = (ALL_DEVICES, None)
    self.kernel = nnx.Param(arrays['kernel'], out_sharding=sharding)
    self.bias = nnx.Param(padded_row(bias, rows), out_sharding=sharding[:1])
    if 'exponent' in arrays:
      exponent = arrays['exponent']
      self.exponent = nnx.Param(exponent, out_sharding=sharding[:1])

  def prepare(self, document_BD: Float[Array, 'B E']) -> Float[Array, 'B D']:
    """What label rows read of a document's vector."""
    if self.bottleneck is None:
      return document_BD
    dtype = document_BD.dtype
    into = self.bottleneck.astype(dtype)
    return product(document_BD, into, (1, 0), into=dtype)

  def logits(
    self, document_BD: Float[Array, 'B D'], chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    """logits_BC of a chunk of label rows, summed in float32."""
    kernel_CD = decode_weights(chunk, document_BD.dtype)
    return scores(document_BD, kernel_CD) + chunk['bias']


@jax.custom_vjp
def scores(
  document_BD: Float[Array, 'B D'], kernel_CD: Float[Array, 'C D']
) -> Float32[Array, 'B C']:
  """The scores document . k_l, with gradients of products in one dtype.

  Those that JAX derives multiply float32 derivatives with rounded operands:
  slow where such are what the hardware is fast in.
  """
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
