"""A run of two processes as a SLURM job: preempted, resumed, the same end."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from tests.multihost.conftest import losses
from xjax.core.mesh_config import MeshConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.run.fit import fit
from xjax.sweep.session import write_config_file

pytestmark = pytest.mark.thorough

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 30


def config(data):
  parts = NoEncoder(), MeanConfig(), OneVsAllConfig()  # quickly compiled
  model = NeuralModel(EmbeddingConfig(dim=8), *parts)
  small = shrink(Config(model=model))
  train = dataclasses.replace(small.train, steps=STEPS, judge_every=STEPS)
  return dataclasses.replace(small, train=train, mesh=MeshConfig(data, 1))


def test_preempted_it_comes_back_to_the_same_end(
  cluster, devices, tmp_path, monkeypatch, free_port
):
  job, log, workdir = str(free_port), tmp_path / 'log', tmp_path / 'run'
  for name, value in {
    'TASKS': '2',
    'JOB_ID': job,
    'NAME': 'run',
    'LOG': str(log),
    'JAX_NUM_CPU_DEVICES': '1',
  }.items():
    monkeypatch.setenv(name, value)
  write_config_file(tmp_path / 'config.py', config(2), [])
  train = sys.executable, '-m', 'xjax', 'train'
  flags = f'--config={tmp_path}/config.py', f'--workdir={workdir}'
  process = subprocess.Popen(
    [ROOT / 'tpu_scripts' / 'slurm.sh', *train, *flags],
    cwd=ROOT,
    stdin=subprocess.DEVNULL,
  )
  while process.poll() is None and not (workdir / 'metrics.jsonl').exists():
    time.sleep(0.005)
  # As SLURM does two minutes before a job's time is over.
  subprocess.run(['scancel', '--signal=TERM', job], check=True)
  assert process.wait(240) == 0, log.read_text()
  assert len(cluster.calls('srun ')) == 2
  assert len(cluster.calls('scontrol requeue')) == 1
  said = log.read_text()
  assert said.count('preempted: ') == 2 and 'resume' in said, said
  with devices(1):
    fit(config(1), tmp_path / 'alone')
  found, expected = (losses(w, STEPS) for w in (workdir, tmp_path / 'alone'))
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
  tables = [
    json.loads((folder / 'eval' / 'dev' / 'metrics.json').read_text())
    for folder in (workdir, tmp_path / 'alone')
  ]
  assert tables[0]['xjax']['all']['RP@5'] == tables[1]['xjax']['all']['RP@5']
