"""Copies label rows of another run into this run's sharding and storage."""

from collections.abc import Mapping
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np

from xjax.core.mesh import put_labels
from xjax.networks.heads.chunks import on_labels
from xjax.networks.rows.storage import (
  Storage,
  decode_weights,
  encode_weights,
  random_bits,
)
from xjax.train.checkpoint import read_some

# The weights of label rows, and the exponents that scale 1-byte weights. A
# 1-byte weight has no meaning without its exponent.
KERNEL, EXPONENT = 'head/kernel', 'head/exponent'


def has_label_rows(param: jax.Array | jax.ShapeDtypeStruct) -> bool:
  """Returns whether a parameter is sharded like label rows."""
  return on_labels(param.sharding.spec)


def storage_of(params: Mapping[str, Any]) -> Storage | None:
  """Returns the storage of label rows' weights; None if there is no kernel."""
  if KERNEL not in params:
    return None
  # COMPENSATED and BFLOAT16 have the same dtype. For both storages, the member
  # that comes first in Storage is returned.
  return next(x for x in Storage if x.dtype == params[KERNEL].dtype)


def take_rows(
  ours: Mapping[str, jax.Array],
  theirs: Mapping[str, jax.ShapeDtypeStruct],
  source: np.ndarray,
  checkpoint: tuple[Any, int],
) -> dict[str, jax.Array]:
  """Returns this run's label rows, with matching rows of another run.

  `ours`, with the exponent of the kernel if there is one, must not be used
  afterwards; `theirs` are shapes of the same width. `source` has the other
  run's row for each row, or -1. `checkpoint` is the folder of checkpoints and
  the step.
  """
  length = {len(param) for param in ours.values()}.pop()
  source = np.pad(source, (0, length - len(source)), constant_values=-1)
  of_label = _of_label(next(iter(ours.values())))
  names = {*ours, EXPONENT} if KERNEL in ours else {*ours}
  wanted = {name: theirs[name] for name in sorted(names & theirs.keys())}
  # Rows that keep their places are read by the devices that hold them. Any
  # other order needs all rows in the memory of every host.
  if _in_place(source) and {len(x) for x in wanted.values()} == {length}:
    wanted = {
      name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=of_label)
      for name, x in wanted.items()
    }
  saved = read_some(*checkpoint, wanted)
  rows = {name: _place_rows(x, source, of_label) for name, x in saved.items()}
  rows = _convert_storage(rows, ours)
  mask_L = put_labels(source >= 0, of_label)
  return {name: _merge_rows(x, mask_L, rows[name]) for name, x in ours.items()}


def _of_label(param: jax.Array) -> NamedSharding:
  return NamedSharding(param.sharding.mesh, P(param.sharding.spec[0]))


def _in_place(source: np.ndarray) -> bool:
  """Returns whether only the first rows are copied, to the same positions."""
  count = int((source >= 0).sum())
  return np.array_equal(source[:count], np.arange(count))


def _place_rows(
  rows: np.ndarray | jax.Array, source: np.ndarray, sharding: NamedSharding
) -> jax.Array:
  """Returns the other run's rows in this run's order; -1 gets any row."""
  if isinstance(rows, jax.Array):
    return rows

  def part(index: tuple[slice, ...]) -> np.ndarray:
    return rows[np.maximum(source[index[0]], 0)]

  shape = (len(source), *rows.shape[1:])
  return jax.make_array_from_callback(shape, sharding, part)


def _convert_storage(
  rows: dict[str, jax.Array], ours: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
  storage = storage_of(ours)
  if storage_of(rows) is storage:
    return rows
  saved = {name: x for name, x in rows.items() if name in (KERNEL, EXPONENT)}
  convert = jax.jit(
    functools.partial(_convert_weights, storage),
    out_shardings=_of_label(rows[KERNEL]),
  )
  return rows | convert(saved)


def _convert_weights(
  storage: Storage, rows: dict[str, jax.Array]
) -> dict[str, jax.Array]:
  """Converts weights to a storage; they are rounded like initial weights."""
  arrays = {name.removeprefix('head/'): x for name, x in rows.items()}
  values_LD = decode_weights(arrays, jnp.float32)
  # Bits that depend only on the label and the column: each device rounds its
  # own rows, with the same result on every mesh.
  labels, dim = values_LD.shape
  ids_L = jnp.arange(labels, dtype=jnp.int32)
  arrays = encode_weights(
    storage, values_LD, random_bits(jnp.uint32(0), ids_L, dim)
  )
  return {f'head/{name}': x for name, x in arrays.items()}


def _merge_rows(
  param: jax.Array, mask_L: jax.Array, rows: jax.Array
) -> jax.Array:
  def merge(param: jax.Array, mask_L: jax.Array, rows: jax.Array) -> jax.Array:
    mask = mask_L.reshape(-1, *[1] * (param.ndim - 1))
    return jnp.where(mask, rows, param)

  # The rows may be most of the memory, so the result takes the place of param.
  compiled = jax.jit(merge, donate_argnums=0, out_shardings=param.sharding)
  return compiled(param, mask_L, rows)
