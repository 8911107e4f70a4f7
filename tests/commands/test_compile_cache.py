"""Checks that a second process reads the programs that the first compiled."""

import os
import subprocess
import sys

import pytest

from tests.commands.conftest import ROOT
from xjax.commands.flags import compile_cache

# A module for --import: it counts the programs that JAX looks for and finds.
COUNTING = """
import atexit, collections, sys
import jax
seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event]))
@atexit.register
def say():
  names = 'compile_requests_use_cache', 'cache_hits'
  print(*(seen['/jax/compilation_cache/' + name] for name in names))
"""
SMALL = (
  *('--config=quickstart', '--config.data.n_train=60'),
  *('--config.data.n_dev=8', '--config.data.n_test=8'),
  *('--config.data.n_labels=16', '--config.data.tokens.max_tokens=16'),
  *('--config.data.tokens.buckets=16', '--config.model.encoder.units=4'),
  '--config.train.steps=4',
)


@pytest.mark.thorough
def test_the_second_start_of_a_command_compiles_nothing(tmp_path):
  (tmp_path / 'counting.py').write_text(COUNTING)
  env = {k: v for k, v in os.environ.items() if not k.startswith('JAX_')}
  env |= {'XJAX_CACHE_DIR': str(tmp_path / 'cache'), 'PYTHONPATH': str(ROOT)}

  def found(name: str, *arguments: str) -> tuple[int, int]:
    """How many programs JAX asked the cache for, and how many it had."""
    done = subprocess.run(
      [sys.executable, '-m', 'xjax', name, '--import=counting', *arguments],
      cwd=tmp_path,
      env=env,
      capture_output=True,
      text=True,
      input='{"text": "a text"}',
    )
    assert done.returncode == 0, done.stderr
    assert 'cache' not in done.stderr
    asked, hits = done.stdout.splitlines()[-1].split()
    return int(asked), int(hits)

  asked, hits = found('train', *SMALL, '--workdir=one')
  assert hits < asked
  assert found('train', *SMALL, '--workdir=two') == (asked, asked)
  folder = tmp_path / 'cache' / 'programs'
  assert folder.stat().st_mode & 0o777 == 0o700
  asked, _ = found('predict', '--workdir=one')
  # A killed process leaves half a program, which is compiled and kept again.
  cut = max(folder.glob('*/*-cache'), key=os.path.getmtime)
  os.truncate(cut, 1000)
  assert found('predict', '--workdir=one') == (asked, asked - 1)
  assert found('predict', '--workdir=one') == (asked, asked)
  assert found('predict', '--workdir=one', '--compile_cache=') == (0, 0)


def test_programs_that_were_not_used_for_longest_go_first(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(compile_cache, '_MOST', 20)
  folder = tmp_path / ('0' * 16)
  folder.mkdir()
  for age, name in enumerate(('new', 'mid', 'old')):
    path = folder / f'jit_{name}-{"a" * 64}-cache'
    path.write_bytes(bytes(10))
    os.utime(path, (1000 - age, 1000))
  (folder / 'notes-cache').write_bytes(bytes(100))
  compile_cache.remove_oldest(tmp_path)
  left = {path.name.partition('-')[0] for path in folder.iterdir()}
  assert left == {'jit_new', 'jit_mid', 'notes'}
