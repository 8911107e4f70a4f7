"""Gives the parameters of a model by path, and replaces some of their values.

Checkpoints and warm starts use the same paths.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WORD_VECTORS = 'embedding/table'
PIECE_VECTORS = 'encoder/embeddings/word'
DESCRIPTORS = 'head/descriptors'
# All parameters of a graph of labels have paths that start with GRAPH.
GRAPH = 'head/graph'
CONCEPTS = f'{GRAPH}/concepts'
PARENTS, CHILDREN = f'{GRAPH}/parents', f'{GRAPH}/children'
PLACES = 'head/place'
VIEW_NAMES = 'views/labels/pieces'
VIEW_VECTORS = 'views/labels/vector'
VIEW_EDGES = 'views/labels/edge'


def by_path(tree: Any) -> dict[str, Any]:
  """Returns the leaves of a tree by path, such as 'encoder/forward/kernel'."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {_name(path): leaf for path, leaf in leaves}


def from_paths(like: Any, leaves: dict[str, Any]) -> Any:
  """Returns a tree with other leaves; the inverse of by_path.

  Args:
    like: tree with the structure of the result.
    leaves: leaves by path.

  Raises:
    KeyError: `leaves` lacks a path of the tree.
  """
  paths, structure = jax.tree_util.tree_flatten_with_path(like)
  return structure.unflatten([leaves[_name(path)] for path, _ in paths])


def _name(path: tuple[Any, ...]) -> str:
  # nnx.Variable adds 'value' as a last component.
  name = jax.tree_util.keystr(path, simple=True, separator='/')
  return name.removesuffix('/value')


def replace_values(
  param: jax.Array, values: np.ndarray, mask: np.ndarray | bool = True
) -> jax.Array:
  """Returns a parameter after some or all of its values are replaced.

  The sharding of the parameter stays the same.

  Args:
    param: floats or integers, of any shape.
    values: array of the shape of param, the same on every process. It is
      converted to the dtype of param.
    mask: bool, broadcast to the shape of param; True where a value of param is
      replaced.
  """
  # Each process fills only the parts on its own devices.
  whole_mask, new = (
    jax.make_array_from_callback(param.shape, param.sharding, whole.__getitem__)
    for whole in (
      np.broadcast_to(mask, param.shape),
      values.astype(param.dtype, copy=False),
    )
  )
  replace = jax.jit(jnp.where, out_shardings=param.sharding)
  return replace(whole_mask, new, param)
