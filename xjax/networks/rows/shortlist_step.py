"""Trains only the rows of labels on shortlists, in one pass over these rows.

The pass is that of fused.py, over the distinct labels of a batch's shortlists
instead of all labels. A chunk has some of these labels. Their rows are
gathered, multiplied by all documents at once, changed, and written back. Logits
of labels that a document does not have on its shortlist are computed too, and
are then masked: a product with a gathered chunk that stays in cache takes less
time than a copy of each row for each document. All other rows, and what the
rule remembers of them, stay as they are.
"""

import functools
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.mesh import BATCH
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.networks.batch import Shortlist
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import row_spec, split_head
from xjax.networks.heads.ova import OneVsAll
from xjax.networks.heads.shortlist import (
  document_scale,
  entry_weights,
  places_of,
)
from xjax.networks.heads.streaming import Normaliser, slot_loss
from xjax.networks.rows.fused import (
  Pass,
  PassCarry,
  RowUpdate,
  change_chunk,
  chunk_logits,
  exponents_of,
)
from xjax.networks.rows.storage import decode_weights
from xjax.networks.rows.update import Slots


def fused_shortlist_loss(
  head: OneVsAll,
  document_BD: Float[Array, 'B D'],
  shortlist: Shortlist,
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  step: RowUpdate,
  label_weights: LabelWeights | None = None,
) -> tuple[Float32[Array, ''], tuple[nnx.State, Slots]]:
  """Computes the loss over shortlists, and changes the rows of their labels.

  If every shortlist has all labels, this is fused_loss: the rows after the step
  are the same. The gradient of the rows is divided by B, as there. Rows of
  labels that are on no shortlist of a real document do not change, not even by
  weight decay, and neither do their slots.

  The loss can be differentiated only with respect to document_BD. The results
  are those of fused_loss, the arguments those of fused_loss and shortlist_loss.
  """
  rows = split_head(head).rows
  static = Pass.of(head, loss, step.rule)
  pure = nnx.to_pure_dict(rows)
  batch = shortlist, mask_B
  arrays = pure, step.slots, step.pace, document_BD, label_weights, batch
  total, pure, slots = _fused(static, *arrays)
  nnx.replace_by_pure_dict(rows, pure)
  return total, (rows, slots)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(static, *arrays):
  """Computes fused_shortlist_loss, with a gradient for document_BD."""
  return _forward(static, *arrays)[0]


def _forward(static, *arrays):
  row = row_spec(static.axes)
  run = jax.shard_map(
    functools.partial(_shard_step, static),
    in_specs=(row, row, P(), BATCH, row, BATCH),
    out_specs=(P(), row, row, BATCH),
    check_vma=False,
  )
  *results, d_document_BD = run(*arrays)
  return tuple(results), d_document_BD


def _backward(static, d_document_BD, cotangents):
  del static
  scaled_BD = (d_document_BD * cotangents[0]).astype(d_document_BD.dtype)
  return None, None, None, scaled_BD, None, None


_fused.defvjp(_forward, _backward)


def _shard_step(static, rows, slots, pace, document_BD, weights, batch):
  """Runs the step on one shard of the label rows (see fused._shard_step)."""
  axes = static.axes
  documents = chunks.all_documents((document_BD, *batch), axes)
  all_BD, shortlist, mask_B = documents
  places = places_of(shortlist.ids_BA, rows, static.n_labels, axes)
  own_BA = places.own_BA & mask_B[:, None]
  gold_BA = shortlist.gold_BA & own_BA
  weights_BA = entry_weights(places.gather(weights), gold_BA, shortlist)
  scale_B = document_scale(static.loss, shortlist.ids_BA, static.n_labels)
  per_shard = len(rows['bias'])
  row_BA = jnp.where(own_BA, places.row_BA, per_shard)
  capacity = min(row_BA.size, chunks.shard_rows(rows, static.n_labels))
  row_Y, used = distinct_rows(row_BA.reshape(-1), capacity, per_shard)
  entries = _by_column(row_Y, row_BA, own_BA, gold_BA, weights_BA)
  scan = functools.partial(
    chunks.scan_chunks, rows=capacity, chunk=static.chunk, used=used
  )

  def masked(logits_BC, start, size):
    marks_BC, weights_BC = jax.tree.map(
      lambda x: lax.dynamic_slice_in_dim(x, start, size, 1), entries
    )
    logits_BC = jnp.where(marks_BC > 0, logits_BC, -jnp.inf)
    return logits_BC, marks_BC == _GOLD, weights_BC

  def picked(start, size):
    return chunks.Picked(lax.dynamic_slice_in_dim(row_Y, start, size))

  def add_chunk(normaliser, start, size):
    chunk_rows = picked(start, size).cut(rows)
    kernel_CD = decode_weights(chunk_rows, all_BD.dtype)
    logits_BC = chunk_logits(all_BD, chunk_rows, kernel_CD)
    logits_BC, gold_BC, weights_BC = masked(logits_BC, start, size)
    weights_BC = 1.0 if weights_BC is None else weights_BC
    return normaliser.plus(logits_BC, jnp.where(gold_BC, weights_BC, 0.0))

  loss = static.loss
  if loss.normalised:
    normaliser = scan(add_chunk, Normaliser.start(len(all_BD)))
    loss = normaliser.normalised(loss, axes)
  exponents = exponents_of(rows)

  def body(carry, start, size):
    def terms(logits_BC):
      return slot_loss(loss, *masked(logits_BC, start, size), scale_B)

    where = picked(start, size)
    return change_chunk(static, carry, all_BD, pace, exponents, where, terms)

  last = scan(body, PassCarry.start(rows, slots, all_BD))
  return last.results(axes, document_BD.dtype)


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


def _by_column(
  row_Y: jax.Array,
  row_BA: jax.Array,
  own_BA: jax.Array,
  gold_BA: jax.Array,
  weights_BA: jax.Array | None,
) -> tuple[Any, Any]:
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
