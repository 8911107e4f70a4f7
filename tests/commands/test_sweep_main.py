"""A sweep as a user has it, of runs as small as they can be."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.commands.conftest import ROOT, run_process
from xjax.sweep import workers

SWEEP = """
import dataclasses

from xjax.configs import quickstart
from xjax.models.contract import Config
from tests.fixtures.shrink import shrink
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.sweep.config import Grid, Sweep


def get_config(field: str = '') -> Config:
  parts = NoEncoder(), MeanConfig(), OneVsAllConfig()
  model = NeuralModel(EmbeddingConfig(dim=8), *parts)
  return shrink(dataclasses.replace(quickstart.get_config(), model=model))


def get_sweep(field: str = 'train.learning_rate') -> Sweep:
  return Sweep(Grid({field: (0.001, 0.1)}))
"""


@pytest.fixture
def file(tmp_path) -> pathlib.Path:
  path = tmp_path / 'small.py'
  path.write_text(SWEEP)
  return path


def figure(workdir: pathlib.Path) -> float:
  path = workdir / 'eval' / 'dev' / 'metrics.json'
  return json.loads(path.read_text())['xjax']['all']['RP@5']


@pytest.mark.thorough
def test_best_config_runs_again_to_the_same_figure(file, tmp_path):
  workdir = tmp_path / 'sweep'
  flags = f'--config={file}', '--config.data.n_dev=12', f'--workdir={workdir}'
  done = run_process('sweep', *flags, '--workers=2')
  assert '2 complete, 0 pruned, 0 failed, 0 unfinished' in done.stdout
  assert '(2 of 2 trials done)' in done.stderr
  trials = [workdir / 'trials' / name for name in ('0000', '0001')]
  config = json.loads((trials[1] / 'config.json').read_text())
  assert config['train']['learning_rate'] == 0.1
  assert config['data']['n_dev'] == 12
  again = tmp_path / 'again'
  run_process('train', f'--config={workdir}/best.py', f'--workdir={again}')
  best = max(trials, key=figure)
  lists = 'eval/dev/predictions.npz'
  assert (again / lists).read_bytes() == (best / lists).read_bytes()
  assert figure(again) == figure(best)


@pytest.mark.parametrize(
  ('launcher', 'script', 'python'),
  [
    ('slurm', 'slurm.sh', str(pathlib.Path(sys.executable).parent / 'python3')),
    ('tpu', 'run.sh', 'python'),
    ('jobset', 'jobset.sh', 'python'),
  ],
)
def test_runs_are_jobs_of_a_launcher(
  launcher, script, python, run_main, cluster, file, tmp_path, monkeypatch
):
  for setting in ('ZONE', 'TYPE', 'IMAGE', 'ACCELERATOR', 'CLAIM'):
    monkeypatch.setenv(setting, 'x')
  commands = []

  def fail(command, log, lock, job, device):
    """Notes a command in place of starting it."""
    del lock, device
    assert job
    log.touch()
    commands.append(command)
    return subprocess.Popen(['false'])

  monkeypatch.setattr(workers, 'start_process', fail)
  flags = f'--config={file}', f'--workdir={tmp_path / "sweep"}'
  done = run_main('sweep', *flags, f'--launcher={launcher}')
  assert '0 complete, 0 pruned, 2 failed' in done.stdout
  for number, command in enumerate(commands):
    place = tmp_path / 'sweep' / 'trials' / f'{number:04d}'
    start = command.index(str(ROOT / 'tpu_scripts' / script))
    assert command[0] == 'env' and command[1].startswith('NAME=xjax-')
    assert command[start + 1 : start + 5] == [python, '-m', 'xjax', 'train']
    assert command[-1] == f'--workdir={place}'
  assert len(commands) == 2


def test_a_wrong_field_is_one_error_and_leaves_nothing(
  run_main, file, tmp_path
):
  workdir = tmp_path / 'sweep'
  words = f'--config={file}:train.lr', f'--workdir={workdir}'
  done = run_main('sweep', *words, code=1)
  assert 'config.train.lr: no such field' in done.stderr
  assert 'Traceback' not in done.stderr
  assert not workdir.exists()
