"""Computes the loss of a one-vs-all head and trains its rows in one pass.

While a chunk of rows is in cache, the pass computes
- the logits, the loss and its derivative with respect to the logits,
- the gradients of the features and of the rows,
- the changed rows, which overwrite the old rows.

So neither a [B, L] array nor an [L, D] gradient is needed. ELMO (ICML 2025,
Section 4) has the same pass, but does not compute the loss. A normalised loss
takes one more pass over the rows. Each device has rows of its own and reads all
documents, so no part of a row is sent between devices.
"""

from collections.abc import Callable
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
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import row_spec, split_head
from xjax.networks.heads.ova import OneVsAll
from xjax.networks.heads.streaming import (
  Chunk,
  Normaliser,
  chunk_loss,
  gold_of,
  labels_per_loss,
)
from xjax.networks.rows.kahan import LEFT_OUT, kahan_step
from xjax.networks.rows.rounding import random_bits
from xjax.networks.rows.storage import (
  Rows,
  Storage,
  decode_weights,
  encode_weights,
)
from xjax.networks.rows.update import RowGradient, RowRule, Slots


class StepScalars(NamedTuple):
  """Holds the numbers that determine the size and the rounding of one step."""

  rate: jax.Array  # float32, learning rate of rows
  # float32, decoupled weight decay. A step also multiplies the weights by
  # 1 - rate * decay. Biases do not decay.
  decay: jax.Array
  key: jax.Array  # uint32, for stochastic rounding, from seed and step number
  step: jax.Array | int = 0  # number of steps before this step


class RowUpdate(NamedTuple):
  """Describes how one training step changes label rows."""

  rule: RowRule
  slots: Slots  # with Storage.COMPENSATED, also the rounding errors of rows
  pace: StepScalars


@dataclasses.dataclass(frozen=True)
class Pass:
  """Holds the static arguments of a pass; JAX compiles it for each value."""

  graphdef: nnx.GraphDef
  loss: ChunkLoss
  rule: RowRule
  storage: Storage
  n_labels: int
  chunk: int
  axes: tuple[str, ...]

  @classmethod
  def of(cls, head: OneVsAll, loss: ChunkLoss, rule: RowRule) -> 'Pass':
    graphdef = split_head(head).graphdef
    sizes = head.n_labels, head.chunk, head.axes
    return cls(graphdef, loss, rule, head.storage, *sizes)


def fused_loss(
  head: OneVsAll,
  document_BD: Float[Array, 'B D'],
  positives_BP: Int32[Array, 'B P'],
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  step: RowUpdate,
  label_weights: LabelWeights | None = None,
) -> tuple[Float32[Array, ''], tuple[nnx.State, Slots]]:
  """Computes the loss, and changes the rows by one training step.

  The gradient of the rows is divided by B, which includes masked documents. So
  the weight of a document does not depend on the number of masked documents.

  The loss can be differentiated only with respect to document_BD. The gradient
  of document_BD is not divided by B.

  Like streaming.head_loss, which explains the other arguments, the function
  runs on the context mesh. document_BD are from the head's `prepare`.

  Returns:
    The loss, summed over documents, computed with the rows before the step. The
    second result is a pair: the rows (as in split_head) and the slots, both
    after the step.
  """
  rows = split_head(head).rows
  static = Pass.of(head, loss, step.rule)
  pure = nnx.to_pure_dict(rows)
  arrays = (pure, step.slots, step.pace, document_BD, label_weights)
  total, pure, slots = _fused(static, *arrays, positives_BP, mask_B)
  nnx.replace_by_pure_dict(rows, pure)
  return total, (rows, slots)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(static, *arrays):
  """Computes fused_loss, with a gradient for document_BD."""
  return _forward(static, *arrays)[0]


def _forward(static, *arrays):
  row, batch = row_spec(static.axes), BATCH
  run = jax.shard_map(
    functools.partial(_shard_step, static),
    in_specs=(row, row, P(), batch, row, batch, batch),
    out_specs=(P(), row, row, batch),
    check_vma=False,
  )
  *results, d_document_BD = run(*arrays)
  return tuple(results), d_document_BD


def _backward(static, d_document_BD, cotangents):
  del static
  scaled_BD = (d_document_BD * cotangents[0]).astype(d_document_BD.dtype)
  return None, None, None, scaled_BD, None, None, None


_fused.defvjp(_forward, _backward)


class PassCarry(NamedTuple):
  """Holds the arrays that a pass hands from chunk to chunk."""

  total: jax.Array  # float32, sum of the loss
  d_document_BD: jax.Array  # float32, for all documents that this device scores
  rows: dict[str, jax.Array]  # of the shard, changed where a chunk had them
  slots: dict[str, jax.Array]  # likewise

  @classmethod
  def start(cls, rows: Rows, slots: Slots, all_BD: jax.Array) -> 'PassCarry':
    zero_BD = jnp.zeros(all_BD.shape, jnp.float32)
    return cls(jnp.float32(0), zero_BD, rows, slots)

  def results(self, axes: tuple[str, ...], dtype: jnp.dtype) -> tuple:
    """Returns the loss, the rows, the slots and the documents' gradient."""
    d_own_BD = chunks.own_documents(self.d_document_BD, axes)
    total = lax.psum(self.total, (DATA, LABEL))
    return total, self.rows, self.slots, d_own_BD.astype(dtype)


def _shard_step(
  static, rows, slots, pace, document_BD, weights_L, positives_BP, mask_B
):
  """Steps on a shard of rows; returns the loss, rows, slots and gradient."""
  axes = static.axes
  gold = chunks.all_documents(gold_of(positives_BP, mask_B), axes)
  all_BD = chunks.all_documents(document_BD, axes)
  scan = functools.partial(
    chunks.scan_chunks,
    rows=chunks.shard_rows(rows, static.n_labels),
    chunk=static.chunk,
  )

  def chunk_at(start, size):
    ids_C = chunks.labels(rows, axes, start, size)
    chunk_weights = chunks.cut(weights_L, start, size)
    return Chunk(ids_C[0], ids_C < static.n_labels, chunk_weights)

  def add_chunk(normaliser, start, size):
    chunk_rows = chunks.cut(rows, start, size)
    kernel_CD = decode_weights(chunk_rows, all_BD.dtype)
    logits_BC = chunk_logits(all_BD, chunk_rows, kernel_CD)
    return normaliser.with_chunk(logits_BC, gold, chunk_at(start, size))

  loss = static.loss
  divisor = labels_per_loss(loss, static.n_labels)
  if loss.normalised:
    normaliser = scan(add_chunk, Normaliser.start(len(all_BD)))
    loss = normaliser.normalised(loss, axes)
  exponents = exponents_of(rows)

  def body(carry, start, size):
    def terms(logits_BC):
      results = chunk_loss(loss, logits_BC, gold, chunk_at(start, size))
      if divisor == 1:
        return results
      return jax.tree.map(lambda x: x / divisor, results)

    span = chunks.Span(start, size)
    return change_chunk(static, carry, all_BD, pace, exponents, span, terms)

  last = scan(body, PassCarry.start(rows, slots, all_BD))
  return last.results(axes, document_BD.dtype)


def exponents_of(rows: Rows) -> dict[str, jax.Array]:
  """Returns the rows' exponents, in a dict that is empty if there are none."""
  return {name: rows[name] for name in rows if name == 'exponent'}


# logits_BC -> (sum of the loss, its derivative by logits_BC)
Terms = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def change_chunk(
  static: Pass,
  carry: PassCarry,
  all_BD: jax.Array,
  pace: StepScalars,
  exponents: Rows,
  place: chunks.Span | chunks.Picked,
  terms: Terms,
) -> PassCarry:
  """Changes a chunk of rows by one step.

  all_BD are all documents that this device scores. The gradient of rows is
  divided by their number. `exponents` are those before the pass.
  """
  # Without the barrier, XLA would copy the old rows and read the copy after the
  # new rows are written. Exponents are read from the old rows.
  chunk_rows = lax.optimization_barrier(place.cut(carry.rows | exponents))
  kernel_CD = decode_weights(chunk_rows, all_BD.dtype)
  new, dlogits_BC = terms(chunk_logits(all_BD, chunk_rows, kernel_CD))
  rounded_BC = dlogits_BC.astype(all_BD.dtype)
  gradient = RowGradient(
    product(rounded_BC, all_BD, (0, 0)), column_sums(dlogits_BC)
  )
  # The divisor includes masked documents (see fused_loss).
  gradient = jax.tree.map(lambda g: g / len(all_BD), gradient)
  first = lax.axis_index(static.axes) * len(carry.rows['bias'])
  bits_CD = random_bits(pace.key, first + place.row_C, all_BD.shape[1])
  chunk_rows, slots = _step_rows(
    static, chunk_rows, carry.slots, gradient, pace, bits_CD, place
  )
  return PassCarry(
    carry.total + new,
    product(rounded_BC, kernel_CD, (1, 0)) + carry.d_document_BD,
    place.write(carry.rows, chunk_rows),
    slots,
  )


def chunk_logits(
  document_BD: jax.Array, rows: Rows, kernel_CD: jax.Array
) -> jax.Array:
  """Returns logits_BC of a chunk, float32."""
  return product(document_BD, kernel_CD, (1, 1)) + rows['bias']


def _step_rows(
  static: Pass,
  chunk_rows: Rows,
  slots: Slots,
  gradient: RowGradient,
  pace: StepScalars,
  bits_CD: jax.Array,
  place: chunks.Span | chunks.Picked,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
  """Returns the chunk's rows and the shard's slots, after one step."""
  rule = static.rule
  rule_slots = {name: slots[name] for name in rule.names}
  new_slots = rule.update_slots(gradient, place.cut(rule_slots))
  rule_slots = place.write(rule_slots, new_slots)
  # The slots are read again after they are written. If the direction used
  # new_slots, XLA would keep a second copy of the slots.
  direction = rule.direction(gradient, place.cut(rule_slots), pace.step)
  values_CD = decode_weights(chunk_rows, jnp.float32)
  change_CD = -pace.rate * (direction.kernel_CD + pace.decay * values_CD)
  left_out = {}
  if static.storage is Storage.COMPENSATED:
    kernel_CD, left_out[LEFT_OUT] = kahan_step(
      values_CD, change_CD, bits_CD, slots, place.row_C
    )
    new = {'kernel': kernel_CD}
  else:
    new = encode_weights(static.storage, values_CD + change_CD, bits_CD)
  new['bias'] = chunk_rows['bias'] - pace.rate * direction.bias_C
  return new, {**slots, **rule_slots, **left_out}
