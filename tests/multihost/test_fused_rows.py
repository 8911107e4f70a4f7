"""Checks runs whose label rows lie on all devices, on other devices.

That a run may be killed at any moment is checked in tests/faults.
"""

import dataclasses
import shutil

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from tests.multihost.conftest import finish, losses, two
from xjax.core.mesh_config import MeshConfig
from xjax.models.contract import Config
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad, FusedSGD
from xjax.run.fit import fit
from xjax.train.checkpoint import read_params

pytestmark = pytest.mark.thorough

EVERY, FOREVER = 5, 100_000
RULES = {
  Storage.COMPENSATED: FusedSGD(learning_rate=0.1, momentum=0.8),
  Storage.FLOAT8: FusedAdagrad(learning_rate=0.05),
}


def config(storage, mesh, steps):
  small = shrink(Config())
  model = dataclasses.replace(
    small.model,
    encoder=NoEncoder(),
    pooling=MeanConfig(),
    head=OneVsAllConfig(chunk=8, storage=storage),
  )
  train = dataclasses.replace(
    small.train,
    rows=RULES[storage],
    steps=steps,
    checkpoint_every=EVERY,
    judge_every=FOREVER,
  )
  return dataclasses.replace(
    small,
    data=dataclasses.replace(small.data, n_train=160),
    model=model,
    train=train,
    mesh=MeshConfig(*mesh),
  )


@pytest.fixture(scope='module', params=RULES)
def run(request, tmp_path_factory):
  """(storage, workdir) of a run on mesh 2x4 that has taken EVERY steps."""
  storage = request.param
  workdir = tmp_path_factory.mktemp(storage.value) / 'run'
  fit(config(storage, (2, 4), EVERY), workdir)
  return storage, workdir


def resumed(run, shape, folder):
  """Losses of the next steps, of a copy that goes on there."""
  storage, workdir = run
  copy = shutil.copytree(workdir, folder / 'run')
  fit(config(storage, shape, 2 * EVERY), copy)
  return losses(copy, 2 * EVERY)[EVERY:]


@pytest.fixture(scope='module')
def as_before(run, tmp_path_factory):
  """Losses of the run that goes on on its own mesh."""
  return resumed(run, (2, 4), tmp_path_factory.mktemp('before'))


@pytest.mark.parametrize('shape', [(8, 1), (1, 1)])
def test_a_run_goes_on_on_another_mesh(
  run, as_before, shape, tmp_path, devices
):
  with devices(shape[0] * shape[1]):
    after = resumed(run, shape, tmp_path)
  np.testing.assert_allclose(after, as_before, rtol=0, atol=1e-5)


@pytest.mark.parametrize('run', [Storage.FLOAT8], indirect=True)
def test_two_processes_agree_with_one(run, tmp_path):
  storage, one = run
  finish(*two(tmp_path / 'two', config(storage, (2, 4), EVERY)))
  folders = tmp_path / 'two', one
  ours, expected = (losses(folder, EVERY) for folder in folders)
  np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
  params = [read_params(x / 'checkpoints', EVERY) for x in folders]
  # Two processes add in another order, so only most draws are the same.
  for name, share in (('head/kernel', 0.95), ('head/exponent', 0.9)):
    ours, expected = (x[name][:16] for x in params)
    assert ours.dtype.itemsize == 1 and (ours == expected).mean() > share
  ours, expected = (x['head/bias'][:16] for x in params)
  np.testing.assert_allclose(ours, expected, rtol=1e-4)
