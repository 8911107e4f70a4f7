"""Trains only the rows of labels on shortlists, of any head.

The rows of the distinct labels are gathered once. Each document reads its rows
from there (shortlist.py), so their gradient has one row per distinct label. The
rule then changes these rows, which are written back. For OneVsAll, fused.py
does the same in chunks and takes less memory.
"""

import functools
from typing import Any

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float32

from xjax.core.mesh import BATCH, DATA
from xjax.core.types import PAD
from xjax.losses.loss import ChunkLoss, LabelWeights
from xjax.networks.batch import Shortlist
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import (
  HeadParts,
  row_spec,
  split_head,
  with_gradients,
)
from xjax.networks.heads.head import Frozen, Head
from xjax.networks.heads.shortlist import ListedLabels, ShortlistRows, places_of
from xjax.networks.heads.streaming import pulled_loss
from xjax.networks.rows.fused import RowUpdate, StepScalars, distinct_rows
from xjax.networks.rows.update import FusedRowsConfig, RowGradient, Slots


def trained_rows(head: Head) -> nnx.State:
  """Returns the label rows of a head that are not frozen."""
  return nnx.split_state(split_head(head).rows, Frozen, ...)[1]


def row_shape(head: Head) -> tuple[int, int]:
  """Returns the number of rows, and of the weights of a row without biases."""
  # A rule sees all trained parameters of a label as one row: first the entries
  # of its vectors, in the order of their names, and then its bias.
  arrays = jax.tree.leaves(nnx.to_pure_dict(trained_rows(head)))
  return len(arrays[0]), sum(x.shape[1] for x in arrays if x.ndim == 2)


def any_head_loss(
  head: Head,
  features: Any,
  shortlist: Shortlist,
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  step: RowUpdate,
  label_weights: LabelWeights | None = None,
) -> tuple[Float32[Array, ''], tuple[nnx.State, Slots]]:
  """Computes the loss over shortlists, and changes the rows of their labels.

  The head has float32 rows, and at most one bias per label; the slots of `step`
  have the sizes of row_shape. The loss can be differentiated with respect to
  the features and to the head's shared parameters. The gradient of rows is
  divided by the number of documents, which includes masked documents.

  Returns:
    The loss, computed with the rows before the step and summed over documents,
    and a pair: the trained rows (trained_rows) and the slots, after the step.
  """
  graphdef, rows, shared = split_head(head)
  row = row_spec(head.axes)
  shards = jax.shard_map(
    functools.partial(_shard_step, graphdef, loss, step.rule),
    in_specs=((row, row, P(), row, BATCH), P(), BATCH),
    out_specs=(P(), row, row, P(), BATCH),
    check_vma=False,
  )

  def run(given, trained):
    *results, d_shared, d_features = shards(given, *trained)
    return tuple(results), (d_shared, d_features)

  given = rows, step.slots, step.scalars, label_weights, (shortlist, mask_B)
  total, rows, slots = with_gradients(run, given, (shared, features))
  return total, (nnx.split_state(rows, Frozen, ...)[1], slots)


def _shard_step(graphdef, loss, rule, arrays, shared, features):
  """Steps on a shard; returns loss, rows, slots, and the other gradients."""
  rows, slots, scalars, weights, batch = arrays
  parts = HeadParts(graphdef, rows, shared)
  head = parts.head
  documents = chunks.all_documents((features, *batch), head.axes)
  features, shortlist, mask_B = documents
  per_shard = jax.tree.leaves(rows)[0].shape[0]
  ids_BA = jnp.where(mask_B[:, None], shortlist.ids_BA, PAD)
  places = places_of(ids_BA, rows, head)
  row_BA = jnp.where(places.own_BA, places.row_BA, per_shard)
  # All devices that have these rows must agree on the distinct labels.
  row_X = row_BA.reshape(-1)
  if DATA not in head.axes:
    row_X = lax.all_gather(row_X, DATA, tiled=True)
  capacity = min(row_X.size, chunks.shard_rows(rows, head.n_labels))
  picked = chunks.PickedRows(distinct_rows(row_X, capacity, per_shard)[0])
  gathered = picked.cut(rows)
  # The constructor cuts weights by rows of the shard; only then do places count
  # in the gathered rows.
  labels = ListedLabels(parts, weights, shortlist, mask_B)
  # row_C is ascending, so a binary search finds the gathered row of each entry.
  at_BA = jnp.searchsorted(picked.row_C, row_BA)
  labels.places = ShortlistRows(
    jnp.where(places.own_BA, at_BA, 0), labels.places.own_BA
  )
  total, d_rows, *gradients = pulled_loss(
    labels, HeadParts(graphdef, gathered, shared), features, loss
  )
  # As in fused.py, the divisor includes masked documents, of all devices.
  batch_size = len(mask_B)
  if DATA not in head.axes:
    batch_size *= lax.axis_size(DATA)
  d_rows = jax.tree.map(lambda d: d / batch_size, d_rows)
  new, slots = _step_rows(rule, gathered, d_rows, slots, scalars, picked)
  return total, picked.write(rows, new), slots, *gradients


def _step_rows(
  rule: FusedRowsConfig,
  gathered: nnx.State,
  d_rows: nnx.State,
  slots: Slots,
  scalars: StepScalars,
  picked: chunks.PickedRows,
) -> tuple[nnx.State, Slots]:
  frozen, trained = nnx.split_state(gathered, Frozen, ...)
  leaves, structure = jax.tree.flatten(trained)
  d_leaves = jax.tree.leaves(nnx.split_state(d_rows, Frozen, ...)[1])
  gradient = _joined(d_leaves)
  slots = picked.write(slots, rule.update_slots(gradient, picked.cut(slots)))
  direction = rule.direction(gradient, picked.cut(slots), scalars.step)
  values = _joined(leaves)
  kernel_YD = direction.kernel_CD + scalars.decay * values.kernel_CD
  changes, at = [], 0
  for leaf in leaves:
    if leaf.ndim == 1:
      changes.append(direction.bias_C)
      continue
    changes.append(kernel_YD[:, at : at + leaf.shape[1]])
    at += leaf.shape[1]
  leaves = [x - scalars.rate * change for x, change in zip(leaves, changes)]
  return nnx.merge_state(frozen, jax.tree.unflatten(structure, leaves)), slots


def _joined(leaves: list[jax.Array]) -> RowGradient:
  """Joins the parameters of labels into rows; see row_shape."""
  vectors = [x for x in leaves if x.ndim == 2]
  biases = [x for x in leaves if x.ndim == 1]
  if len(biases) > 1 or len(vectors) + len(biases) < len(leaves):
    raise ValueError(
      'a head must have vectors, and at most one bias, per label'
    )
  zero_C = jnp.zeros(len(leaves[0]), jnp.float32)
  return RowGradient(jnp.concatenate(vectors, 1), *(biases or [zero_C]))
