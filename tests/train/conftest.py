"""What tests of training share: devices, and a small state with its step."""

import jax
import optax
import pytest

from tests.train.small_states import Small
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.train.state import plan_state


@pytest.fixture(scope='module', autouse=True)
def so_many_devices(devices, n_devices):
  with devices(n_devices):
    yield


@pytest.fixture(scope='module')
def plan():
  mesh = make_mesh(MeshConfig(data=2, label=4))
  return plan_state(Small, optax.adam(1e-3), mesh)


@pytest.fixture(scope='module')
def advance(plan):
  """A step of the plan, which a module may have of its own: adds 1."""
  return jax.jit(
    lambda state: jax.tree.map(lambda x: x + 1, state),
    donate_argnums=0,
    out_shardings=plan.shardings,
  )
