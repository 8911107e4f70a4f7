"""Labels that a head scores though it was trained without them."""

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float32

from xjax.core.mesh import LABEL, padded_labels
from xjax.heads.contract import Head, split_head

DESCRIPTORS = 'descriptors'  # the rows by which heads know labels


def add_labels(head: Head, descriptors_CE: Float32[Array, 'C E']) -> Head:
  """The head with C labels more, after those it has.

  A new label has its descriptor's embedding, and 0 in all other rows: there it
  is as a label without training documents.

  Args:
    head: with rows `descriptors`; on the context mesh.
    descriptors_CE: as the head's own.

  Returns:
    A head of its own; its rows are sharded as the other's, all that is shared
    is the other's.
  """
  graphdef, rows, shared = split_head(head)
  n_labels = head.n_labels + len(descriptors_CE)

  def grown(path: tuple, row: jax.Array) -> jax.Array:
    new = (
      jnp.asarray(descriptors_CE, row.dtype)
      if path[0] == DESCRIPTORS
      else jnp.zeros((len(descriptors_CE), *row.shape[1:]), row.dtype)
    )
    padding = padded_labels(n_labels) - n_labels
    padding = jnp.zeros((padding, *row.shape[1:]), row.dtype)
    row = jnp.concatenate([row[: head.n_labels], new, padding])
    return jax.lax.with_sharding_constraint(row, P(LABEL))

  rows = jax.jit(
    lambda rows: nnx.map_state(
      lambda path, row: row.replace(grown(path, row[...])), rows
    )
  )(rows)
  grown_head = nnx.merge(graphdef, rows, shared)
  grown_head.n_labels = n_labels
  return grown_head
