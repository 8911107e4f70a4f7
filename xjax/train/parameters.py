"""Gives the parameters of a model by path, replaces values, selects groups."""

from collections.abc import Callable, Collection, Iterable, Mapping
import difflib
import fnmatch
import re
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.errors import ConfigError
from xjax.train.neural_train import NeuralTrain, parse_rate

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
# Parameters of a pretrained encoder that have all layers along the first axis.
STACKS = 'encoder/layers/'
_LAYER = re.compile(rf'{STACKS}(\d+)/')
_EMBEDDINGS = 'encoder/embeddings/'


def by_path(tree: Any) -> dict[str, Any]:
  """Returns the leaves of a tree by path, such as 'encoder/forward/kernel'."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {_name(path): leaf for path, leaf in leaves}


def from_paths(like: Any, leaves: dict[str, Any]) -> Any:
  """Returns a tree like `like` with leaves by path; the inverse of by_path."""
  paths, structure = jax.tree_util.tree_flatten_with_path(like)
  return structure.unflatten([leaves[_name(path)] for path, _ in paths])


def filled(module: Any, params: Mapping[str, Any], prefix: str) -> Any:
  """Returns an abstract module with the parameters at paths of a prefix."""
  graphdef, like = nnx.split(module)
  leaves = {path: np.asarray(params[prefix + path]) for path in by_path(like)}
  return nnx.merge(graphdef, from_paths(like, leaves))


def _name(path: tuple[Any, ...]) -> str:
  # nnx.Variable adds 'value' as a last component.
  name = jax.tree_util.keystr(path, simple=True, separator='/')
  return name.removesuffix('/value')


def replace_values(
  param: jax.Array, values: np.ndarray, mask: np.ndarray | bool = True
) -> jax.Array:
  """Replaces values where `mask` is True; they are equal on all processes."""
  # Each process fills only the parts on its own devices, so that no device
  # holds the whole of a sharded parameter.
  whole_mask, new = (
    jax.make_array_from_callback(param.shape, param.sharding, whole.__getitem__)
    for whole in (
      np.broadcast_to(mask, param.shape),
      values.astype(param.dtype, copy=False),
    )
  )
  replace = jax.jit(jnp.where, out_shardings=param.sharding)
  return replace(whole_mask, new, param)


def in_group(path: str, globs: Iterable[str]) -> bool:
  """Returns whether a path matches any glob; a * also matches slashes."""
  return any(fnmatch.fnmatchcase(path, glob) for glob in globs)


def parts_of(params: Mapping[str, Any]) -> list[str]:
  """Returns the paths that globs are for, from parameters by path.

  Each layer of a stack has a path: layer 3 of 'encoder/layers/ffn/norm/bias' is
  'encoder/layers/3/ffn/norm/bias'. Other parameters have only their own path.
  """
  parts = []
  for path, param in params.items():
    stack, rest = path[: len(STACKS)], path[len(STACKS) :]
    if stack == STACKS:
      parts += [f'{STACKS}{layer}/{rest}' for layer in range(param.shape[0])]
    else:
      parts.append(path)
  return parts


def by_part(
  path: str, param: Any, value: Callable[[str], float]
) -> np.ndarray | float:
  """Returns the values of a parameter's parts, which broadcast to it."""
  values = [value(part) for part in parts_of({path: param})]
  if not path.startswith(STACKS):
    return values[0]
  return np.array(values).reshape(-1, *[1] * (param.ndim - 1))


def rate_factors(config: NeuralTrain, paths: Iterable[str]) -> dict[str, float]:
  """Returns the factor of each part's learning rate, by path (see parts_of).

  Discriminative fine-tuning (Howard & Ruder 2018, Section 3.2): the highest
  trained layer has the full rate. The rate of every other layer is
  layer_decay times the rate of the layer above it. The embeddings count as the
  layer below the lowest. The factor from `rates` multiplies this one. Frozen
  parts have the factor 0.
  """
  factors = dict.fromkeys(paths, 0.0)
  trained = [path for path in factors if not in_group(path, config.freeze)]
  rates = [parse_rate(entry) for entry in config.rates]
  top = max((_height(path, 0) for path in trained), default=0)

  def factor(path: str) -> float:
    matches = (rate for glob, rate in rates if in_group(path, [glob]))
    return next(matches, 1.0) * config.layer_decay ** (top - _height(path, top))

  return factors | {path: factor(path) for path in trained}


def check_groups(
  config: NeuralTrain, trained: Collection[str], frozen: Collection[str]
) -> None:
  """Checks that the globs of `rates` and `freeze` match parts of parameters.

  Those of `rates` must match trained ones. `frozen` are the other paths that
  config.freeze may name, besides those of `trained` that it names.
  """
  known = [*trained, *frozen]
  trained = [path for path in trained if not in_group(path, config.freeze)]
  entries = [('freeze', glob, glob, known) for glob in config.freeze]
  for entry in config.rates:
    entries.append(('rates', entry, parse_rate(entry)[0], trained))
  for field, entry, glob, paths in entries:
    if not any(in_group(path, [glob]) for path in paths):
      similar = difflib.get_close_matches(glob, paths, n=3, cutoff=0.0)
      raise ConfigError(
        f'config.train.{field}: {entry!r} matches no parameter that the '
        f'optimizer trains; similar paths: {", ".join(similar) or "none"}'
      )
  if config.layer_decay != 1 and not any(map(_LAYER.match, trained)):
    raise ConfigError(
      f'config.train.layer_decay={config.layer_decay}: no layers of a '
      'pretrained encoder are trained; set config.train.layer_decay=1'
    )


def _height(path: str, other: int) -> int:
  """Returns 0 for embeddings, 1 for the lowest layer, ...; else `other`."""
  if path.startswith(_EMBEDDINGS):
    return 0
  layer = _LAYER.match(path)
  return 1 + int(layer[1]) if layer else other
