"""Scores and trains only the labels on a shortlist, with any head.

Each document has a shortlist of its own. The label rows on it are gathered, and
`Head.logits` scores them for this document alone (jax.vmap). So a head needs no
code of its own for shortlists. On a mesh, label rows stay where they are: every
device scores the labels whose rows it has, and the logits of all devices are
added up.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float32, Int32

from xjax.core.mesh import BATCH, DATA, LABEL
from xjax.losses.loss import ChunkLoss, LabelWeights, Reduction
from xjax.networks.batch import Shortlist
from xjax.networks.heads import chunks
from xjax.networks.heads.chunks import (
  HeadParts,
  row_spec,
  split_head,
  with_gradients,
)
from xjax.networks.heads.head import Head
from xjax.networks.heads.streaming import Normaliser, slot_loss, split_floats


def shortlist_logits(
  head: Head, features: Any, ids_BA: Int32[Array, 'B A']
) -> Float32[Array, 'B A']:
  """Computes the logits of each document's shortlist, on the context mesh.

  Features and parameters have gradients; for them, the backward pass scores the
  labels again. At most head.chunk labels of a document are scored at a time.
  Logits are -inf where ids_BA is PAD or not a label of the head.
  """
  _, rows, shared = split_head(head)
  static = Structure.of(head)
  return _logits(static, rows, shared, features, ids_BA)


def shortlist_loss(
  head: Head,
  features: Any,
  shortlist: Shortlist,
  mask_B: Bool[Array, ' B'],
  loss: ChunkLoss,
  weights: LabelWeights | None = None,
) -> Float32[Array, '']:
  """Computes the loss over each document's shortlist, summed over documents.

  If every shortlist has all labels, this is streaming.head_loss. The gradients
  are computed in the forward pass; the backward pass only scales them.

  PAD and labels that the head does not learn add nothing to the loss, and are
  not counted in a mean. shortlist.weights_BA has no gradient; it can hold the
  costs of XR-Transformer (Zhang et al. 2021, Section 3.2). A normalised loss
  sums over the shortlist only, and scores the labels twice.
  """
  _, rows, shared = split_head(head)
  static = Structure.of(head)
  row = row_spec(static.axes)
  shards = jax.shard_map(
    functools.partial(_shard_loss, static, loss),
    in_specs=(row, P(), BATCH, row, BATCH),
    out_specs=(P(), row, P(), BATCH),
    check_vma=False,
  )

  def run(given, trained):
    total, *gradients = shards(*trained, *given)
    return total, tuple(gradients)

  given = weights, (shortlist, mask_B)
  return with_gradients(run, given, (rows, shared, features))


@dataclasses.dataclass(frozen=True)
class Structure:
  """Holds the structure of the head, and the sizes of its scoring."""

  graphdef: nnx.GraphDef
  n_labels: int
  chunk: int
  axes: tuple[str, ...]

  @classmethod
  def of(cls, head: Head) -> 'Structure':
    graphdef = split_head(head).graphdef
    return cls(graphdef, head.n_labels, head.chunk, head.axes)

  def logits(
    self, features: Any, rows: nnx.State, shared: nnx.State
  ) -> jax.Array:
    """Returns logits_BA of gathered rows, whose first axes are [B, A]."""

    def of_document(features: Any, rows: nnx.State) -> jax.Array:
      features = jax.tree.map(lambda x: x[None], features)
      return HeadParts(self.graphdef, rows, shared).logits(
        features, rows, shared
      )[0]

    return jax.vmap(of_document)(features, rows)

  def places(self, ids_BA: jax.Array, rows: nnx.State) -> 'Places':
    """Finds the rows of labels on this device (see places_of)."""
    return places_of(ids_BA, rows, self.n_labels, self.axes)


class Places(NamedTuple):
  """Says where a device has the rows of labels."""

  row_BA: jax.Array  # int32, counted in the shard, 0 where own_BA is False
  own_BA: jax.Array  # bool, True for labels that this device scores

  def gather(self, rows: Any) -> Any:
    """Returns the row of each entry, from every array of a tree."""
    return jax.tree.map(lambda x: x[self.row_BA], rows)


def places_of(
  ids_BA: Int32[Array, 'B A'], rows: Any, n_labels: int, axes: tuple[str, ...]
) -> Places:
  """Finds the rows of labels on this device, from its shard of rows."""
  per_shard = jax.tree.leaves(rows)[0].shape[0]
  row_BA = ids_BA - lax.axis_index(axes) * per_shard
  own_BA = (row_BA >= 0) & (row_BA < per_shard) & _scored(ids_BA, n_labels)
  return Places(jnp.where(own_BA, row_BA, 0), own_BA)


def _scored(ids_BA: jax.Array, n_labels: int) -> jax.Array:
  return (ids_BA >= 0) & (ids_BA < n_labels)


def document_scale(
  loss: ChunkLoss, ids_BA: Int32[Array, 'B A'], n_labels: int
) -> Float32[Array, ' B'] | None:
  """Returns the factor of each document's loss, or None if all are 1.

  If the loss is a mean, the factor is 1 / the number of the shortlist's labels,
  and 1 if it has none.
  """
  if loss.reduction is Reduction.SUM_LABELS:
    return None
  return 1 / jnp.maximum(_scored(ids_BA, n_labels).sum(axis=1), 1)


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


def _cut(entries: Any, start: jax.Array, size: int) -> Any:
  """Returns `size` entries of each shortlist, from entry `start` on."""
  cut = functools.partial(
    lax.dynamic_slice_in_dim, start_index=start, slice_size=size, axis=1
  )
  return jax.tree.map(cut, entries)


def own_logits(
  static: Structure,
  rows: nnx.State,
  shared: nnx.State,
  features: Any,
  places: Places,
) -> jax.Array:
  """Returns logits_BA, which are 0 for labels of other devices."""

  def body(logits_BA: jax.Array, start: jax.Array, size: int) -> jax.Array:
    part = _cut(places, start, size)
    new_BA = static.logits(features, part.gather(rows), shared)
    new_BA = jnp.where(part.own_BA, new_BA, 0.0)
    return lax.dynamic_update_slice_in_dim(logits_BA, new_BA, start, 1)

  shape = places.own_BA.shape
  zero_BA = jnp.zeros(shape, jnp.float32)
  return chunks.scan_chunks(body, zero_BA, shape[1], static.chunk)


def _shard_logits(static, rows, shared, features, ids_BA):
  everywhere = chunks.all_documents((features, ids_BA), static.axes)
  places = static.places(everywhere[1], rows)
  logits_BA = own_logits(static, rows, shared, everywhere[0], places)
  # Every label has its logit on one device and 0 on the others, so that a sum
  # over devices is exact.
  logits_BA = chunks.own_documents(logits_BA, static.axes)
  return jnp.where(_scored(ids_BA, static.n_labels), logits_BA, -jnp.inf)


# (logits_BA, start, size) -> (sum, derivative by logits_BA), for `size` entries
# of each shortlist from entry `start` on.
Terms = Callable[[jax.Array, jax.Array, int], tuple[jax.Array, jax.Array]]


def pull_shard(
  static: Structure,
  rows: nnx.State,
  shared: nnx.State,
  features: Any,
  places: Places,
  terms: Terms,
) -> tuple[jax.Array, Any, Any, Any]:
  """Computes the sum of some terms over labels, and its gradients.

  `features` are those of all documents that this device scores. The sum is over
  all devices. The gradients are those of this shard's rows, of shared and of
  this device's features; leaves without a float dtype have the gradient None.
  """
  per_shard = jax.tree.leaves(rows)[0].shape[0]

  def body(carry: Any, start: jax.Array, size: int) -> Any:
    total, d_rows, d_wide = carry
    part = _cut(places, start, size)
    arguments = features, part.gather(rows), shared
    logits_BA, pull = jax.vjp(static.logits, *arguments)
    new, dlogits_BA = terms(logits_BA, start, size)
    d_features, d_new, d_shared = pull(dlogits_BA)
    # Rows of other devices get an index after the last row, which 'drop'
    # ignores.
    at_BA = jnp.where(part.own_BA, part.row_BA, per_shard)
    d_rows = [
      d.at[at_BA].add(new, mode='drop')
      for d, new in zip(d_rows, split_floats(d_new)[0])
    ]
    d_new = d_shared, split_floats(d_features)[0]
    return total + new, d_rows, jax.tree.map(jnp.add, d_wide, d_new)

  row_floats, replace_rows = split_floats(rows)
  floats, replace_floats = split_floats(features)
  # Sums over entries are float32, whatever the dtype of the products is.
  wide = jax.tree.map(
    lambda x: jnp.zeros(x.shape, jnp.float32), (shared, floats)
  )
  start = jnp.float32(0), [jnp.zeros_like(x) for x in row_floats], wide
  length = places.own_BA.shape[1]
  total, d_rows, (d_shared, d_floats) = chunks.scan_chunks(
    body, start, length, static.chunk
  )
  d_floats = chunks.own_documents(d_floats, static.axes)
  d_floats = [d.astype(x.dtype) for d, x in zip(d_floats, floats)]
  if DATA not in static.axes:
    d_rows = lax.psum(d_rows, DATA)
  return (
    lax.psum(total, (DATA, LABEL)),
    replace_rows(d_rows, gradient=True),
    lax.psum(d_shared, (DATA, LABEL)),
    replace_floats(d_floats, gradient=True),
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _logits(static, rows, shared, features, ids_BA):
  run = jax.shard_map(
    functools.partial(_shard_logits, static),
    in_specs=(row_spec(static.axes), P(), BATCH, BATCH),
    out_specs=BATCH,
    check_vma=False,
  )
  return run(rows, shared, features, ids_BA)


def _logits_forward(static, *arrays):
  return _logits(static, *arrays), arrays


def _logits_backward(static, arrays, dlogits_BA):
  row = row_spec(static.axes)
  run = jax.shard_map(
    functools.partial(_shard_logits_backward, static),
    in_specs=(row, P(), BATCH, BATCH, BATCH),
    out_specs=(row, P(), BATCH),
    check_vma=False,
  )
  return *run(*arrays, dlogits_BA), None


def _shard_logits_backward(static, rows, shared, features, ids_BA, dlogits_BA):
  documents = features, ids_BA, dlogits_BA
  documents = chunks.all_documents(documents, static.axes)
  features, ids_BA, dlogits_BA = documents
  places = static.places(ids_BA, rows)
  dlogits_BA = jnp.where(places.own_BA, dlogits_BA, 0.0)

  def terms(logits_BA, start, size):
    del logits_BA
    return jnp.float32(0), _cut(dlogits_BA, start, size)

  return pull_shard(static, rows, shared, features, places, terms)[1:]


_logits.defvjp(_logits_forward, _logits_backward)


def _shard_loss(static, loss, rows, shared, features, weights, batch):
  documents = chunks.all_documents((features, *batch), static.axes)
  features, shortlist, mask_B = documents
  places = static.places(shortlist.ids_BA, rows)
  places = learnt_places(static, rows, shared, places, mask_B)
  gold_BA = shortlist.gold_BA & places.own_BA
  weights_BA = entry_weights(places.gather(weights), gold_BA, shortlist)
  scale_B = document_scale(loss, shortlist.ids_BA, static.n_labels)
  targets = Targets(gold_BA, weights_BA, scale_B)
  head = rows, shared, features
  return loss_of_places(static, loss, *head, places, targets)


def learnt_places(
  static: Structure,
  rows: nnx.State,
  shared: nnx.State,
  places: Places,
  mask_B: jax.Array,
) -> Places:
  """Returns the places without labels and documents that the loss excludes."""
  own_BA = places.own_BA & mask_B[:, None]
  learns_L = HeadParts(static.graphdef, rows, shared).learns(rows, shared)
  if learns_L is not None:
    own_BA &= learns_L[places.row_BA]
  return Places(places.row_BA, own_BA)


class Targets(NamedTuple):
  """Holds the arguments of slot_loss that do not depend on the logits."""

  gold_BA: jax.Array
  weights_BA: jax.Array | None
  scale_B: jax.Array | None


def loss_of_places(
  static: Structure,
  loss: ChunkLoss,
  rows: nnx.State,
  shared: nnx.State,
  features: Any,
  places: Places,
  targets: Targets,
) -> tuple[jax.Array, Any, Any, Any]:
  """Computes the loss of all devices, and one shard's gradients."""
  gold_BA, weights_BA, scale_B = targets
  if loss.normalised:
    logits_BA = own_logits(static, rows, shared, features, places)
    sums = Normaliser.start(len(gold_BA)).plus(
      jnp.where(places.own_BA, logits_BA, -jnp.inf),
      jnp.where(gold_BA, 1.0 if weights_BA is None else weights_BA, 0.0),
    )
    loss = sums.normalised(loss, static.axes)

  def terms(logits_BA, start, size):
    slots = places.own_BA, gold_BA, weights_BA
    own_BA, *gold = _cut(slots, start, size)
    logits_BA = jnp.where(own_BA, logits_BA, -jnp.inf)
    return slot_loss(loss, logits_BA, *gold, scale_B)

  return pull_shard(static, rows, shared, features, places, terms)
