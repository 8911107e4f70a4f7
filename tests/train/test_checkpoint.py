"""Checkpoints: kept, restored, damaged, and beside files of others."""

import dataclasses
import errno
import functools
import json
import logging
import os
import shutil

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from tests.train.small_states import Small, batches, equal, fresh, write
from xjax.core.errors import DataError, UserError
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.train.checkpoint import Checkpoints, read_params
from xjax.train.optimizer_config import EMAConfig
from xjax.train.parameters import by_path
from xjax.train.saved_steps import fault_of, intact_steps, read_meta
from xjax.train.state import plan_state


@pytest.fixture(scope='module')
def n_devices():
  return 8


def test_restores_bitwise_although_the_state_was_donated(
  tmp_path, plan, advance
):
  held = write(tmp_path, plan, advance, [1, 2, 3])
  with Checkpoints(tmp_path, 3) as checkpoints:
    assert checkpoints.steps == [1, 2, 3]
    for step in (3, 1, 2):
      iterator = batches()
      state, meta = checkpoints.restore(step, plan.abstract, iterator)
      assert equal(state, held[step])
      assert meta == {'third': step / 3}
      assert next(iterator) == step
      assert jax.tree.map(lambda x: x.sharding, state) == plan.shardings


@pytest.fixture(scope='module')
def averaged():
  """A plan with means of what is trained, and how to advance its state."""
  mesh = make_mesh(MeshConfig(data=2, label=4))
  plan = plan_state(
    Small, optax.adam(1e-3), mesh, freeze=('bias',), average=EMAConfig()
  )

  @functools.partial(jax.jit, out_shardings=plan.shardings)
  def advance(state):
    means = jax.tree.map(lambda x: x + 0.5, state.averages)
    state = jax.tree.map(lambda x: x + 1, state)
    return dataclasses.replace(state, averages=means)

  return plan, advance


def test_means_are_restored_beside_what_they_are_of(tmp_path, averaged):
  plan, advance = averaged
  held = write(tmp_path, plan, advance, [1, 2])
  with Checkpoints(tmp_path, 3) as checkpoints:
    state, _ = checkpoints.restore(2, plan.abstract, batches())
  assert equal(state, held[2])
  assert by_path(state.averages).keys() == {'rows'}
  assert jax.tree.map(lambda x: x.sharding, state) == plan.shardings
  path = next(p for p in (tmp_path / '2/averages').rglob('*') if p.is_file())
  path.unlink()
  assert intact_steps(tmp_path) == [1]


@pytest.mark.parametrize('placed', [False, True])
def test_parameters_are_read_as_means(tmp_path, averaged, placed):
  plan, advance = averaged
  held = write(tmp_path, plan, advance, [1])
  found = read_params(tmp_path, 1, plan.abstract.params if placed else None)
  assert found.keys() == {'rows', 'bias'}
  np.testing.assert_array_equal(found['bias'], held[1].params['bias'][...])
  np.testing.assert_array_equal(found['rows'], held[1].averages['rows'][...])
  assert (found['rows'] != held[1].params['rows'][...]).all()


def test_keeps_the_newest_and_the_best(tmp_path, plan, advance):
  write(tmp_path, plan, advance, range(1, 8), keep=2, best=3)
  assert intact_steps(tmp_path) == [3, 6, 7]
  assert intact_steps(tmp_path, newest=1) == [7]


def test_restores_onto_another_mesh(tmp_path, plan, advance):
  held = write(tmp_path, plan, advance, [2])
  other = plan_state(
    Small, optax.adam(1e-3), make_mesh(MeshConfig(data=4, label=2))
  )
  with Checkpoints(tmp_path, 3) as checkpoints:
    state, _ = checkpoints.restore(2, other.abstract, batches())
  assert equal(state, held[2])
  assert jax.tree.map(lambda x: x.sharding, state) == other.shardings


def test_saving_a_step_again_never_deletes_it(
  tmp_path, plan, advance, monkeypatch
):
  """Killed at any moment, what is there is intact, with either meta."""
  held = write(tmp_path, plan, advance, [1])
  replace, moments = os.replace, []

  def spy(source, target):
    moments.append((intact_steps(tmp_path), read_meta(tmp_path, 1)['third']))
    replace(source, target)
    moments.append((intact_steps(tmp_path), read_meta(tmp_path, 1)['third']))

  with Checkpoints(tmp_path, 3) as checkpoints:
    state, _ = checkpoints.restore(1, plan.abstract, batches())
    monkeypatch.setattr(os, 'replace', spy)
    monkeypatch.setattr(ocp.CheckpointManager, 'delete', None)
    checkpoints.save(state, 1, batches(), {'third': 9}, 1)
    checkpoints.wait()
  assert moments == [([1], 1 / 3), ([1], 9)]
  with Checkpoints(tmp_path, 3) as checkpoints:
    state, meta = checkpoints.restore(1, plan.abstract, batches())
  assert equal(state, held[1]) and meta == {'third': 9}


def test_a_step_saved_again_as_the_best_frees_the_last_best(
  tmp_path, plan, advance
):
  write(tmp_path, plan, advance, [1, 2, 3], keep=2, best=1)
  with Checkpoints(tmp_path, 2) as checkpoints:
    assert checkpoints.steps == [1, 2, 3]
    checkpoints.save(fresh(plan), 3, batches(), {}, 3)
    assert checkpoints.steps == [2, 3]


def damage_kinds(content):
  flipped = bytearray(content)
  flipped[len(content) // 2] ^= 1
  return {
    'cut': content[: len(content) // 2],
    'empty': b'',
    'flipped': bytes(flipped),
    'gone': None,
  }


def test_any_damage_to_any_file_falls_back_to_the_one_before(
  tmp_path, plan, advance, caplog
):
  held = write(tmp_path, plan, advance, [1, 2])
  own = json.loads((tmp_path / '2' / 'checkpoint.json').read_text())['files']
  paths = [tmp_path / '2' / name for name in ('checkpoint.json', *own)]
  assert len(paths) > 8
  for path in paths:
    content = path.read_bytes()
    for kind, damaged in damage_kinds(content).items():
      path.unlink(missing_ok=True)
      if damaged is not None:
        path.write_bytes(damaged)
      assert intact_steps(tmp_path) == [1], (path, kind)
    path.write_bytes(content)
    assert intact_steps(tmp_path) == [1, 2]
  path.unlink()
  caplog.set_level(logging.WARNING)
  caplog.clear()
  with Checkpoints(tmp_path, 3) as checkpoints:
    assert checkpoints.steps == [1]
    state, _ = checkpoints.restore(1, plan.abstract, batches())
    assert equal(state, held[1])
    checkpoints.save(advance(state), 2, batches(), {}, None)
  assert f'{tmp_path}/2 is damaged' in caplog.text
  assert 'the previous checkpoint is used instead' in caplog.text
  assert (tmp_path / 'damaged' / '2').is_dir()
  assert intact_steps(tmp_path) == [1, 2]


@pytest.mark.parametrize('content', ['[]', '{', '[' * 100_000])
def test_a_record_of_another_type_is_damage(tmp_path, content):
  (tmp_path / '1').mkdir()
  (tmp_path / '1' / 'checkpoint.json').write_text(content)
  assert fault_of(tmp_path, 1) == 'checkpoint.json is damaged'


def test_unfinished_checkpoints_go(tmp_path, plan, advance, caplog):
  write(tmp_path, plan, advance, [1, 2])
  # A kill while Orbax deletes a step can leave its arrays.
  (tmp_path / '2' / 'checkpoint.json').unlink()
  (tmp_path / '3.orbax-checkpoint-tmp').mkdir()
  for folder in ('4', 'damaged/4'):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / 'mine.txt').write_text(folder)
  (tmp_path / '7').write_text('mine')
  (tmp_path / '8').symlink_to(tmp_path / 'nowhere')
  caplog.clear()
  with Checkpoints(tmp_path, 3) as checkpoints:
    assert checkpoints.steps == [1]
  # What is the user's is no checkpoint, and is moved but not lost.
  assert '4 is damaged (the checkpoint was never completed)' in caplog.text
  assert sum(x.levelno >= logging.WARNING for x in caplog.records) == 3
  assert {path.name for path in tmp_path.iterdir()} == {'1', 'damaged'}
  moved = tmp_path / 'damaged'
  for name, folder in (('4', 'damaged/4'), ('4_2', '4')):
    assert (moved / name / 'mine.txt').read_text() == folder
  assert (moved / '7').read_text() == 'mine' and (moved / '8').is_symlink()


def test_parameters_of_another_model_are_refused(tmp_path, plan, advance):
  class Wider(Small):
    def __init__(self, rngs):
      super().__init__(rngs)
      self.bias = nnx.Param(jnp.zeros(6))

  write(tmp_path, plan, advance, [1])
  assert fault_of(tmp_path, 2) == 'no such checkpoint'
  wider = plan_state(Wider, optax.adam(1e-3), plan.shardings.step.mesh)
  with Checkpoints(tmp_path, 3) as checkpoints:
    says = '1: the parameters of this checkpoint do not fit'
    with pytest.raises(DataError, match=says):
      checkpoints.restore(1, wider.abstract, batches())
  with pytest.raises(DataError, match=says):
    read_params(tmp_path, 1, wider.abstract.params)


def tree(folder):
  return {*folder.rglob('*')}


def test_what_the_run_did_not_write_stays(tmp_path, plan, advance):
  write(tmp_path, plan, advance, [1, 2])
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
  tmp_path, plan, monkeypatch, way
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
    UserError, match=f'{folder}: cannot be written: .*{says[way]}'
  ):
    save_next(folder, plan, block)
  # Only Orbax's folder of step 2 is left, which the next start removes.
  left = {path.name for path in folder.glob('*')}
  assert left <= {'1', '2.orbax-checkpoint-tmp'}
