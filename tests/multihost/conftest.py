"""Starts processes that meet at a port, and reads what they have trained."""

import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import sys

import numpy as np
import pytest

from xjax.models.config_json import to_json

TESTS = pathlib.Path(__file__).parents[1]


@pytest.fixture
def free_port() -> int:
  """Returns a port among the last 4096 that nobody uses.

  On SLURM, JAX takes this port if the job has the same number.
  """
  for port in random.sample(range(65536 - 4096, 65536), 100):
    with socket.socket() as free, contextlib.suppress(OSError):
      free.bind(('localhost', port))
      return port
  raise AssertionError('all ports are taken')


def start(script, *words, **environment) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, script, *map(str, words)],
    env={**os.environ, 'PYTHONPATH': str(TESTS.parent), **environment},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def finish(*processes: subprocess.Popen, codes=(0,)) -> list[str]:
  """Waits for the ends of processes, and returns their outputs."""
  try:
    outputs = [process.communicate(timeout=240)[0] for process in processes]
  finally:
    for process in processes:
      process.kill()
  assert {p.returncode for p in processes} == set(codes), '\n'.join(outputs)
  return outputs


def launch(workdir, config, devices, *others) -> subprocess.Popen:
  """Starts a run in one process on so many fake CPU devices."""
  path = workdir.with_suffix('.json')
  path.write_text(json.dumps(to_json(config)))
  words = TESTS / 'run' / 'fit_process.py', path, workdir, *others
  return start(*words, JAX_NUM_CPU_DEVICES=str(devices))


def two(workdir, config, *more) -> list[subprocess.Popen]:
  """Starts a run in two processes of four devices."""
  with socket.socket() as free:
    free.bind(('localhost', 0))
    address = f'localhost:{free.getsockname()[1]}'
  return [launch(workdir, config, 4, address, 2, i, *more) for i in (0, 1)]


def train_rows(workdir) -> list[dict]:
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [row for row in map(json.loads, lines) if row['kind'] == 'train']


def losses(workdir, steps: int) -> np.ndarray:
  """The losses of a run that has logged each of its steps once."""
  rows = train_rows(workdir)
  assert [row['step'] for row in rows] == list(range(1, steps + 1))
  return np.array([row['loss'] for row in rows])
