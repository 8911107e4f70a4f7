"""Parameters of a model by their paths, and changing some of their values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WORD_VECTORS = 'embedding/table'
PIECE_VECTORS = 'encoder/embeddings/word'
DESCRIPTORS = 'head/descriptors'


def by_path(tree: Any) -> dict[str, Any]:
  """Leaves by their path, as 'encoder/forward/kernel'.

  The names of parameters in checkpoints and in warm starts.
  """
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {_name(path): leaf for path, leaf in leaves}


def from_paths(like: Any, leaves: dict[str, Any]) -> Any:
  """The tree whose by_path is leaves, structured like another.

  Raises:
    KeyError: a path is missing.
  """
  paths, structure = jax.tree_util.tree_flatten_with_path(like)
  return structure.unflatten([leaves[_name(path)] for path, _ in paths])


def _name(path: tuple[Any, ...]) -> str:
  # nnx.Variable adds a last component of its own.
  name = jax.tree_util.keystr(path, simple=True, separator='/')
  return name.removesuffix('/value')


def replace_values(
  param: jax.Array, found: np.ndarray, values: np.ndarray
) -> jax.Array:
  """A parameter with other values in some places, sharded as before.

  Args:
    param: float32, of any shape.
    found: bool, broadcast to that shape, where values count.
    values: of that shape, the same on every process.
  """
  # Each process fills the parts that it holds.
  mask, new = (
    jax.make_array_from_callback(param.shape, param.sharding, whole.__getitem__)
    for whole in (
      np.broadcast_to(found, param.shape),
      values.astype(param.dtype, copy=False),
    )
  )
  return jax.jit(jnp.where, out_shardings=param.sharding)(mask, new, param)
