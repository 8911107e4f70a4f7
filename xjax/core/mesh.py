"""Defines the device mesh, and divides arrays over its two axes."""

import collections
from collections.abc import Sequence
import dataclasses
import itertools
import re
from typing import Any

import jax
from jax.experimental import mesh_utils
from jax.sharding import (
  AbstractMesh,
  AxisType,
  Mesh,
  NamedSharding,
  PartitionSpec as P,
)
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.mesh_config import (
  LABEL_MULTIPLE,
  MeshConfig,
  ProcessShare,
  mesh_shape,
  shares,
)
from xjax.core.processes.forks import check_jax_runs

DATA = 'data'
LABEL = 'label'

BATCH = P(DATA)  # the spec of arrays whose first axis is documents


def make_mesh(
  config: MeshConfig, devices: Sequence[jax.Device] | None = None
) -> jax.sharding.Mesh:
  """Returns a mesh of devices with a data axis and a label axis.

  The data axis goes through one slice (or node) after another; each part of
  the label axis lies in one slice. Both axes can span several processes.
  Processes that hold the same rows of a batch read the same documents
  (mesh_config.shares). Sizes that do not fit the devices, their slices or the
  processes raise a ConfigError.

  Args:
    config: the sizes of the axes.
    devices: the devices of the mesh, of this machine or of a topology; by
      default all devices of the run.
  """
  check_jax_runs()
  devices = jax.devices() if devices is None else devices
  data, label = mesh_shape(config, len(devices))
  slices = _slices(config, devices)
  _check_slices(data, slices)
  shape = data // len(slices), label
  mesh = jax.sharding.Mesh(
    np.concatenate([_arranged(part, shape) for part in slices]),
    (DATA, LABEL),
    # With Explicit axes, JAX raises errors for scans with carries, for
    # embedding gathers, and for top-k over sharded labels.
    axis_types=(AxisType.Auto,) * 2,
  )
  shares(mesh.devices)
  return mesh


def _slice_index(device: jax.Device) -> int:
  """Returns the slice of a TPU, or the node of a GPU; CPUs have neither."""
  return getattr(device, 'slice_index', 0)


def _slices(config: MeshConfig, devices: Sequence[Any]) -> list[list[Any]]:
  """Returns the devices of each slice, or node, in the order of the slices."""
  if n := config.slices:
    ends = [len(devices) * i // n for i in range(n + 1)]
    return [list(devices[i:j]) for i, j in itertools.pairwise(ends)]
  slices = collections.defaultdict(list)
  for device in devices:
    slices[_slice_index(device)].append(device)
  return [slices[index] for index in sorted(slices)]


def _check_slices(data: int, slices: Sequence[Sequence[Any]]) -> None:
  sizes = sorted({len(part) for part in slices})
  if data % len(slices) or len(sizes) > 1:
    raise ConfigError(
      f'mesh.data={data}: the devices are in {len(slices)} slices or nodes, of '
      f'{" or ".join(map(str, sizes))} devices, among which documents are '
      f'divided. Choose a mesh.data that is a multiple of {len(slices)}, and '
      'slices of one size; or choose mesh.slices=1, which treats all devices '
      'as one slice'
    )


def _arranged(devices: list[jax.Device], shape: tuple[int, int]) -> np.ndarray:
  """Arranges the devices of a slice so that neighbours are linked closely."""
  if len(set(map(_slice_index, devices))) > 1:  # mesh.slices makes one of many
    return np.array(devices).reshape(shape)  # JAX arranges only one torus
  return mesh_utils.create_device_mesh(
    shape, devices, allow_split_physical_axes=True
  )


def abstract_mesh(
  config: MeshConfig, count: int, slices: int = 1
) -> jax.sharding.AbstractMesh:
  """Returns a mesh of `count` absent devices, for planning on any machine.

  `slices` are those that a run would find. Errors are those of make_mesh.
  """
  shape = mesh_shape(config, count)
  config = dataclasses.replace(config, slices=config.slices or slices)
  _check_slices(shape[0], _slices(config, range(count)))
  axis_types = (AxisType.Auto,) * 2
  return jax.sharding.AbstractMesh(shape, (DATA, LABEL), axis_types=axis_types)


def platform() -> str:
  """Returns 'cpu', 'gpu' or 'tpu', for which a program is traced.

  These are the devices of the context mesh. They need not be of this machine:
  programs are also compiled for chips that are not here.
  """
  return _platform(jax.sharding.get_abstract_mesh())


def _platform(mesh: AbstractMesh) -> str:
  device = mesh.abstract_device
  return device.platform if device else jax.default_backend()


def has_bfloat16(mesh: Mesh | AbstractMesh) -> bool:
  """Returns whether devices of a mesh multiply bfloat16 faster than float32."""
  name = _platform(mesh.abstract_mesh)
  if name != 'gpu' or not isinstance(mesh, Mesh):
    return name in ('gpu', 'tpu')
  # NVIDIA's GPUs before Ampere compute bfloat16 as float32. AMD's GPUs, whose
  # versions are not numbers, have units for bfloat16.
  version = getattr(mesh.devices.flat[0], 'compute_capability', '')
  return not re.match(r'[1-7]\.', str(version))


def share_of(mesh: jax.sharding.Mesh) -> ProcessShare:
  """Returns the share of every batch that this process's devices hold."""
  return shares(mesh.devices)[jax.process_index()]


def padded_labels(n_labels: int) -> int:
  """Rounds n_labels up to a multiple of LABEL_MULTIPLE, as label rows are."""
  return -(-n_labels // LABEL_MULTIPLE) * LABEL_MULTIPLE


def put_labels(rows: np.ndarray, sharding: NamedSharding) -> jax.Array:
  """Pads label rows with zeros to padded_labels(L), and puts them on devices.

  The rows [L, ...] must be the same on every process. Each process transfers
  only the parts that its devices hold.
  """
  check_jax_runs()
  shape = (padded_labels(len(rows)), *rows.shape[1:])

  def part(index: tuple[slice, ...]) -> np.ndarray:
    start, stop, _ = index[0].indices(shape[0])
    real_rows = rows[index]
    padding = stop - start - len(real_rows)
    return np.pad(real_rows, [(0, padding), *[(0, 0)] * (rows.ndim - 1)])

  return jax.make_array_from_callback(shape, sharding, part)


def documents_first(x_BT: jax.Array) -> jax.Array:
  """Divides the first axis (documents) over the data axis of the mesh."""
  return jax.lax.with_sharding_constraint(x_BT, BATCH)


def documents_second(x_TB: jax.Array) -> jax.Array:
  """Divides the second axis (documents) over the data axis of the mesh."""
  return jax.lax.with_sharding_constraint(x_TB, P(None, DATA))


def put_batch(batch: Any, mesh: jax.sharding.Mesh) -> Any:
  """Puts the rows of this process on the mesh, as a part of the global batch.

  `batch` is a tree of NumPy arrays whose first axis is documents: the rows of
  share_of(mesh). Processes with the same share must have the same values.
  """
  check_jax_runs()
  sharding = NamedSharding(mesh, BATCH)
  return jax.tree.map(
    lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)),
    batch,
  )


def own_rows(array: jax.Array, axis: int = 0) -> np.ndarray:
  """Fetches this process's rows of a result, and so inverts put_batch.

  `axis` has the documents of the global batch, and must be divided over the
  data axis of the mesh. No other axis may be divided.
  """
  parts = {
    shard.index[axis].start or 0: shard.data
    for shard in array.addressable_shards
  }
  # Devices along the label axis hold the same rows, so one copy is fetched.
  rows = jax.device_get([parts[start] for start in sorted(parts)])
  return np.concatenate(rows, axis)
