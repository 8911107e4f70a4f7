"""The nearest documents on meshes are those of one host, bit by bit."""

import jax
import numpy as np
import pytest
from scipy import sparse

from xjax.core.mesh import DATA, LABEL
from xjax.core.types import PAD
from xjax.models.lookup.nearest import DeviceNeighbours
from xjax.models.lookup.neighbours import NearestDocuments

MESHES = [(1, 1), (8, 1), (2, 4), (1, 8)]


def mesh_of(data, label):
  devices = np.array(jax.devices()[: data * label]).reshape(data, label)
  return jax.sharding.Mesh(devices, (DATA, LABEL))


def assert_equal(found, expected):
  np.testing.assert_array_equal(found[0], expected[0])
  np.testing.assert_array_equal(found[1], expected[1])


def random_vectors(seed, n, dim=16):
  return np.random.default_rng(seed).standard_normal((n, dim), np.float32)


@pytest.mark.parametrize('mesh', MESHES)
def test_every_mesh_has_the_lists_of_the_host(mesh):
  host, rows = NearestDocuments(random_vectors(0, 700)), random_vectors(1, 300)
  rows[7] = 0
  exclude = np.arange(300) % 50 - 1
  search = DeviceNeighbours(host, mesh_of(*mesh), chunk=48)
  assert_equal(search.nearest(rows, 9), host.nearest(rows, 9))
  assert_equal(search.nearest(rows, 9, exclude), host.nearest(rows, 9, exclude))


@pytest.mark.parametrize('mesh', [(1, 1), (2, 4)])
@pytest.mark.parametrize('spare', [0, 5])
def test_ties_that_devices_cannot_tell_apart(mesh, spare):
  """All cosines of a document are equal up to the errors of float32."""
  some = random_vectors(2, 3)
  host = NearestDocuments(np.concatenate([some] * 60))
  search = DeviceNeighbours(host, mesh_of(*mesh), chunk=16, spare=spare)
  rows = some + random_vectors(3, 3) / 8
  assert_equal(search.nearest(rows, 12), host.nearest(rows, 12))


def test_fewer_documents_than_are_listed():
  host = NearestDocuments(random_vectors(4, 3))
  search = DeviceNeighbours(host, mesh_of(1, 8))
  found = search.nearest(random_vectors(5, 2), 9)
  assert_equal(found, host.nearest(random_vectors(5, 2), 9))
  assert (found[0][:, 3:] == PAD).all()


def test_devices_need_vectors():
  rows = sparse.csr_array(np.eye(3, dtype=np.float32))
  with pytest.raises(ValueError, match='only search among dense vectors'):
    DeviceNeighbours(NearestDocuments(rows), mesh_of(1, 1))
