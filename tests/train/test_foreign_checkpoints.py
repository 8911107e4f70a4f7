"""What others put beside checkpoints, and disks that cannot be written."""

import errno
import os
import shutil

import optax
import orbax.checkpoint as ocp
import pytest

from tests.train import small_states
from tests.train.small_states import Small, batches, fresh
from xjax.core.errors import DataError, UserError
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.train.checkpoint import Checkpoints, intact_steps
from xjax.train.state import plan_state


@pytest.fixture(scope='module')
def plan():
  return plan_state(Small, optax.sgd(1e-3), make_mesh(MeshConfig()))


def write(folder, plan, steps):
  small_states.write(folder, plan, lambda state: state, steps)


def tree(folder):
  return {*folder.rglob('*')}


def test_what_the_run_did_not_write_stays(tmp_path, plan):
  write(tmp_path, plan, [1, 2])
  shutil.copytree(tmp_path / '2', tmp_path / '2.bak')
  shutil.copytree(tmp_path / '2', tmp_path / '002')
  shutil.copytree(tmp_path / '2', tmp_path / 'mine.orbax-checkpoint-tmp')
  for name in ('2.tar', '5.orbax-checkpoint-tmp'):
    (tmp_path / name).write_text('mine')
  (tmp_path / '9.orbax-checkpoint-tmp').symlink_to(tmp_path / 'nowhere')
  (tmp_path / '3.link').symlink_to(tmp_path / 'nowhere')
  before = tree(tmp_path)
  (tmp_path / '4.orbax-checkpoint-tmp' / 'params').mkdir(parents=True)
  with Checkpoints(tmp_path, 3) as checkpoints:
    assert checkpoints.steps == [1, 2]
    assert not (tmp_path / '4.orbax-checkpoint-tmp').exists()
    checkpoints.save(fresh(plan), 3, batches(), {}, None)
  assert intact_steps(tmp_path) == [1, 2, 3]
  assert before < tree(tmp_path)


def save_next(folder, plan, block):
  """Saves steps 1 and 2; `block` is called between, and while 2 is written."""
  with Checkpoints(folder, 3) as checkpoints:
    state, iterator = fresh(plan), batches()
    checkpoints.save(state, 1, iterator, {}, None)
    checkpoints.wait()
    block()
    checkpoints.save(state, 2, iterator, {}, None)


@pytest.mark.parametrize('way', ['link', 'deleted', 'full'])
def test_a_checkpoint_that_cannot_be_written_is_one_error(
  tmp_path, plan, monkeypatch, caplog, way
):
  folder = tmp_path / 'checkpoints'

  def no_space(path, *args, **kwargs):
    raise ValueError(
      'RESOURCE_EXHAUSTED: Failed writing: Failed to write 1231 bytes to file '
      f"13: No space left on device [os_error_code='{errno.ENOSPC}']"
    )

  def block():
    if way == 'link':
      (folder / '2.orbax-checkpoint-tmp').symlink_to(tmp_path / 'nowhere')
    elif way == 'deleted':
      shutil.rmtree(folder)
    else:
      handler = ocp.handlers.PyTreeCheckpointHandler
      monkeypatch.setattr(handler, 'finalize', no_space)

  says = {'link': 'File exists', 'deleted': 'it was', 'full': 'No space left'}
  with pytest.raises(
    UserError, match=f'{folder}: cannot be written: {says[way]}'
  ):
    save_next(folder, plan, block)
  assert 'Traceback' not in caplog.text
  # Only Orbax's folder of step 2 is left, which the next start removes.
  left = {path.name for path in folder.glob('*')}
  assert left <= {'1', '2.orbax-checkpoint-tmp'}


@pytest.mark.parametrize('kind', ['file', 'folder', 'link'])
def test_what_has_the_name_of_a_checkpoint_is_an_error(tmp_path, plan, kind):
  write(tmp_path, plan, [1])
  path = tmp_path / '7'
  if kind == 'file':
    path.write_text('mine')
  elif kind == 'link':
    path.symlink_to(tmp_path / 'nowhere')
  else:
    path.mkdir()
    (path / 'mine').write_text('mine')
  with pytest.raises(DataError, match='7: is no checkpoint of this run'):
    Checkpoints(tmp_path, 3)
  assert os.path.lexists(path)
  assert intact_steps(tmp_path) == [1]


def test_damaged_checkpoints_of_one_step_all_stay(tmp_path, plan):
  for number in range(3):
    write(tmp_path, plan, [1])
    (tmp_path / '1' / 'meta' / 'metadata').write_text(str(number))
  with Checkpoints(tmp_path, 3) as checkpoints:
    assert checkpoints.steps == []
  left = sorted((tmp_path / 'damaged').glob('*/meta/metadata'))
  assert [path.read_text() for path in left] == ['0', '1', '2']
