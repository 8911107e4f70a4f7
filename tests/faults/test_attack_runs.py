"""Commands that are killed, started twice and littered with a user's files.

Each attack starts a small command (see attacked_commands.py), and does one of
these things at a random moment: SIGKILL, SIGTERM, Ctrl-C, a second start of the
same command, or another command with the same files at the same time. After
some attacks, it puts files of a user into the folder. Then the command is
started again until it has finished, and its results are compared with those of
a command that nothing happened to.

Processes are forked from a server that has imported the libraries, but has not
started JAX. So an attack costs no imports. The runs of sweeps are processes of
their own.
"""

from collections.abc import Sequence
import contextlib
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import tempfile
import time

import pytest

from tests.faults.attacked_commands import (
  AttackedCommand,
  AttackedFit,
  AttackedPredict,
  AttackedSweep,
  environment,
  linear,
  neural,
  run_command,
  tree,
)
from xjax.core.processes.lock import NAME

pytestmark = pytest.mark.thorough

KINDS = 'kill', 'terminate', 'interrupt', 'twice', 'other'
PATIENCE = 120  # seconds until a process counts as hanging
SENT = {
  'kill': signal.SIGKILL,
  'terminate': signal.SIGTERM,
  'interrupt': signal.SIGINT,
}
# Modules that the server imports before it forks.
PRELOADED = (
  *('optuna', 'sqlalchemy.dialects.sqlite', 'orbax.checkpoint', 'tensorboardX'),
  *('xjax.models.neural.neural_model', 'xjax.models.linear.linear_model'),
  *('xjax.run.evaluate', 'xjax.run.predict_file', 'xjax.sweep.workers'),
  *('xjax.report.card', 'xjax.report.terminal.fitted'),
  *('xjax.report.terminal.sweep_lines', 'tests.faults.attacked_commands'),
)


class Attacks:
  """Attacks commands at moments that `rng` draws, and notes faults."""

  def __init__(self, folder: pathlib.Path, rng: random.Random) -> None:
    """Runs each command without an attack."""
    # Tracebacks, deaths by a signal that nobody has sent, hangs, results that
    # differ, files of the user that are gone, temporary files.
    self.faults: list[str] = []
    self._folder, self._rng = folder, rng
    self._processes = multiprocessing.get_context('forkserver')
    self._processes.set_forkserver_preload(list(PRELOADED))
    mine = 'checkpoints/3.bak/params', 'checkpoints/3.tar'
    predict = AttackedPredict(folder / 'tree', folder)
    self.commands: list[AttackedCommand] = [
      AttackedFit('neural', neural(), folder, *mine),
      AttackedFit('tree', tree(), folder, 'model/tree_0.parts.bak'),
      AttackedFit('linear', linear(), folder, 'model/labels.tar'),
      predict,
      AttackedSweep(folder),
    ]
    self._whole: dict[str, tuple[dict[str, object], int]] = {}
    for command in self.commands:
      workdir = folder / command.name
      assert self._end(self._start(command.words(workdir))) == 0
      self._whole[command.name] = command.results(workdir), amount(workdir)
    assert self._end(self._start(predict.other(predict.old))) == 0

  def attack(self, command: AttackedCommand, kind: str) -> None:
    """Makes one attack at a random moment, and notes its faults."""
    workdir = self._folder / f'{command.name}_{kind}'
    command.prepare(workdir)
    self._disturb(kind, command, workdir)
    wrong = command.torn(workdir)
    mine = command.mine if self._rng.random() < 0.5 else ()
    litter = put(workdir, mine) if command.has_begun(workdir) else ()
    words = command.words(workdir)
    ended = any(self._end(self._start(words)) == 0 for _ in range(3))
    expected, _ = self._whole[command.name]
    wrong += differences(command.results(workdir) if ended else {}, expected)
    wrong += [name for name in litter if not (workdir / name).is_file()]
    wrong += leftovers(workdir)
    self.faults += [f'{workdir.name}: {name}' for name in wrong]

  def _disturb(
    self, kind: str, command: AttackedCommand, workdir: pathlib.Path
  ) -> None:
    """Starts a command, and disturbs it once at a random moment."""
    _, whole = self._whole[command.name]
    before = amount(workdir)
    processes = [self._start(command.words(workdir))]
    # Ctrl-C before a command has begun is Python's own traceback.
    least = before + self._rng.randrange(kind == 'interrupt', whole)
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
      second = command.words if kind == 'twice' else command.other
      processes.append(self._start(second(workdir)))
    for process in processes:
      self._end(process, SENT.get(kind, 0))

  def _start(self, words: Sequence[str]) -> multiprocessing.Process:
    handle, log = tempfile.mkstemp(dir=self._folder)
    os.close(handle)
    process = self._processes.Process(target=run_command, args=(words, log))
    process.log = pathlib.Path(log)
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
    output, code = process.log.read_text(errors='replace'), process.exitcode
    process.log.unlink()
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


def put(workdir: pathlib.Path, names: Sequence[str]) -> Sequence[str]:
  """Puts files of a user into a folder, and returns their names."""
  for name in names:
    path = workdir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('mine')
  return names


def differences(
  results: dict[str, object], expected: dict[str, object]
) -> list[str]:
  """Returns the names of results that are missing, new or different."""
  names, absent = results.keys() | expected.keys(), object()
  return sorted(
    n for n in names if results.get(n, absent) != expected.get(n, absent)
  )


def leftovers(workdir: pathlib.Path) -> list[str]:
  """Returns the temporary files that no process uses any more."""
  names = '*.tmp', '*orbax-checkpoint-tmp*', NAME, 'damaged'
  paths = [path for name in names for path in workdir.rglob(name)]
  return [path.relative_to(workdir).as_posix() for path in paths]


def test_attacks_leave_no_trace(monkeypatch):
  folder = pathlib.Path(tempfile.mkdtemp(prefix='xjax_attacks_'))
  for name, value in environment(folder).items():
    monkeypatch.setenv(name, value)
  rng = random.Random(int(os.environ.get('XJAX_KILL_SEED', 0)))
  kinds = rng.sample(KINDS, len(KINDS))
  try:
    attacks = Attacks(folder, rng)
    for command, kind in zip(attacks.commands, kinds, strict=True):
      attacks.attack(command, kind)
  finally:
    shutil.rmtree(folder, ignore_errors=True)
  assert attacks.faults == []
