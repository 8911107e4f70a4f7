"""Label rows of another run, where this one's lie and stored as they are."""

from collections.abc import Mapping
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np

from xjax.core.mesh import put_labels
from xjax.score.heads.contract import on_labels
from xjax.score.heads.rounding import random_bits
from xjax.score.heads.storage import Storage, decode_weights, encode_weights
from xjax.train.checkpoint import read_some

# Weights of label rows, and what those of one byte are scaled by: of both, only
# together is it known what they say.
KERNEL, EXPONENT = 'head/kernel', 'head/exponent'


def has_label_rows(param: jax.Array | jax.ShapeDtypeStruct) -> bool:
  """Whether a parameter has a row per label, as its sharding tells."""
  return on_labels(param.sharding.spec)


def storage_of(params: Mapping[str, Any]) -> Storage | None:
  """What the weights of label rows are stored as; None: there is no kernel."""
  if KERNEL not in params:
    return None
  # Of Storage.COMPENSATED, weights alone are as of BFLOAT16.
  return next(x for x in Storage if x.dtype == params[KERNEL].dtype)


def take_rows(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
  source: np.ndarray,
  checkpoint: tuple[Any, int],
) -> dict[str, jax.Array]:
  """This run's label rows, used up, with those of another run in them.

  Args:
    ours: rows by path, with the exponent of the kernel where it has one.
    theirs: as of saved_params, of as wide rows.
    source: int64 [labels], row there of each row here; -1: none.
    checkpoint: the other run's folder and step.
  """
  length = {len(param) for param in ours.values()}.pop()
  source = np.pad(source, (0, length - len(source)), constant_values=-1)
  of_label = _of_label(next(iter(ours.values())))
  names = {*ours, EXPONENT} if KERNEL in ours else {*ours}
  wanted = {name: theirs[name] for name in (names & theirs.keys())}
  if _in_place(source) and {len(x) for x in wanted.values()} == {length}:
    wanted = {
      name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=of_label)
      for name, x in wanted.items()
    }
  found = read_some(*checkpoint, wanted)
  rows = {name: _placed(x, source, of_label) for name, x in found.items()}
  rows = _in_storage(rows, ours)
  found_L = put_labels(source >= 0, of_label)
  return {name: _with_rows(x, found_L, rows[name]) for name, x in ours.items()}


def _of_label(param: jax.Array) -> NamedSharding:
  """The sharding of arrays that lie as label rows do, of any rank."""
  return NamedSharding(param.sharding.mesh, P(param.sharding.spec[0]))


def _in_place(source: np.ndarray) -> bool:
  """Whether the first labels have rows there, each in its place, alone."""
  count = int((source >= 0).sum())
  return np.array_equal(source[:count], np.arange(count))


def _placed(
  rows: np.ndarray | jax.Array, source: np.ndarray, sharding: NamedSharding
) -> jax.Array:
  """Rows by the labels of this run; any row where there is none."""
  if isinstance(rows, jax.Array):
    return rows

  def part(index: tuple[slice, ...]) -> np.ndarray:
    return rows[np.maximum(source[index[0]], 0)]

  shape = (len(source), *rows.shape[1:])
  return jax.make_array_from_callback(shape, sharding, part)


def _in_storage(
  rows: dict[str, jax.Array], ours: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
  """The rows, with weights that are stored as ours."""
  storage = storage_of(ours)
  if storage_of(rows) is storage:
    return rows
  given = {name: x for name, x in rows.items() if name in (KERNEL, EXPONENT)}
  convert = jax.jit(
    functools.partial(_converted, storage),
    out_shardings=_of_label(rows[KERNEL]),
  )
  return rows | convert(given)


def _converted(
  storage: Storage, rows: dict[str, jax.Array]
) -> dict[str, jax.Array]:
  """Weights as stored, rounded as first ones are."""
  arrays = {name.removeprefix('head/'): x for name, x in rows.items()}
  values_LD = decode_weights(arrays, jnp.float32)
  labels, dim = values_LD.shape
  ids_L = jnp.arange(labels, dtype=jnp.int32)
  arrays = encode_weights(
    storage, values_LD, random_bits(jnp.uint32(0), ids_L, dim)
  )
  return {f'head/{name}': x for name, x in arrays.items()}


def _with_rows(
  param: jax.Array, found_L: jax.Array, rows: jax.Array
) -> jax.Array:
  def merged(
    param: jax.Array, found_L: jax.Array, rows: jax.Array
  ) -> jax.Array:
    found = found_L.reshape(-1, *[1] * (param.ndim - 1))
    return jnp.where(found, rows, param)

  merge = jax.jit(merged, donate_argnums=0, out_shardings=param.sharding)
  return merge(param, found_L, rows)
