"""The loss of a one-vs-all head and a step of its rows, in one pass.

A chunk of rows is read once: its logits, loss, derivative, the features'
gradient, the rows' own and the changed rows are made while they are in cache.
There is neither a [B, L] array nor an [L, D] gradient, and rows are overwritten
where they lie (as in ELMO, ICML 2025, Section 4, which leaves out the loss).
Each device has rows of its own and sees all documents, so nothing of a row is
sent.
"""

import dataclasses
import functools
from typing import NamedTuple

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.mesh import BATCH, DATA, LABEL
from xjax.core.numerics import column_sums, product
from xjax.losses.contract import ChunkLoss, LabelWeights
from xjax.score.heads import chunks
from xjax.score.heads.contract import row_spec, split_head
from xjax.score.heads.kahan import LEFT_OUT, kahan_step
from xjax.score.heads.ova import OneVsAll
from xjax.score.heads.rounding import random_bits
from xjax.score.heads.storage import (
  Rows,
  Storage,
  decode_weights,
  encode_weights,
)
from xjax.score.heads.terms import Chunk, Normaliser, chunk_loss, gold_of
from xjax.score.heads.update import RowGradient, RowRule, Slots


class Pace(NamedTuple):
  """How far a step goes.

  Attributes:
    rate: float32 learning rate of rows.
    decay: float32, the share of a weight that decays per unit of rate
      (decoupled; biases do not decay).
    key: uint32, of the seed and the step, for stochastic rounding.
  """

  rate: jax.Array
  decay: jax.Array
  key: jax.Array


class RowStep(NamedTuple):
  """How rows are changed.

  Attributes:
    rule: by which.
    slots: what it remembers, and of Storage.COMPENSATED what rounding left out.
    pace: how far.
  """

  rule: RowRule
  slots: Slots
  pace: Pace


@dataclasses.dataclass(frozen=True)
class _Static:
  """What a compiled pass is known by."""

  graphdef: nnx.GraphDef
  loss: ChunkLoss
  rule: RowRule
  storage: Storage
  n_labels: int
  chunk: int
  axes: tuple[str, ...]


def fused_loss(
  head: OneVsAll,
  document_BD: Float[Array, 'B D'],
  positives_BP: Int32[Array, 'B P'],
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  step: RowStep,
  label_weights: LabelWeights | None = None,
) -> tuple[Float32[Array, ''], tuple[nnx.State, Slots]]:
  """The loss, and the rows after a step on it.

  The step's gradient is divided by B: where documents are masked, it is the
  smaller for it, and the others count as much as ever. Runs on the context
  mesh, as streaming.head_loss. The loss has a gradient by document_BD alone: of
  its sum over documents.

  Args:
    head: whose rows are changed.
    document_BD, positives_BP, mask_B, loss: as of head_loss.
    step: how the rows are changed.
    label_weights: the weights of head_loss.

  Returns:
    The sum of the loss over documents and labels, of the rows before the step;
    the rows, as of split_head, and the slots after it.
  """
  graphdef, rows, shared = split_head(head)
  del shared  # of the bottleneck, which document_BD has passed
  static = _Static(
    graphdef,
    loss,
    step.rule,
    head.storage,
    head.n_labels,
    head.chunk,
    head.axes,
  )
  pure = nnx.to_pure_dict(rows)
  given = (pure, step.slots, step.pace, document_BD, label_weights)
  total, pure, slots = _fused(static, *given, positives_BP, mask_B)
  nnx.replace_by_pure_dict(rows, pure)
  return total, (rows, slots)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(static, *given):
  return _forward(static, *given)[0]


def _forward(static, *given):
  row, batch = row_spec(static.axes), BATCH
  run = jax.shard_map(
    functools.partial(_shard_step, static),
    in_specs=(row, row, P(), batch, row, batch, batch),
    out_specs=(P(), row, row, batch),
    check_vma=False,
  )
  *found, d_document_BD = run(*given)
  return tuple(found), d_document_BD


def _backward(static, d_document_BD, cotangents):
  del static
  scaled_BD = (d_document_BD * cotangents[0]).astype(d_document_BD.dtype)
  return None, None, None, scaled_BD, None, None, None


_fused.defvjp(_forward, _backward)


class _Carry(NamedTuple):
  """What goes from chunk to chunk."""

  total: jax.Array
  d_document_BD: jax.Array
  rows: dict[str, jax.Array]
  slots: dict[str, jax.Array]


def _shard_step(
  static, rows, slots, pace, document_BD, weights_L, positives_BP, mask_B
):
  """The loss, rows and slots after the step, and the documents' gradient."""
  axes = static.axes
  gold = chunks.all_documents(gold_of(positives_BP, mask_B), axes)
  all_BD = chunks.all_documents(document_BD, axes)
  scan = functools.partial(
    chunks.scan_chunks,
    rows=chunks.shard_rows(rows, static.n_labels),
    chunk=static.chunk,
  )

  def ids(start, size):
    return chunks.labels(rows, axes, start, size)

  def chunk_at(start, size):
    ids_C = ids(start, size)
    cut = chunks.cut(weights_L, start, size)
    return Chunk(ids_C[0], ids_C < static.n_labels, cut)

  def look(seen, start, size):
    cut = chunks.cut(rows, start, size)
    logits_BC = _logits(all_BD, cut, decode_weights(cut, all_BD.dtype))
    return seen.with_chunk(logits_BC, gold, chunk_at(start, size))

  loss = static.loss
  if loss.normalised:
    loss = scan(look, Normaliser.start(len(all_BD))).normalised(loss, axes)
  exponents = {name: rows[name] for name in rows if name == 'exponent'}

  def body(carry, start, size):
    # Without the barrier the rows are read again where they are written, for
    # which XLA keeps a second copy. Exponents are read as they were.
    cut = chunks.cut(carry.rows | exponents, start, size)
    cut = lax.optimization_barrier(cut)
    kernel_CD = decode_weights(cut, all_BD.dtype)
    logits_BC = _logits(all_BD, cut, kernel_CD)
    new, dlogits_BC = chunk_loss(loss, logits_BC, gold, chunk_at(start, size))
    rounded_BC = dlogits_BC.astype(all_BD.dtype)
    gradient = RowGradient(
      product(rounded_BC, all_BD, (0, 0)), column_sums(dlogits_BC)
    )
    # By all rows, real or not, so that a document always counts alike.
    gradient = jax.tree.map(lambda g: g / len(gold.mask_B), gradient)
    bits_CD = random_bits(pace.key, ids(start, size), all_BD.shape[1])
    cut, slots = _stepped(
      static, cut, carry.slots, gradient, pace, bits_CD, start
    )
    carried = chunks.write_rows(carry.rows, cut, start)
    d_document_BD = product(rounded_BC, kernel_CD, (1, 0))
    d_document_BD += carry.d_document_BD
    return _Carry(carry.total + new, d_document_BD, carried, slots)

  zero_BD = jnp.zeros(all_BD.shape, jnp.float32)
  found = scan(body, _Carry(jnp.float32(0), zero_BD, rows, slots))
  d_own_BD = chunks.own_documents(found.d_document_BD, axes)
  total = lax.psum(found.total, (DATA, LABEL))
  return total, found.rows, found.slots, d_own_BD.astype(document_BD.dtype)


def _logits(
  document_BD: jax.Array, rows: Rows, kernel_CD: jax.Array
) -> jax.Array:
  return product(document_BD, kernel_CD, (1, 1)) + rows['bias']


def _stepped(
  static: _Static,
  cut: Rows,
  slots: Slots,
  gradient: RowGradient,
  pace: Pace,
  bits_CD: jax.Array,
  start: jax.Array,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
  """The chunk's rows and all slots after a step; start is its first row."""
  size, rule = len(gradient.bias_C), static.rule
  ours = {name: slots[name] for name in rule.names}
  ours = chunks.write_rows(
    ours, rule.update_slots(gradient, chunks.cut(ours, start, size)), start
  )
  # Of what is written by now: read before, XLA would keep a second copy.
  towards = rule.direction(gradient, chunks.cut(ours, start, size))
  values_CD = decode_weights(cut, jnp.float32)
  change_CD = -pace.rate * (towards.kernel_CD + pace.decay * values_CD)
  left_out = {}
  if static.storage is Storage.COMPENSATED:
    kernel_CD, left_out[LEFT_OUT] = kahan_step(
      values_CD, change_CD, bits_CD, slots, start
    )
    new = {'kernel': kernel_CD}
  else:
    new = encode_weights(static.storage, values_CD + change_CD, bits_CD)
  new['bias'] = cut['bias'] - pace.rate * towards.bias_C
  return new, {**slots, **ours, **left_out}
