"""Training that is killed, started twice and littered with a user's files.

Each attack starts a small training, and does one of these things at a random
moment: SIGKILL, SIGTERM, Ctrl-C, a second start of the same command, or judging
at the same time. After some attacks, it puts files of a user into the folder.
Then the command is started again until it has finished, and its results are
compared with those of a run that nothing happened to.

Processes are forked from a server that has imported the libraries, but has not
started JAX. So an attack costs no imports.
"""

import atexit
from collections.abc import Sequence
import contextlib
import dataclasses
import faulthandler
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import time

import pytest

from tests.fixtures.shrink import shrink
from tests.run.small_runs import records
from xjax.core.processes.lock import NAME
from xjax.models.contract import Config
from xjax.sweep.session import write_config_file
from xjax.train.checkpoint import read_params

pytestmark = pytest.mark.thorough

SENT = {
  'kill': signal.SIGKILL,
  'terminate': signal.SIGTERM,
  'interrupt': signal.SIGINT,
}
KINDS = *SENT, 'twice', 'other'
PATIENCE = 120  # seconds until a process counts as hanging
# The contents of these files and folders of a run depend on the time.
WITH_TIME = 'tb', 'checkpoints', 'README.md', 'run.json', 'metrics.jsonl'
# Files that a user may put into the workdir.
MINE = (
  *('notes.txt', '.metrics.jsonl.swp'),
  *('checkpoints/3.bak/params', 'checkpoints/3.tar'),
)
# Modules that the server imports before it forks.
PRELOADED = (
  *('orbax.checkpoint', 'tensorboardX', 'xjax.models.neural.neural_model'),
  *(
    'xjax.run.evaluate_split',
    'xjax.report.card',
    'xjax.report.terminal.run_summary',
  ),
  __name__,
)


def neural() -> Config:
  """Returns a config with dropout, several epochs and many checkpoints."""
  small = shrink(Config())
  steps = {'steps': 24, 'log_every': 2, 'checkpoint_every': 3, 'judge_every': 8}
  train = dataclasses.replace(small.train, learning_rate=0.01, keep=2, **steps)
  data = dataclasses.replace(small.data, n_train=48)
  return dataclasses.replace(small, data=data, train=train)


def run_command(words: Sequence[str], log: str) -> None:
  """Runs `xjax` with a file for its output, and ends its process."""
  from xjax.commands.main import main

  file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
  os.dup2(file, 1)
  os.dup2(file, 2)
  faulthandler.enable(file)
  sys.argv = ['xjax', *words]
  try:
    main()
  finally:
    atexit._run_exitfuncs()  # multiprocessing leaves them out


class Attacks:
  """Attacks training at moments that `rng` draws, and notes faults."""

  def __init__(self, folder: pathlib.Path, rng: random.Random) -> None:
    # Tracebacks, deaths by a signal that nobody has sent, hangs, results that
    # differ, files of the user that are gone, temporary files.
    self.faults: list[str] = []
    self._folder, self._rng = folder, rng
    self._processes = multiprocessing.get_context('forkserver')
    self._processes.set_forkserver_preload(list(PRELOADED))
    write_config_file(folder / 'neural.py', neural(), [])
    whole = folder / 'whole'
    assert self._end(self._start(self._words(whole))) == 0
    self._results, self._amount = results(whole), amount(whole)

  def _words(self, workdir: pathlib.Path) -> list[str]:
    config = f'--config={self._folder}/neural.py'
    return ['train', config, f'--workdir={workdir}']

  def attack(self, kind: str) -> None:
    """Makes one attack at a random moment, and notes its faults."""
    workdir = self._folder / kind
    self._disturb(kind, workdir)
    # A run refuses a workdir with checkpoints/ but no config.json.
    has_begun = (workdir / 'config.json').exists()
    mine = MINE if has_begun and self._rng.random() < 0.5 else ()
    for name in mine:
      (workdir / name).parent.mkdir(parents=True, exist_ok=True)
      (workdir / name).write_text('mine')
    words = self._words(workdir)
    ended = any(self._end(self._start(words)) == 0 for _ in range(3))
    found, wanted = results(workdir) if ended else {}, self._results
    names = found.keys() | wanted.keys()
    wrong = [n for n in names if found.get(n, '') != wanted.get(n, '')]
    wrong += [name for name in mine if not (workdir / name).is_file()]
    for left in ('*.tmp', '*orbax-checkpoint-tmp*', NAME, 'damaged'):
      wrong += map(str, workdir.rglob(left))
    self.faults += [f'{kind}: {name}' for name in wrong]

  def _disturb(self, kind: str, workdir: pathlib.Path) -> None:
    """Starts training, and disturbs it once at a random moment."""
    processes = [self._start(self._words(workdir))]
    # Ctrl-C before a command has begun is Python's own traceback.
    least = self._rng.randrange(kind == 'interrupt', self._amount)
    until = time.monotonic() + PATIENCE
    while processes[0].is_alive() and time.monotonic() < until:
      if amount(workdir) >= least:
        time.sleep(self._rng.choice((0, 0.2)) * self._rng.random())
        break
      time.sleep(0.002)
    if kind in SENT:
      with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(processes[0].pid, SENT[kind])
    else:
      judge = ['evaluate', f'--workdir={workdir}', '--split=dev']
      second = self._words(workdir) if kind == 'twice' else judge
      processes.append(self._start(second))
    for process in processes:
      self._end(process, SENT.get(kind, 0))

  def _start(self, words: Sequence[str]) -> multiprocessing.Process:
    log = self._folder / f'{time.monotonic_ns()}.log'
    process = self._processes.Process(target=run_command, args=(words, log))
    process.log = log
    process.start()
    return process

  def _end(self, process: multiprocessing.Process, sent: int = 0) -> int:
    """Waits for a process, and notes its hang or its traceback."""
    process.join(PATIENCE)
    hangs = process.exitcode is None
    if hangs:
      os.kill(process.pid, signal.SIGABRT)  # prints what all threads are doing
      process.join(10)
      process.kill()
      process.join()
    log, code = process.log, process.exitcode
    output = log.read_text(errors='replace') if log.exists() else ''
    errors = 'Traceback', 'Exception ignored', 'Fatal Python error'
    dead = code < 0 and code != -sent
    if hangs or dead or any(error in output for error in errors):
      self.faults.append(f'exit code {code}, hangs: {hangs}: {output}')
    return code


def amount(workdir: pathlib.Path) -> int:
  """Returns how much was written: the number of files and records."""
  n_files = sum(len(files) for _, _, files in os.walk(workdir))
  path = workdir / 'metrics.jsonl'
  return n_files + (path.read_bytes().count(b'\n') if path.exists() else 0)


def results(workdir: pathlib.Path) -> dict[str, object]:
  """Returns the files of a run, its records and its last checkpoint.

  Files that have the time of the run must be there, with any content.
  """
  found: dict[str, object] = {'records': records(workdir)}
  for path in workdir.rglob('*'):
    name = path.relative_to(workdir).as_posix()
    if path.is_file() and name not in MINE and '.tmp' not in name:
      top = name.partition('/')[0]
      timed = top in WITH_TIME
      found[top if timed else name] = None if timed else path.read_bytes()
  # A run that is asked to stop saves a step between the usual ones.
  complete = workdir.glob('checkpoints/*/checkpoint.json')
  steps = [int(path.parent.name) for path in complete]
  params = read_params(workdir / 'checkpoints', max(steps))
  found['steps'] = len(steps), max(steps)
  return found | {name: array.tobytes() for name, array in params.items()}


def test_attacks_leave_no_trace(monkeypatch, tmp_path):
  for name, value in {
    'JAX_NUM_CPU_DEVICES': '1',  # so that steps queue
    'JAX_COMPILATION_CACHE_DIR': str(tmp_path / 'compiled'),
    'PYTHONPATH': str(pathlib.Path(__file__).parents[2]),
  }.items():
    monkeypatch.setenv(name, value)
  attacks = Attacks(
    tmp_path, random.Random(int(os.environ.get('XJAX_KILL_SEED', 0)))
  )
  for kind in KINDS:
    attacks.attack(kind)
  assert attacks.faults == []
