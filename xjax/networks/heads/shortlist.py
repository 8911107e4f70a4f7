"""Scores and trains only the labels on a shortlist, with any head.

Each document has a shortlist of its own. The label rows on it are gathered, and
`Head.logits` scores them for this document alone (jax.vmap). On a mesh, label
rows stay where they are: every device scores the labels whose rows it has, and
the logits of all devices are added up.
"""

import functools
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float32, Int32

from xjax.core.mesh import BATCH
from xjax.core.numerics import total
from xjax.losses.loss import ChunkLoss, LabelWeights, Reduction
from xjax.networks.batch import Shortlist
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import HeadParts, row_spec, split_head
from xjax.networks.heads.head import Head
from xjax.networks.heads.streaming import Normaliser, loss_over


def shortlist_logits(
  head: Head, features: Any, ids_BA: Int32[Array, 'B A']
) -> Float32[Array, 'B A']:
  """Computes the logits of each document's shortlist, on the context mesh.

  At most head.chunk labels of a document are scored at a time. Logits are -inf
  where ids_BA is PAD or not a label of the head.
  """
  graphdef, rows, shared = split_head(head)
  run = jax.shard_map(
    functools.partial(_shard_logits, graphdef),
    in_specs=(row_spec(head.axes), P(), BATCH, BATCH),
    out_specs=BATCH,
    check_vma=False,
  )
  return run(rows, shared, features, ids_BA)


def _shard_logits(graphdef, rows, shared, features, ids_BA):
  parts = HeadParts(graphdef, rows, shared)
  head = parts.head
  all_features, all_BA = chunks.all_documents((features, ids_BA), head.axes)
  places = places_of(all_BA, rows, head)

  def body(logits_BA: jax.Array, span: chunks.RowSpan) -> jax.Array:
    part = _cut(places, span)
    new_BA = _logits(parts, all_features, part.cut(rows), shared)
    new_BA = jnp.where(part.own_BA, new_BA, 0.0)
    return lax.dynamic_update_slice_in_dim(logits_BA, new_BA, span.start, 1)

  zero_BA = jnp.zeros(all_BA.shape, jnp.float32)
  logits_BA = chunks.scan_chunks(body, zero_BA, all_BA.shape[1], head.chunk)
  # Every label has its logit on one device and 0 on the others, so that a sum
  # over devices is exact.
  logits_BA = chunks.own_documents(logits_BA, head.axes)
  return jnp.where(_scored(ids_BA, head.n_labels), logits_BA, -jnp.inf)


def _logits(parts, features, rows, shared) -> jax.Array:
  """Returns logits_BA of gathered rows, whose first axes are [B, A]."""

  def of_document(features: Any, rows: Any) -> jax.Array:
    features = jax.tree.map(lambda x: x[None], features)
    return parts.logits(features, rows, shared)[0]

  return jax.vmap(of_document)(features, rows)


def shortlist_loss(
  head: Head,
  features: Any,
  shortlist: Shortlist,
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  weights: LabelWeights | None = None,
) -> Float32[Array, '']:
  """Computes the loss over each document's shortlist, summed over documents.

  If every shortlist has all labels, this is streaming.head_loss.

  PAD and labels that the head does not learn add nothing to the loss. A mean
  counts labels that are not learnt, but not PAD. shortlist.weights_BA has no
  gradient; it can hold the costs of XR-Transformer (Zhang et al. 2021, Section
  3.2). A normalised loss sums over the shortlist only, and scores the labels
  twice.
  """
  asked = shortlist, mask_B
  return loss_over(ListedLabels, head, features, asked, loss, weights)


class ShortlistRows(NamedTuple):
  """Says where a device has the rows of labels."""

  row_BA: jax.Array  # int32, counted in the shard, 0 where own_BA is False
  own_BA: jax.Array  # bool, True for labels that this device scores

  def cut(self, rows: Any) -> Any:
    """Returns the row of each entry, from every array of a tree."""
    return jax.tree.map(lambda x: x[self.row_BA], rows)

  def write(self, sums: Any, new: Any) -> Any:
    """Adds arrays [B, A, ...] to those of all rows of the device."""
    # Rows of other devices get an index after the last row, which 'drop'
    # ignores.

    def add(sums: jax.Array, new: jax.Array) -> jax.Array:
      at_BA = jnp.where(self.own_BA, self.row_BA, len(sums))
      return sums.at[at_BA].add(new, mode='drop')

    return jax.tree.map(add, sums, new)


def places_of(
  ids_BA: Int32[Array, 'B A'], rows: Any, head: Head
) -> ShortlistRows:
  """Finds the rows of labels on this device, from its shard of rows."""
  per_shard = jax.tree.leaves(rows)[0].shape[0]
  row_BA = ids_BA - lax.axis_index(head.axes) * per_shard
  own_BA = (row_BA >= 0) & (row_BA < per_shard)
  own_BA &= _scored(ids_BA, head.n_labels)
  return ShortlistRows(jnp.where(own_BA, row_BA, 0), own_BA)


def _scored(ids_BA: jax.Array, n_labels: int) -> jax.Array:
  return (ids_BA >= 0) & (ids_BA < n_labels)


def shortlist_lengths(ids_BA: jax.Array, n_labels: int) -> jax.Array:
  """Returns the numbers of labels by which means are divided, int32 [B]."""
  return jnp.maximum(_scored(ids_BA, n_labels).sum(axis=1), 1)


def shortlist_terms(
  loss: ChunkLoss,
  logits_BA: Float32[Array, 'B A'],
  gold_BA: Bool[Array, 'B A'],
  weights_BA: Float32[Array, 'B A'] | None,
  lengths_B: Int32[Array, ' B'],
) -> tuple[Float32[Array, ''], Float32[Array, 'B A']]:
  """Computes the loss of labels that documents need not share, summed.

  For a chunk of labels, the results are those of AllLabelsPass.terms. Logits
  are -inf for entries without a label, and finite for gold labels. Weights are
  1 where None. A normalised loss, whose normaliser is known, uses only those of
  gold labels, and sums over labels.
  """
  if loss.normalised:
    gold_loss_BA, dgold_BA = loss.gold(jnp.where(gold_BA, logits_BA, 0.0))
    if weights_BA is not None:
      gold_loss_BA, dgold_BA = gold_loss_BA * weights_BA, dgold_BA * weights_BA
    gold_loss_BA = jnp.where(gold_BA, gold_loss_BA, 0.0)
    dlogits_BA = loss.absent(logits_BA)[1] + jnp.where(gold_BA, dgold_BA, 0.0)
    return gold_loss_BA.sum(), dlogits_BA
  is_sum = loss.reduction is Reduction.SUM_LABELS
  if weights_BA is None and is_sum:
    return loss.summed(logits_BA, gold_BA)
  loss_BA, dlogits_BA = loss(logits_BA, gold_BA)
  for factor in (weights_BA, None if is_sum else 1 / lengths_B[:, None]):
    if factor is not None:
      loss_BA, dlogits_BA = loss_BA * factor, dlogits_BA * factor
  return total(loss_BA), dlogits_BA


def entry_weights(
  weights: LabelWeights | None,
  gold_BA: Bool[Array, 'B A'],
  shortlist: Shortlist,
) -> Float32[Array, 'B A'] | None:
  """Returns the weight of each entry in the loss, or None if all are 1.

  `weights` are those of the entries' labels, [B, A].
  """
  if weights is None:
    return shortlist.weights_BA
  weights_BA = jnp.where(gold_BA, weights.positive_L, weights.negative_L)
  if shortlist.weights_BA is None:
    return weights_BA
  return weights_BA * shortlist.weights_BA


class ShortlistPass:
  """The loss over shortlists; a subclass cuts the entries of a chunk."""

  lengths_B: Int32[Array, ' B']  # labels of each shortlist that a mean counts

  def masked(
    self, logits_BC: jax.Array, span: chunks.RowSpan
  ) -> tuple[Any, ...]:
    """Returns logits, gold and weights; logits are -inf for other labels."""
    raise NotImplementedError

  def add(
    self, normaliser: Normaliser, logits_BC: jax.Array, span: chunks.RowSpan
  ) -> Normaliser:
    logits_BC, gold_BC, weights_BC = self.masked(logits_BC, span)
    weights_BC = 1.0 if weights_BC is None else weights_BC
    return normaliser.plus(logits_BC, jnp.where(gold_BC, weights_BC, 0.0))

  def terms(
    self, loss: ChunkLoss, logits_BC: jax.Array, span: chunks.RowSpan
  ) -> tuple[jax.Array, jax.Array]:
    masked = self.masked(logits_BC, span)
    return shortlist_terms(loss, *masked, self.lengths_B)


class ListedLabels(ShortlistPass):
  """The loss over a shortlist of each document, in chunks of its entries."""

  def __init__(
    self,
    parts: HeadParts,
    weights: LabelWeights | None,
    shortlist: Shortlist,
    mask_B: jax.Array,
  ):
    head = parts.head
    places = places_of(shortlist.ids_BA, parts.rows, head)
    own_BA = places.own_BA & mask_B[:, None]
    if (learns_R := parts.learns()) is not None:
      own_BA &= learns_R[places.row_BA]
    self.places = ShortlistRows(places.row_BA, own_BA)
    self.gold_BA = shortlist.gold_BA & own_BA
    weights = self.places.cut(weights)
    self.weights_BA = entry_weights(weights, self.gold_BA, shortlist)
    self.lengths_B = shortlist_lengths(shortlist.ids_BA, head.n_labels)
    self.logits = functools.partial(_logits, parts)
    self.scan = functools.partial(
      chunks.scan_chunks, rows=own_BA.shape[1], chunk=head.chunk
    )

  def place(self, span: chunks.RowSpan) -> ShortlistRows:
    return _cut(self.places, span)

  def masked(
    self, logits_BA: jax.Array, span: chunks.RowSpan
  ) -> tuple[Any, ...]:
    entries = self.places.own_BA, self.gold_BA, self.weights_BA
    own_BA, gold_BA, weights_BA = _cut(entries, span)
    return jnp.where(own_BA, logits_BA, -jnp.inf), gold_BA, weights_BA


def _cut(entries: Any, span: chunks.RowSpan) -> Any:
  """Returns some consecutive entries of each shortlist."""
  return jax.tree.map(
    lambda x: lax.dynamic_slice_in_dim(x, *span, axis=1), entries
  )
