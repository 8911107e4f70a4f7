"""Computes the loss of a one-vs-all head and trains its rows in one pass.

While a chunk of rows is in cache, the pass computes
- the logits, the loss and its derivative with respect to the logits,
- the gradients of the features and of the rows,
- the changed rows, which overwrite the old rows.

So neither a [B, L] array nor an [L, D] gradient is needed. ELMO (ICML 2025,
Section 4) has the same pass, but does not compute the loss. A normalised loss
takes one more pass over the rows. Each device has rows of its own and reads all
documents, so no part of a row is sent between devices.

With shortlists, the pass reads only the rows of labels on them. All other rows
and their slots stay as they are.
"""

import functools
from typing import Any, NamedTuple

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.mesh import BATCH, DATA, LABEL
from xjax.core.numerics import column_sums, product
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.networks.batch import Shortlist
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import (
  HeadParts,
  row_spec,
  split_head,
  with_gradients,
)
from xjax.networks.heads.ova import OneVsAll
from xjax.networks.heads.shortlist import (
  ShortlistPass,
  entry_weights,
  places_of,
  shortlist_lengths,
)
from xjax.networks.heads.streaming import (
  AllLabelsPass,
  labels_per_loss,
  normalised_loss,
)
from xjax.networks.rows.kahan import LEFT_OUT, kahan_step
from xjax.networks.rows.storage import (
  Storage,
  decode_weights,
  encode_weights,
  random_bits,
)
from xjax.networks.rows.update import FusedRowsConfig, RowGradient, Slots


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

  rule: FusedRowsConfig
  slots: Slots  # with Storage.COMPENSATED, also the rounding errors of rows
  scalars: StepScalars


def fused_loss(
  head: OneVsAll,
  document_BD: Float[Array, 'B D'],
  asked: Int32[Array, 'B P'] | Shortlist,
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  step: RowUpdate,
  label_weights: LabelWeights | None = None,
) -> tuple[Float32[Array, ''], tuple[nnx.State, Slots]]:
  """Computes the loss, and changes the rows by one training step.

  The loss is over all labels if `asked` are the gold labels positives_BP, and
  over the labels of shortlists if `asked` are those. Rows of labels that are on
  no shortlist of a real document do not change, not even by weight decay, and
  neither do their slots. If every shortlist has all labels, the rows after the
  step are those of the loss over all labels.

  The gradient of the rows is divided by B, which includes masked documents. So
  the weight of a document does not depend on their number. The loss can be
  differentiated only with respect to document_BD (of the head's `prepare`),
  whose gradient is not divided by B. See streaming.head_loss for the other
  arguments.

  The result is the loss before the step, summed over documents, and the rows
  (as in split_head) and slots after the step.
  """
  graphdef, rows, shared = split_head(head)
  row = row_spec(head.axes)
  # Rows and slots go in and come out in the same places, so that XLA can
  # overwrite them (donated buffers).
  shards = jax.shard_map(
    functools.partial(_shard_step, graphdef, loss, step.rule),
    in_specs=(row, P(), row, P(), row, BATCH, BATCH, BATCH),
    out_specs=(P(), row, row, BATCH),
    check_vma=False,
  )

  def run(given, document_BD):
    *results, d_document_BD = shards(*given, document_BD)
    return tuple(results), d_document_BD

  # The rows are given, not trained: they have changed when the gradient of the
  # documents is asked for.
  batch = label_weights, asked, mask_B
  given = rows, shared, step.slots, step.scalars, *batch
  total, pure, slots = with_gradients(run, given, document_BD)
  nnx.replace_by_pure_dict(rows, pure)
  return total, (rows, slots)


class PassCarry(NamedTuple):
  """Holds the arrays that a pass hands from chunk to chunk."""

  total: jax.Array  # float32, sum of the loss
  d_document_BD: jax.Array  # float32, for all documents that this device scores
  rows: dict[str, jax.Array]  # of the shard, changed where a chunk had them
  slots: dict[str, jax.Array]  # likewise


def _shard_step(
  graphdef,
  loss,
  rule,
  rows,
  shared,
  slots,
  scalars,
  weights,
  asked,
  mask_B,
  document_BD,
):
  """Steps on a shard of rows; returns the loss, rows, slots and gradient."""
  parts = HeadParts(graphdef, rows, shared)
  head, rows = parts.head, nnx.to_pure_dict(rows)
  documents = document_BD, asked, mask_B
  all_BD, *batch = chunks.all_documents(documents, head.axes)
  listed = isinstance(asked, Shortlist)
  kind = _DistinctLabels if listed else AllLabelsPass
  labels = kind(parts, weights, *batch)
  # As head_loss divides after its sum; here before the rows change. Shortlists
  # are divided in `terms`.
  divisor = 1 if listed else labels_per_loss(loss, head.n_labels)

  def logits(chunk_rows):
    kernel_CD = decode_weights(chunk_rows, all_BD.dtype)
    return _chunk_logits(all_BD, chunk_rows, kernel_CD)

  # This pass ends before `body` changes the first row, since `body` needs the
  # loss that it returns.
  loss = normalised_loss(loss, labels, rows, logits, len(all_BD), head.axes)
  exponents = {name: rows[name] for name in rows if name == 'exponent'}

  def body(carry, span):
    def terms(logits_BC):
      results = labels.terms(loss, logits_BC, span)
      if divisor == 1:
        return results
      return jax.tree.map(lambda x: x / divisor, results)

    place = labels.place(span)
    return _change_chunk(
      head, rule, carry, all_BD, scalars, exponents, place, terms
    )

  zero_BD = jnp.zeros(all_BD.shape, jnp.float32)
  last = labels.scan(body, PassCarry(jnp.float32(0), zero_BD, rows, slots))
  d_own_BD = chunks.own_documents(last.d_document_BD, head.axes)
  total = lax.psum(last.total, (DATA, LABEL))
  return total, last.rows, last.slots, d_own_BD.astype(document_BD.dtype)


class _DistinctLabels(ShortlistPass):
  """The loss over shortlists, in chunks of a batch's distinct labels."""

  def __init__(
    self,
    parts: HeadParts,
    weights: LabelWeights | None,
    shortlist: Shortlist,
    mask_B: jax.Array,
  ):
    head, per_shard = parts.head, len(parts.rows['bias'][...])
    places = places_of(shortlist.ids_BA, parts.rows, head)
    own_BA = places.own_BA & mask_B[:, None]
    gold_BA = shortlist.gold_BA & own_BA
    weights_BA = entry_weights(places.cut(weights), gold_BA, shortlist)
    self.lengths_B = shortlist_lengths(shortlist.ids_BA, head.n_labels)
    row_BA = jnp.where(own_BA, places.row_BA, per_shard)
    # A chunk of distinct rows is multiplied by all documents, and the logits
    # that no shortlist asks for are masked: a product with a gathered chunk
    # that stays in cache takes less time than a copy of each row for each
    # document.
    capacity = min(row_BA.size, chunks.shard_rows(parts.rows, head.n_labels))
    self.row_Y, used = distinct_rows(row_BA.reshape(-1), capacity, per_shard)
    self.entries = _by_column(self.row_Y, row_BA, own_BA, gold_BA, weights_BA)
    self.scan = functools.partial(
      chunks.scan_chunks, rows=capacity, chunk=head.chunk, used=used
    )

  def place(self, span: chunks.RowSpan) -> chunks.PickedRows:
    row_C = lax.dynamic_slice_in_dim(self.row_Y, *span)
    return chunks.PickedRows(row_C)

  def masked(
    self, logits_BC: jax.Array, span: chunks.RowSpan
  ) -> tuple[Any, ...]:
    marks_BC, weights_BC = jax.tree.map(
      lambda x: lax.dynamic_slice_in_dim(x, *span, 1), self.entries
    )
    logits_BC = jnp.where(marks_BC > 0, logits_BC, -jnp.inf)
    return logits_BC, marks_BC == _GOLD, weights_BC


def distinct_rows(
  row_X: Int32[Array, ' X'], capacity: int, per_shard: int
) -> tuple[Int32[Array, ' Y'], Int32[Array, '']]:
  """Sorts row numbers and removes repeated ones; per_shard stands for no row.

  row_Y is int32 [capacity], ascending. Entries after the distinct rows are
  different numbers beyond the shard. Their number is the second result.
  """
  row_X = jnp.sort(row_X)
  new_X = (row_X < per_shard) & jnp.diff(row_X, prepend=-1).astype(bool)
  at_X = jnp.where(new_X, jnp.cumsum(new_X) - 1, capacity)
  row_Y = per_shard + jnp.arange(capacity, dtype=jnp.int32)
  return row_Y.at[at_X].set(row_X, mode='drop'), new_X.sum(dtype=jnp.int32)


_NEGATIVE, _GOLD = 1, 2  # marks of the labels on a document's shortlist


def _by_column(row_Y, row_BA, own_BA, gold_BA, weights_BA):
  """Moves the entries of shortlists to the columns of their labels.

  The marks are _NEGATIVE or _GOLD, and 0 where a label is not on the document's
  shortlist.
  """
  column_BA = jnp.where(own_BA, jnp.searchsorted(row_Y, row_BA), len(row_Y))
  row_B1 = jnp.arange(len(row_BA))[:, None]

  def by_column(values_BA: jax.Array) -> jax.Array:
    zero_BY = jnp.zeros((len(row_BA), len(row_Y)), values_BA.dtype)
    return zero_BY.at[row_B1, column_BA].set(values_BA, mode='drop')

  marks_BA = jnp.where(gold_BA, _GOLD, _NEGATIVE).astype(jnp.int8)
  return jax.tree.map(by_column, (marks_BA, weights_BA))


def _change_chunk(head, rule, carry, all_BD, scalars, exponents, place, terms):
  """Changes a chunk of rows by one step.

  all_BD are all documents that this device scores. The gradient of rows is
  divided by their number. `exponents` are those before the pass. `terms` turn
  logits_BC into the sum of the loss and its derivative.
  """
  # Without the barrier, XLA would copy the old rows and read the copy after the
  # new rows are written. Exponents are read from the old rows.
  # No row is written twice in a pass, so both are the row before its step.
  chunk_rows = lax.optimization_barrier(place.cut(carry.rows | exponents))
  scored_CD = decode_weights(chunk_rows, all_BD.dtype)
  new, dlogits_BC = terms(_chunk_logits(all_BD, chunk_rows, scored_CD))
  rounded_BC = dlogits_BC.astype(all_BD.dtype)
  gradient = RowGradient(
    product(rounded_BC, all_BD, (0, 0)), column_sums(dlogits_BC)
  )
  # The divisor includes masked documents (see fused_loss).
  gradient = jax.tree.map(lambda g: g / len(all_BD), gradient)
  first = lax.axis_index(head.axes) * len(carry.rows['bias'])
  bits_CD = random_bits(scalars.key, first + place.row_C, all_BD.shape[1])
  rule_slots = {name: carry.slots[name] for name in rule.names}
  # XLA must neither compute the new slots twice nor keep two copies of all
  # slots: newer releases need this barrier, and older ones (JAX 0.10) that the
  # slots are read again after they are written.
  new_slots = lax.optimization_barrier(
    rule.update_slots(gradient, place.cut(rule_slots))
  )
  rule_slots = place.write(rule_slots, new_slots)
  direction = rule.direction(gradient, place.cut(rule_slots), scalars.step)
  values_CD = decode_weights(chunk_rows, jnp.float32)
  change_CD = -scalars.rate * (direction.kernel_CD + scalars.decay * values_CD)
  left_out = {}
  if head.storage is Storage.COMPENSATED:
    kernel_CD, left_out[LEFT_OUT] = kahan_step(
      values_CD, change_CD, bits_CD, carry.slots, place.row_C
    )
    changed = {'kernel': kernel_CD}
  else:
    changed = encode_weights(head.storage, values_CD + change_CD, bits_CD)
  changed['bias'] = chunk_rows['bias'] - scalars.rate * direction.bias_C
  return PassCarry(
    carry.total + new,
    product(rounded_BC, scored_CD, (1, 0)) + carry.d_document_BD,
    place.write(carry.rows, changed),
    {**carry.slots, **rule_slots, **left_out},
  )


def _chunk_logits(document_BD, rows, kernel_CD):
  return product(document_BD, kernel_CD, (1, 1)) + rows['bias']
