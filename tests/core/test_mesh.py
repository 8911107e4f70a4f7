"""Mesh shapes, padding of labels, batches on the mesh, rows of processes."""

import dataclasses
import types

import jax
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.mesh import (
  DATA,
  LABEL,
  make_mesh,
  own_rows,
  padded_labels,
  platform,
  put_batch,
  put_labels,
  share_of,
)
from xjax.core.mesh_config import (
  LABEL_MULTIPLE,
  WHOLE,
  MeshConfig,
  ProcessShare,
  own_share,
  shares,
)
from xjax.core.types import PAD
from xjax.networks.batch import TokenBatch
from xjax.train.neural_train import Dtype


@pytest.mark.parametrize(
  ('data', 'label', 'shape'),
  [(-1, 1, (8, 1)), (2, -1, (2, 4)), (1, 8, (1, 8)), (4, 2, (4, 2))],
)
def test_shapes(data, label, shape):
  mesh = make_mesh(MeshConfig(data, label))
  assert (mesh.shape[DATA], mesh.shape[LABEL]) == shape
  assert LABEL_MULTIPLE % shape[1] == 0
  assert share_of(mesh) == ProcessShare(tuple(range(shape[0])), shape[0])


@pytest.mark.parametrize(
  ('data', 'label'), [(3, 1), (-1, -1), (2, 2), (-1, 16)]
)
def test_what_does_not_fit_the_devices_is_refused(data, label):
  with pytest.raises(ConfigError, match=f'mesh.data={data} x mesh.label'):
    make_mesh(MeshConfig(data, label))


def devices(*rows):
  """Devices [data, label] by the process that each belongs to."""
  device = np.frompyfunc(lambda p: types.SimpleNamespace(process_index=p), 1, 1)
  return device(np.array(rows))


class Chip(types.SimpleNamespace):
  """Stands in for a device of a cluster; a mesh needs it to be hashable."""

  __hash__ = object.__hash__


def v5e(slices):
  """Returns slices of 4 x 4 chips, of which each host has 2 x 2."""
  return [
    Chip(
      id=100 * s + 4 * y + x,
      platform='tpu',
      device_kind='TPU v5 lite',
      coords=(x, y, 0),
      core_on_chip=0,
      slice_index=s,
      process_index=4 * s + 2 * (y // 2) + x // 2,
    )
    for s, y, x in np.ndindex(slices, 4, 4)
  ]


def gpus(nodes, processes):
  """Returns nodes of 8 GPUs, by process."""
  return [
    Chip(
      id=8 * n + g,
      platform='gpu',
      device_kind='NVIDIA H100 80GB HBM3',
      slice_index=n,
      process_index=(8 * n + g) * processes // (8 * nodes),
    )
    for n, g in np.ndindex(nodes, 8)
  ]


@pytest.mark.parametrize(
  ('devices', 'shapes'),
  [
    (v5e(2), [(8, 4), (16, 2), (32, 1), (4, 8), (2, 16)]),
    (v5e(3)[::-1], [(12, 4), (3, 16)]),
    (gpus(2, 16), [(16, 1), (4, 4), (2, 8)]),
    (gpus(2, 2)[::-1], [(16, 1), (8, 2), (2, 8)]),
  ],
)
def test_documents_are_divided_among_slices_and_labels_within(devices, shapes):
  n = len({device.slice_index for device in devices})
  for data, label in shapes:
    mesh = make_mesh(MeshConfig(data, label), devices)
    assert mesh.devices.shape == (data, label)
    assert set(mesh.devices.flat) == set(devices)
    for s, part in enumerate(np.split(mesh.devices, n)):
      assert {device.slice_index for device in part.flat} == {s}
    # A process has all its rows in one slice, as many as every other process.
    for share in shares(mesh.devices).values():
      assert len({part * n // data for part in share.parts}) == 1


def test_slices_that_do_not_fit_are_refused_and_may_be_made_one():
  for config, devices, count in [
    (MeshConfig(1, 32), v5e(2), '2 slices or nodes, of 16 devices'),
    (MeshConfig(-1), gpus(2, 16)[:12], '2 slices or nodes, of 4 or 8 devices'),
    (MeshConfig(4, 2, slices=3), jax.devices(), 'of 2 or 3 devices'),
  ]:
    with pytest.raises(ConfigError, match=f'mesh.data=.*{count}.*slices=1'):
      make_mesh(config, devices)
  for label, devices in (32, v5e(2)), (4, gpus(2, 16)[:12]):
    mesh = make_mesh(MeshConfig(-1, label, slices=1), devices)
    assert mesh.devices.ravel().tolist() == devices


def test_padded_labels():
  m = LABEL_MULTIPLE
  assert [padded_labels(n) for n in (1, m, m + 1)] == [m, m, 2 * m]


def test_a_batch_is_split_over_documents():
  batch = TokenBatch(
    tokens_BT=np.arange(16, dtype=np.int32).reshape(8, 2),
    lengths_B=np.full(8, 2, np.int32),
    positives_BP=np.full((8, 1), PAD, np.int32),
    mask_B=np.ones(8, bool),
    doc_B=np.arange(8, dtype=np.int32),
  )
  put = put_batch(batch, make_mesh(MeshConfig(4, 2)))
  assert put.features_BTD is None
  jax.tree.map(np.testing.assert_array_equal, put, batch)
  shards = {shard.data.shape for shard in put.tokens_BT.addressable_shards}
  assert shards == {(2, 2)}
  np.testing.assert_array_equal(own_rows(put.tokens_BT), batch.tokens_BT)


@pytest.mark.parametrize('shape', [(5,), (2000, 3)])
def test_rows_of_labels_are_padded_and_divided(shape):
  mesh = make_mesh(MeshConfig(2, 4))
  rows = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  sharding = NamedSharding(mesh, P((LABEL, DATA)))
  put = put_labels(rows, sharding)
  length = padded_labels(len(rows))
  assert put.sharding == sharding and put.dtype == np.float32
  shards = {shard.data.shape for shard in put.addressable_shards}
  assert shards == {(length // 8, *shape[1:])}
  np.testing.assert_array_equal(put[: len(rows)], rows)
  np.testing.assert_array_equal(put[len(rows) :], 0)


@pytest.mark.parametrize(
  ('rows', 'expected'),
  [
    # Rows of its own for each process.
    ([[0], [0], [1], [1]], [((0, 1), 4), ((2, 3), 4)]),
    # The label axis goes on in another process.
    ([[0, 0, 1, 1]], [((0,), 1), ((0,), 1)]),
    # Both, in whatever order.
    ([[2, 3], [1, 0]], [((1,), 2), ((1,), 2), ((0,), 2), ((0,), 2)]),
    # Rows that lie apart.
    ([[0], [1], [0], [1]], [((0, 2), 4), ((1, 3), 4)]),
  ],
)
def test_processes_read_the_rows_of_their_devices(rows, expected):
  wanted = {i: ProcessShare(*share) for i, share in enumerate(expected)}
  assert shares(devices(*rows)) == wanted


@pytest.mark.parametrize(
  'rows',
  [
    # Two processes have a row in common, and one each of their own.
    [[0, 0, 0], [0, 1, 1], [1, 1, 2], [2, 2, 2]],
    # One has all the rows, the other some.
    [[0, 0], [0, 1]],
    # None in common, but more for one.
    [[0], [0], [1]],
  ],
)
def test_rows_that_are_not_shared_alike_are_refused(rows):
  data, label = np.shape(rows)
  said = f'mesh.data={data} x mesh.label={label}: all processes must'
  with pytest.raises(ConfigError, match=said):
    shares(devices(*rows))


def test_the_rows_of_a_share():
  assert WHOLE.rows(3).tolist() == [0, 1, 2]
  assert ProcessShare((1,), 2).rows(6).tolist() == [3, 4, 5]
  assert ProcessShare((0, 2), 3).rows(6).tolist() == [0, 1, 4, 5]
  assert (WHOLE.readers, ProcessShare((0, 2), 4).readers) == (1, 2)
  assert own_share() == WHOLE
  says = 'a batch of [04] documents .* into 3 .* multiple of 3'
  for size in (0, 4):
    with pytest.raises(ConfigError, match=says):
      ProcessShare((0,), 3).rows(size)


@dataclasses.dataclass(frozen=True)
class FakeDevice:
  platform: str
  device_kind: str
  compute_capability: str | None


@pytest.mark.parametrize(
  ('name', 'capability', 'expected'),
  [
    ('cpu', None, 'float32'),
    ('tpu', None, 'bfloat16'),
    ('gpu', '7.5', 'float32'),
    ('gpu', '8.0', 'bfloat16'),
    ('gpu', '10.0', 'bfloat16'),
    ('gpu', 'gfx942', 'bfloat16'),
  ],
)
def test_products_are_in_bfloat16_where_it_is_fast(name, capability, expected):
  device = FakeDevice(name, name, capability)
  mesh = jax.sharding.Mesh(np.array([[device]]), (DATA, LABEL))
  assert Dtype.AUTO.on(mesh) == expected
  assert Dtype.FLOAT32.on(mesh) == 'float32'
  assert Dtype.BFLOAT16.on(mesh) == 'bfloat16'
  with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
    assert platform() == name
