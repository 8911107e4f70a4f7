""".ci/run: runs what the README says, and fails where any of it does."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOLS = {
  'python3': 'bin',
  **dict.fromkeys(('pip', 'python', 'ruff'), '.venv/bin'),
  'peers.sh': 'tests/parity',
}


def fake(path, body):
  path.parent.mkdir(parents=True, exist_ok=True)
  call = '${XLA_FLAGS:+XLA_FLAGS=$XLA_FLAGS }$(basename "$0") $*'
  folder = 'echo "$XJAX_TESTS_FOLDER" >> folders'
  path.write_text(f'#!/bin/sh\necho "{call}" >> calls\n{folder}\n{body}\n')
  path.chmod(0o755)


@pytest.fixture
def run(tmp_path):
  """Runs .ci/run with tools that only note their calls, one of them failing."""
  shutil.copytree(ROOT / '.ci', tmp_path / 'clone' / '.ci')

  def start(failing='none', at=''):
    for name, folder in TOOLS.items():
      body = f'case "$*" in *"{at}"*) exit 3;; esac' if name == failing else ''
      fake(tmp_path / 'clone' / folder / name, body)
    path = f'{tmp_path}/clone/bin:{os.environ["PATH"]}'
    done = subprocess.run(
      ['bash', '.ci/run'],
      cwd=tmp_path / 'clone',
      env={**os.environ, 'PATH': path, 'XLA_FLAGS': ''},
      timeout=60,
    )
    calls = (tmp_path / 'clone' / 'calls').read_text().splitlines()
    # All share a folder, which is gone afterwards.
    folders = (tmp_path / 'clone' / 'folders').read_text().splitlines()
    assert len(folders) == len(calls) and len({*folders}) == 1
    assert folders[0] and not pathlib.Path(folders[0]).exists()
    return done.returncode, calls

  return start


def test_all_of_it(run):
  status, calls = run()
  assert status == 0
  assert calls == [
    'python3 -m venv .venv',
    'pip install -e .[test]',
    'python -m pytest -n 3',
    'ruff check .',
    'ruff format --check .',
    'pip install torch==2.13.0',
    'pip install -e .[test,parity]',
    'peers.sh ',
    'python -m pytest -n 3 --dist=worksteal '
    '-m thorough or parity or peers or real_data '
    '--ignore=tests/commands/test_overfit.py',
    'XLA_FLAGS=--xla_backend_optimization_level=1 '
    'python -m pytest -n 3 --dist=worksteal -m thorough '
    'tests/commands/test_overfit.py',
    'pip install -e .[test,chips]',
    'python -m pytest -n 2 -m chips',
  ]


@pytest.mark.parametrize(
  ('failing', 'at', 'n_calls'),
  [
    ('python3', 'venv', 1),
    ('pip', '.[test]', 2),
    ('python', 'pytest', 3),
    ('ruff', 'check .', 4),
    ('ruff', 'format', 5),
    ('pip', 'torch', 6),
    ('pip', 'parity', 7),
    ('peers.sh', '', 8),
    ('python', '-m thorough or', 9),
    ('python', '-m thorough tests', 10),
    ('pip', 'chips', 11),
    ('python', '-m chips', 12),
  ],
)
def test_a_failure_ends_it(run, failing, at, n_calls):
  status, calls = run(failing, at)
  assert status == 3
  assert len(calls) == n_calls


def test_the_tests_are_started_as_the_readme_does():
  blocks = re.findall(
    r'```sh\n(.*?)```', (ROOT / 'README.md').read_text(), re.S
  )
  (command,) = [b.strip() for b in blocks if 'pytest' in b]
  script = (ROOT / '.ci' / 'run').read_text()
  assert command in [line.strip() for line in script.splitlines()]


def test_contributors_are_told_what_it_runs():
  page = (ROOT / 'CONTRIBUTING.md').read_text()
  (block,) = re.findall(r'```sh\n(.*?)```', page, re.S)
  script = (ROOT / '.ci' / 'run').read_text()
  lines = script.replace('.venv/bin/', '').splitlines()
  commands = {c.strip() for line in lines for c in line.split(' && ')}
  for line in block.splitlines():
    assert commands.issuperset(line.split(' && '))
