"""Checks that one run has the same results on meshes and in two processes."""

import dataclasses
import pathlib
import shutil
import signal
import time

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from tests.multihost.conftest import finish, launch, losses, train_rows, two
from xjax.core import mesh
from xjax.core.mesh import padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.judge.predictions import Predictions
from xjax.models.contract import Config
from xjax.networks.encoders.encoder import NoEncoder
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest
from xjax.train.checkpoint import read_params
from xjax.train.saved_steps import intact_steps, read_meta

STEPS = 8
# The mesh (1, 8) runs in two processes, in a test of its own.
MESHES = [pytest.param(8, 1, 0, marks=pytest.mark.thorough), (2, 4, 2)]


def config(data, label, slices=0, steps=STEPS):
  """A small run with dropout, accumulation and clipping."""
  small = shrink(Config())
  return dataclasses.replace(
    small,
    data=dataclasses.replace(small.data, n_train=48),
    # Encoders on meshes are tested alone, and compile slowly.
    model=dataclasses.replace(small.model, encoder=NoEncoder()),
    train=dataclasses.replace(
      small.train,
      accumulate=2,
      clip_norm=5.0,
      steps=steps,
      checkpoint_every=4,
      judge_every=4,
    ),
    mesh=MeshConfig(data, label, slices),
  )


@pytest.fixture(scope='module')
def one_device(devices, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('one') / 'run'
  with devices(1):
    fit(config(1, 1), workdir)
  return workdir


@pytest.fixture(scope='module')
def two_processes(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('two') / 'run'
  return workdir, finish(*two(workdir, config(2, 4, 2), 'coverage'))


@pytest.fixture(scope='module')
def labels_apart(tmp_path_factory):
  """A run whose labels are divided among two processes."""
  workdir = tmp_path_factory.mktemp('apart') / 'run'
  finish(*two(workdir, config(1, 8)))
  return workdir


def records_in(path):
  return path.exists() and path.read_text()


def documents(workdir):
  """Trained on at each step, as the logged speed has it."""
  return [
    round(row['documents_per_second'] * row['seconds'])
    for row in train_rows(workdir)
  ]


def assert_same_lists(found, expected):
  """The same labels wherever neighbouring scores differ by over 1e-4."""
  compared = 0
  for name, lists in expected.lists.items():
    real = lists.ids != PAD
    np.testing.assert_array_equal(found.lists[name].ids != PAD, real)
    scores = np.where(real, lists.scores, 0)
    np.testing.assert_allclose(
      np.where(real, found.lists[name].scores, 0), scores, atol=1e-5
    )
    # Scores beyond the ends of a list count as far above and far below.
    scores = np.where(real, lists.scores, -1e9)
    gap = -np.diff(scores, axis=1, prepend=1e9, append=-1e9)
    apart = (gap[:, :-1] > 1e-4) & ((gap[:, 1:] > 1e-4) | (scores == -1e9))
    compared += int((apart & real).sum())
    np.testing.assert_array_equal(
      found.lists[name].ids[apart & real], lists.ids[apart & real]
    )
  assert compared > 200


def assert_same(workdir, expected):
  np.testing.assert_allclose(
    losses(workdir, STEPS), losses(expected, STEPS), rtol=0, atol=1e-5
  )
  for split in ('dev', 'test'):
    path = pathlib.Path('eval', split, 'predictions.npz')
    assert_same_lists(
      Predictions.load(workdir / path), Predictions.load(expected / path)
    )


@pytest.mark.parametrize('data, label, slices', MESHES)
def test_meshes_agree(one_device, tmp_path, data, label, slices):
  fit(config(data, label, slices), tmp_path / 'run')
  assert_same(tmp_path / 'run', one_device)


def test_slices_that_are_found_agree(one_device, tmp_path, monkeypatch):
  # As if devices of two slices alternated.
  monkeypatch.setattr(mesh, '_slice_index', lambda device: device.id % 2)
  fit(config(4, 2), tmp_path / 'run')
  assert_same(tmp_path / 'run', one_device)


@pytest.mark.thorough
def test_two_processes_agree_with_one(one_device, two_processes):
  workdir, (host0, host1) = two_processes
  assert_same(workdir, one_device)
  # Only host 0 logs steps and writes files.
  assert f'step {STEPS}/{STEPS}' in host0
  assert 'step' not in host1
  assert len(list((workdir / 'tb').iterdir())) == 1
  # One process reads the checkpoints of two.
  assert intact_steps(workdir / 'checkpoints') == [4, 8]
  params = read_params(workdir / 'checkpoints', 8)
  assert params['head/output'].shape[0] == padded_labels(16)
  assert all(np.isfinite(array).all() for array in params.values())


@pytest.mark.thorough
def test_all_processes_choose_the_same_labels_by_a_strategy(two_processes):
  workdir, _ = two_processes
  asked = StrategyRequest(StrategyKind.COVERAGE, 3)
  chosen = evaluate_split(workdir, 'dev', strategy=asked).predictions
  for process in range(2):
    np.testing.assert_array_equal(
      np.load(f'{workdir}.{process}.npy'), chosen.lists['all'].ids
    )


@pytest.mark.thorough
def test_labels_may_be_divided_among_processes(one_device, labels_apart):
  assert_same(labels_apart, one_device)
  # A document that both processes read counts once.
  assert documents(labels_apart) == documents(one_device)
  assert intact_steps(labels_apart / 'checkpoints') == [4, 8]


@pytest.mark.thorough
def test_one_process_goes_on_where_two_with_divided_labels_were(
  one_device, labels_apart, tmp_path
):
  workdir = tmp_path / 'run'
  shutil.copytree(labels_apart, workdir)
  shutil.rmtree(workdir / 'checkpoints' / '8')
  (output,) = finish(launch(workdir, config(1, 1), 1))
  assert f'resuming at step 4 of {STEPS}' in output
  assert_same(workdir, one_device)


@pytest.mark.thorough
def test_a_finished_run_resumes_on_another_mesh(two_processes):
  workdir, _ = two_processes
  before = (workdir / 'metrics.jsonl').read_bytes()
  (output,) = finish(launch(workdir, config(1, 1), 1))
  assert 'config changed: mesh.data: 2 -> 1' in output
  assert f'training was finished at step {STEPS}' in output
  assert (workdir / 'metrics.jsonl').read_bytes() == before


@pytest.mark.thorough
@pytest.mark.parametrize(
  'number, code', [(signal.SIGTERM, 75), (signal.SIGINT, 130)]
)
def test_a_signal_to_one_process_stops_both(tmp_path, number, code):
  workdir = tmp_path / 'run'
  processes = two(workdir, config(2, 4, steps=5000))
  path = workdir / 'metrics.jsonl'
  while all(p.poll() is None for p in processes) and not records_in(path):
    time.sleep(0.05)
  processes[1].send_signal(number)
  finish(*processes, codes=[code])
  saved = intact_steps(workdir / 'checkpoints')[-1]
  assert saved < 5000 and read_meta(workdir / 'checkpoints', saved)
