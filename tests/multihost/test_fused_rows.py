"""Checks that runs whose label rows lie on all devices resume elsewhere.

That a run may be killed at any moment is checked in tests/faults.
"""

import dataclasses
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.fixtures.shrink import shrink
from tests.multihost.conftest import losses
from xjax.core.mesh import DATA, LABEL, make_mesh, padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad, FusedSGD
from xjax.run.fit import fit
from xjax.train.checkpoint import Checkpoints
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir

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


def saved(workdir, step):
  """All arrays of a checkpoint, by path."""
  found, handler = {}, ocp.StandardCheckpointHandler()
  for item in ('params', 'optimizer'):
    path = workdir / 'checkpoints' / str(step) / item
    like = {
      name: np.empty(leaf.shape, leaf.dtype)
      for name, leaf in handler.metadata(path).items()
    }
    found |= handler.restore(path, args=ocp.args.StandardRestore(like))
  return found


class Position:
  """Takes an iterator's state and forgets it."""

  def set_state(self, state):
    del state


def restored(workdir, storage, shape):
  """Returns the arrays with which a run on this mesh begins, by path."""
  found = Workdir.at(workdir)
  mesh = make_mesh(MeshConfig(*shape))
  plan = plan_neural(
    config(storage, shape, FOREVER),
    found.label_space(),
    len(found.vocabulary()),
    mesh,
  )
  with Checkpoints(found.checkpoints, 3) as checkpoints:
    state, _ = checkpoints.restore(EVERY, plan.abstract, Position())
  assert jax.tree.map(lambda x: x.sharding, state) == plan.shardings
  return {
    **by_path(state.params),
    **by_path(state.opt_state),
    **by_path({'row_slots': state.row_slots}),
    'step': state.step,
  }


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
  storage, workdir = run
  copy = shutil.copytree(workdir, tmp_path / 'copy')
  with devices(shape[0] * shape[1]):
    state = restored(copy, storage, shape)
    after = resumed(run, shape, tmp_path)
  expected = saved(workdir, EVERY)
  assert state.keys() == expected.keys()
  for name, array in expected.items():
    assert state[name].dtype == array.dtype, name
    np.testing.assert_array_equal(np.asarray(state[name]), array, err_msg=name)
  rows = state['head/kernel']
  assert rows.sharding.spec[0] == (LABEL, DATA)
  per_device = {len(shard.data) for shard in rows.addressable_shards}
  assert per_device == {padded_labels(16) // (shape[0] * shape[1])}
  slots = {name for name in expected if name.startswith('row_slots/')}
  assert slots and all((expected[name] != 0).any() for name in slots)
  np.testing.assert_allclose(after, as_before, rtol=0, atol=1e-5)
