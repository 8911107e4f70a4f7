"""Processes that are forked after a model was loaded predict, or say why not.

Each test has a process of its own, since JAX and other libraries differ once
they have been used.
"""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 100
STACK = pytest.mark.thorough, pytest.mark.lightgbm
SCRIPT = """
import multiprocessing, os, sys, threading, warnings
import xjax

warnings.simplefilter('ignore')  # JAX warns of forks
texts = [f'w{n} w{n + 1}' for n in range(60)]
model = None
workdir, first, *calls = sys.argv[1:]

def lists(model):
  return [[(x.id, x.score) for x in labels] for labels in model.predict(texts)]

def used(_):
  try:
    return lists(model)
  except xjax.ConfigError as error:
    return str(error)

def loaded(_):
  try:
    return lists(xjax.load(workdir))
  except xjax.ConfigError as error:
    return str(error)

def nested(_):
  mine, (read, write) = used(0), os.pipe()
  if os.fork() == 0:
    os.write(write, b'1' if used(0) == mine else b'0')
    os._exit(0)
  return mine if os.read(read, 1) == b'1' else 'differs'

def forked(call):
  with multiprocessing.get_context('fork').Pool(2) as pool:
    return pool.map(globals()[call], range(4))

def said(call, found):
  same = sorted({str(x if isinstance(x, str) else x == wanted) for x in found})
  print(call, *same)

if first == 'jax':
  import jax
  jax.numpy.ones(3).sum().item()
if first in ('unused', 'never'):
  model = xjax.load(workdir) if first == 'unused' else None
  found = {call: forked(call) for call in calls}
  model = xjax.load(workdir)
  wanted = lists(model)
elif first == 'busy':  # others use the model, for the first time, and later
  model, wanted = xjax.load(workdir), lists(xjax.load(workdir))
  ended = threading.Event()
  def use():
    while not ended.is_set():
      lists(model)
  users = [threading.Thread(target=use) for _ in range(2)]
  found = {call: [] for call in calls}
  def fork():
    for call in calls:
      for _ in range(5):
        found[call] += forked(call)
  forker = threading.Thread(target=fork)
  for thread in (*users, forker):
    thread.start()
  forker.join()
  ended.set()
  for thread in users:
    thread.join()
else:
  model = xjax.load(workdir)
  wanted = lists(model)
  found = {call: forked(call) for call in calls}
for call in calls:
  said(call, found[call])
assert lists(model) == wanted  # the parent goes on
"""
NO_JAX = (
  'this process was forked from one that had used JAX, so that neural networks '
  'cannot run in it: load the model in each worker, and use none before the '
  'fork, or start workers by spawn or forkserver, such as '
  "multiprocessing.get_context('spawn').Pool"
)


def answers(workdir, *words):
  process = subprocess.Popen(
    [sys.executable, '-c', SCRIPT, str(workdir), *words],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  try:
    out, error = process.communicate(timeout=SECONDS)
  except subprocess.TimeoutExpired:
    os.killpg(process.pid, signal.SIGKILL)  # its children too
    process.communicate()
    pytest.fail(f'a forked process waits for ever: {words}')
  assert process.returncode == 0, error
  return dict(line.split(' ', 1) for line in out.splitlines())


@pytest.mark.parametrize(
  ('kind', 'first'),
  [
    ('linear', 'jax'),
    ('tree', 'unused'),
    pytest.param('stack', 'used', marks=STACK),
    pytest.param('stack', 'busy', marks=STACK),
    pytest.param('neighbours', 'busy', marks=pytest.mark.thorough),
    pytest.param('names', 'used', marks=pytest.mark.thorough),
  ],
)
def test_forked_processes_predict(kind, first, fitted):
  calls = ('used',) if first == 'busy' else ('used', 'loaded', 'nested')
  found = answers(fitted(kind).workdir, first, *calls)
  assert found == dict.fromkeys(calls, 'True')


@pytest.mark.parametrize(
  'kind', ['neural', pytest.param('joined', marks=pytest.mark.thorough)]
)
def test_neural_models_are_refused_in_forked_processes(kind, fitted):
  calls = 'used', 'loaded', 'nested'
  found = answers(fitted(kind).workdir, 'unused', *calls)
  assert found == dict.fromkeys(calls, NO_JAX)


@pytest.mark.thorough
def test_threads_may_fork_at_once_and_while_they_hold_a_lock():
  script = """
import os, threading
from xjax.models.lookup import neighbours

def fork():
  for _ in range(100):
    with neighbours._blas_setting:
      if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    if not (child := os.fork()):
      os._exit(0)
    os.waitpid(child, 0)

threads = [threading.Thread(target=fork) for _ in range(4)]
for thread in threads:
  thread.start()
for thread in threads:
  thread.join()
"""
  process = subprocess.run(
    [sys.executable, '-W', 'ignore', '-c', script],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=SECONDS,
  )
  assert (process.returncode, process.stderr) == (0, '')


@pytest.mark.thorough
def test_workers_may_load_neural_models_if_nobody_has_before(fitted):
  assert answers(fitted('neural').workdir, 'never', 'loaded') == {
    'loaded': 'True'
  }
