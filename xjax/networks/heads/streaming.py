"""Computes the loss over all labels, in chunks of labels and mesh shards.

The logits, loss, derivative and gradients of a chunk are all computed while the
chunk is in cache. So neither a [B, L] array nor a second forward pass for the
gradient is needed. A normalised loss takes one more pass over the chunks. Renee
(Jain et al. 2023, Section 4) does so for one-vs-all heads.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float32, Int32

from xjax.core.mesh import BATCH, DATA, LABEL
from xjax.core.types import PAD
from xjax.losses.loss import ChunkLoss, LabelWeights, Reduction
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import (
  HeadParts,
  row_spec,
  split_head,
  with_gradients,
)


def head_loss(
  head: nnx.Module,
  features: Any,
  positives_BP: Int32[Array, 'B P'],
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  weights: LabelWeights | None = None,
) -> Float32[Array, '']:
  """Computes the loss over all labels, summed over documents.

  The function runs on the context mesh, with documents divided over the data
  axis, and label rows over the head's axes.

  features are the result of the head's `prepare`, a pytree of arrays whose
  first axis is documents. positives_BP are gold labels, PAD elsewhere; only the
  head's labels count. mask_B is False for rows that only fill the batch and add
  nothing. weights are for label rows, with padding.
  """
  batch = positives_BP, mask_B
  summed = loss_over(AllLabelsPass, head, features, batch, loss, weights)
  return summed / labels_per_loss(loss, head.n_labels)


def loss_over(
  kind: Callable[..., Any],
  head: nnx.Module,
  features: Any,
  batch: tuple,
  loss: ChunkLoss,
  weights: LabelWeights | None,
) -> Float32[Array, '']:
  """Computes the loss over all labels or over shortlists, as `kind` says.

  kind(parts, weights, *batch) makes a shard's AllLabelsPass or ListedLabels.
  `batch` has gold labels or shortlists, and the mask of documents.
  """
  graphdef, rows, shared = split_head(head)
  row = row_spec(head.axes)
  # Label rows, their weights and their gradients stay where they are. The loss
  # and the gradients of shared parameters are summed over all devices.
  shards = jax.shard_map(
    functools.partial(_shard_loss, kind, graphdef, loss),
    in_specs=(row, P(), BATCH, row, BATCH),
    out_specs=(P(), row, P(), BATCH),
    check_vma=False,
  )

  def run(given, trained):
    total, *gradients = shards(*trained, *given)
    return total, tuple(gradients)

  return with_gradients(run, (weights, batch), (rows, shared, features))


def _shard_loss(kind, graphdef, loss, rows, shared, features, weights, batch):
  parts = HeadParts(graphdef, rows, shared)
  documents = chunks.all_documents((features, *batch), parts.head.axes)
  features, *batch = documents
  return pulled_loss(kind(parts, weights, *batch), parts, features, loss)


def pulled_loss(
  labels: Any, parts: HeadParts, features: Any, loss: ChunkLoss
) -> tuple[jax.Array, Any, Any, Any]:
  """Computes the loss of all devices, and one shard's gradients.

  `labels` are AllLabels or ListedLabels: `scan` goes over chunks, `place` cuts
  a chunk's rows, `add` gives its logits to a normaliser, and `terms` returns
  its loss and the derivative. `features` are those of all documents that this
  device scores. The gradients are those of the shard's rows, of the shared
  parameters and of this device's features; leaves without a float dtype have
  the gradient None.
  """
  _, rows, shared = parts
  axes = parts.head.axes
  row_floats, replace_rows = split_floats(rows)
  floats, replace_floats = split_floats(features)

  def logits(chunk_rows, shared, floats):
    return labels.logits(replace_floats(floats), chunk_rows, shared)

  def body(carry, span):
    total, d_rows, d_wide = carry
    place = labels.place(span)
    logits_BC, pull = jax.vjp(logits, place.cut(rows), shared, floats)
    new, dlogits_BC = labels.terms(loss, logits_BC, span)
    d_chunk, *d_new = pull(dlogits_BC)
    d_rows = place.write(d_rows, split_floats(d_chunk)[0])
    return total + new, d_rows, jax.tree.map(jnp.add, d_wide, tuple(d_new))

  documents = len(jax.tree.leaves(features)[0])
  fixed = functools.partial(logits, shared=shared, floats=floats)
  loss = normalised_loss(loss, labels, rows, fixed, documents, axes)
  # Sums over chunks are float32, whatever the dtype of the products is.
  wide = jax.tree.map(
    lambda x: jnp.zeros(x.shape, jnp.float32), (shared, floats)
  )
  start = jnp.float32(0), [jnp.zeros_like(x) for x in row_floats], wide
  total, d_rows, (d_shared, d_floats) = labels.scan(body, start)
  d_floats = chunks.own_documents(d_floats, axes)
  d_floats = [d.astype(x.dtype) for d, x in zip(d_floats, floats)]
  # If no other device has these rows, it scored the documents of all devices.
  d_rows = d_rows if DATA in axes else lax.psum(d_rows, DATA)
  return (
    lax.psum(total, (DATA, LABEL)),
    replace_rows(d_rows, gradient=True),
    lax.psum(d_shared, (DATA, LABEL)),
    replace_floats(d_floats, gradient=True),
  )


def normalised_loss(
  loss: ChunkLoss,
  labels: Any,
  rows: Any,
  logits: Callable[[Any], jax.Array],
  documents: int,
  axes: tuple[str, ...],
) -> ChunkLoss:
  """Returns the loss with its sums over labels, in a pass of its own if needed.

  `logits` computes the logits of a chunk from the chunk's rows.
  """
  if not loss.normalised:
    return loss

  def add_chunk(normaliser, span):
    return labels.add(normaliser, logits(labels.place(span).cut(rows)), span)

  sums = labels.scan(add_chunk, Normaliser.start(documents))
  highest_B = lax.pmax(sums.highest_B, axes)
  base_B = jnp.where(highest_B == -jnp.inf, 0.0, highest_B)
  sum_B = lax.psum(sums.sum_B * jnp.exp(sums.highest_B - base_B), axes)
  # A row without any label gets 0 instead of -inf, so that the row adds 0 to
  # the loss.
  log_B = jnp.where(sum_B > 0, base_B + jnp.log(sum_B), 0.0)
  return loss.with_normaliser(log_B, lax.psum(sums.gold_B, axes))


class AllLabelsPass:
  """The loss over all labels of a shard, in chunks of consecutive rows."""

  def __init__(
    self,
    parts: HeadParts,
    weights: LabelWeights | None,
    positives_BP: Int32[Array, 'B P'],
    mask_B: Bool[Array, ' B'],
  ):
    head = parts.head
    self.rows, self.weights, self.learns = parts.rows, weights, parts.learns()
    self.logits, self.axes = parts.logits, head.axes
    self.n_labels = head.n_labels
    self.gold_BP, self.mask_B = gold_of(positives_BP, mask_B), mask_B
    self.scan = functools.partial(
      chunks.scan_chunks,
      rows=chunks.shard_rows(parts.rows, head.n_labels),
      chunk=head.chunk,
    )

  def place(self, span: chunks.RowSpan) -> chunks.RowSpan:
    return span

  def add(
    self, normaliser: 'Normaliser', logits_BC: jax.Array, span: chunks.RowSpan
  ) -> 'Normaliser':
    learnt_BC, at_BP, inside_BP, weights = self._chunk(span)
    weight_BP = 1.0 if weights is None else weights.positive_L[at_BP]
    logits_BC = jnp.where(learnt_BC, logits_BC, -jnp.inf)
    return normaliser.plus(logits_BC, jnp.where(inside_BP, weight_BP, 0.0))

  def terms(
    self, loss: ChunkLoss, logits_BC: jax.Array, span: chunks.RowSpan
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the loss of a chunk, and its derivative by the logits."""
    # The losses of the B x P gold labels are computed separately, so that no
    # [B, C] array has to mark gold labels.
    learnt_BC, at_BP, inside_BP, weights = self._chunk(span)
    row_B1 = jnp.arange(len(at_BP))[:, None]
    gold_logits_BP = jnp.where(inside_BP, logits_BC[row_B1, at_BP], 0.0)
    # Labels outside the chunk get a column after the last column. mode='drop'
    # ignores these labels.
    write_BP = jnp.where(inside_BP, at_BP, span.size)
    logits_BC = jnp.where(learnt_BC, logits_BC, -jnp.inf)
    # Gold labels are not absent; but a normalised loss needs their logits.
    if not loss.normalised:
      logits_BC = logits_BC.at[row_B1, write_BP].set(-jnp.inf, mode='drop')
    negative_C = None if weights is None else weights.negative_L
    loss_sum, dlogits_BC = loss.absent(logits_BC, negative_C)
    loss_BP, dlogits_BP = loss.gold(gold_logits_BP)
    if weights is not None:
      positive_BP = weights.positive_L[at_BP]
      loss_BP, dlogits_BP = loss_BP * positive_BP, dlogits_BP * positive_BP
    loss_sum += jnp.where(inside_BP, loss_BP, 0.0).sum()
    dlogits_BC = dlogits_BC.at[row_B1, write_BP].add(dlogits_BP, mode='drop')
    return loss_sum, dlogits_BC

  def _chunk(self, span):
    """Returns what the loss includes of a chunk: logits, and gold labels.

    The results are the mask of logits, the columns of gold labels in the chunk
    (0 for all other entries), the mask of these, and the weights of labels.
    """
    ids_C = chunks.labels(self.rows, self.axes, span)
    weights, learns_C = span.cut((self.weights, self.learns))
    learnt_C = ids_C < self.n_labels
    if learns_C is not None:
      learnt_C &= learns_C
    at_BP = self.gold_BP - ids_C[0]
    # PAD and the labels of other chunks and shards are outside of the chunk.
    inside_BP = (at_BP >= 0) & (at_BP < span.size)
    at_BP = jnp.where(inside_BP, at_BP, 0)
    inside_BP &= learnt_C[at_BP]
    return self.mask_B[:, None] & learnt_C, at_BP, inside_BP, weights


def split_floats(features: Any) -> tuple[list[jax.Array], Callable[..., Any]]:
  """Returns the float leaves, and a function that replaces their values.

  With gradient=True, the function puts None in place of all other leaves.
  """
  leaves, structure = jax.tree.flatten(features)
  at = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]

  def replace_floats(floats, gradient=False):
    new = [None] * len(leaves) if gradient else list(leaves)
    for i, x in zip(at, floats):
      new[i] = x
    return jax.tree.unflatten(structure, new)

  return [leaves[i] for i in at], replace_floats


def gold_of(
  positives_BP: Int32[Array, 'B P'], mask_B: Bool[Array, ' B']
) -> Int32[Array, 'B P']:
  """Returns each gold label of a document once; all other entries are PAD.

  Rows that only fill the batch have no gold labels.
  """
  sorted_BP = jnp.sort(positives_BP, axis=1)
  repeated_BP = sorted_BP == jnp.roll(sorted_BP, 1, axis=1)
  repeated_BP = repeated_BP.at[:, 0].set(False)
  return jnp.where(repeated_BP | ~mask_B[:, None], PAD, sorted_BP)


def labels_per_loss(loss: ChunkLoss, n_labels: int) -> int:
  """Returns the number by which a loss over all labels is divided."""
  return n_labels if loss.reduction is Reduction.MEAN_LABELS else 1


class Normaliser(NamedTuple):
  """Holds sums over the labels of some chunks, for a normalised loss."""

  highest_B: jax.Array  # float32, the largest logit, or -inf at the start
  sum_B: jax.Array  # float32, sum of exp(logit - highest)
  gold_B: jax.Array  # float32, sum of the gold labels' weights

  @classmethod
  def start(cls, documents: int) -> 'Normaliser':
    zero_B = jnp.zeros(documents, jnp.float32)
    return cls(jnp.full(documents, -jnp.inf), zero_B, zero_B)

  def plus(
    self, logits_BC: Float32[Array, 'B C'], gold_BP: Float32[Array, 'B P']
  ) -> 'Normaliser':
    """Adds labels, -inf if excluded; gold_BP are the weights of gold labels."""
    highest_B = jnp.maximum(self.highest_B, logits_BC.max(axis=1))
    # -inf - -inf would be NaN.
    base_B = jnp.where(highest_B == -jnp.inf, 0.0, highest_B)
    new_B = jnp.exp(logits_BC - base_B[:, None]).sum(axis=1)
    return Normaliser(
      highest_B,
      self.sum_B * jnp.exp(self.highest_B - base_B) + new_B,
      self.gold_B + gold_BP.sum(axis=1),
    )
