"""The device mesh: its two axes, and which array axis lies on which."""

import dataclasses
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import numpy as np

from xjax.core.config_part import Bound, ConfigPart, field
from xjax.core.errors import ConfigError
from xjax.core.share import Share, shares

DATA = 'data'
LABEL = 'label'

# Every parameter's label axis is padded to this multiple, whatever the mesh,
# so that a checkpoint restores onto any mesh whose devices divide it.
LABEL_MULTIPLE = 1536  # 512 times 3

BATCH = P(DATA)  # the spec of arrays with documents first


_AXIS = Bound(lambda n: n == -1 or n >= 1, 'at least 1, or -1: the rest')


@dataclasses.dataclass
class MeshConfig(ConfigPart):
  """Devices along each axis; one of them may be -1: all that are left.

  Both axes divide the label rows of OneVsAll, so that their product must divide
  LABEL_MULTIPLE: of powers of 2, 512 at most.
  """

  data: int = field(
    -1, 'Devices that share the documents; -1: all that are left.', _AXIS
  )
  label: int = field(
    1, 'Devices that share the labels; -1: all that are left.', _AXIS
  )


def mesh_shape(config: MeshConfig, count: int) -> tuple[int, int]:
  """Sizes of the data and the label axis of so many devices.

  Raises:
    ConfigError: the shape does not fit the devices.
  """
  shape = [config.data, config.label]
  if shape.count(-1) == 1:
    rest = max(1, -shape[0] * shape[1])
    shape[shape.index(-1)] = count // rest
  if min(shape) < 1 or shape[0] * shape[1] != count:
    raise ConfigError(
      f'mesh.data={config.data} x mesh.label={config.label} does not make '
      f'{count} devices: choose sizes whose product is {count} (-1: the rest)'
    )
  if LABEL_MULTIPLE % shape[1]:
    raise ConfigError(f'mesh.label={shape[1]} must divide {LABEL_MULTIPLE}')
  return shape[0], shape[1]


def make_mesh(config: MeshConfig, count: int = 0) -> jax.sharding.Mesh:
  """A (data, label) mesh of the first so many devices; 0: of all.

  Axes are Auto: scans with carries, embedding gathers and top-k over sharded
  labels raise under Explicit axes. Both axes may span processes; those that
  lie on the same rows of a batch read the same documents (share.shares).

  Raises:
    ConfigError: the shape does not fit the devices, or the processes.
  """
  mesh = jax.make_mesh(
    mesh_shape(config, count or jax.device_count()),
    (DATA, LABEL),
    axis_types=(AxisType.Auto,) * 2,
  )
  shares(mesh.devices)
  return mesh


def abstract_mesh(config: MeshConfig, count: int) -> jax.sharding.AbstractMesh:
  """The mesh of so many devices, none of which need be here.

  Raises:
    ConfigError: as mesh_shape.
  """
  shape = mesh_shape(config, count)
  axis_types = (AxisType.Auto,) * 2
  return jax.sharding.AbstractMesh(shape, (DATA, LABEL), axis_types=axis_types)


def share_of(mesh: jax.sharding.Mesh) -> Share:
  """The rows of a batch that this process reads: those of its devices."""
  return shares(mesh.devices)[jax.process_index()]


def padded_labels(n_labels: int) -> int:
  """Rows of a label-sharded parameter: n_labels rounded up."""
  return -(-n_labels // LABEL_MULTIPLE) * LABEL_MULTIPLE


def put_labels(rows: np.ndarray, sharding: NamedSharding) -> jax.Array:
  """Puts rows of labels on devices, padded to padded_labels with zeros.

  Args:
    rows: [L, ...], the same on every process; each puts the parts that its
      devices hold.
    sharding: of the padded rows.
  """
  shape = (padded_labels(len(rows)), *rows.shape[1:])

  def part(index: tuple[slice, ...]) -> np.ndarray:
    start, stop, _ = index[0].indices(shape[0])
    own = rows[index]
    filled = [(0, stop - start - len(own)), *[(0, 0)] * (rows.ndim - 1)]
    return np.pad(own, filled)

  return jax.make_array_from_callback(shape, sharding, part)


def documents_second(x_TB: jax.Array) -> jax.Array:
  """Constrains the second axis, the documents, to the data axis."""
  return jax.lax.with_sharding_constraint(x_TB, P(None, DATA))


def put_batch(batch: Any, mesh: jax.sharding.Mesh) -> Any:
  """Puts this process's rows on the mesh, as part of the global batch.

  Args:
    batch: a Batch, or any tree of NumPy arrays with documents first: the rows
      that share_of(mesh) tells. Processes with the same have the same values.
    mesh: the devices.
  """
  sharding = NamedSharding(mesh, BATCH)
  return jax.tree.map(
    lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)),
    batch,
  )


def own_rows(array: jax.Array, axis: int = 0) -> np.ndarray:
  """This process's rows of what was computed of a batch: put_batch undone.

  Args:
    array: whose axis of documents lies on the data axis.
    axis: that one; no other is cut.
  """
  parts = {
    shard.index[axis].start or 0: shard.data
    for shard in array.addressable_shards
  }
  # Those of the label axis have the same rows: one of them is fetched.
  rows = jax.device_get([parts[start] for start in sorted(parts)])
  return np.concatenate(rows, axis)
