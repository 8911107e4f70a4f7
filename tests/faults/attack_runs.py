"""Kills commands, starts them twice and litters their folders, at random.

  python -m tests.faults.attack_runs --kills=200 --seed=0

Each attack starts a small command (see attacked_commands.py), and does one of
these things at a random moment: SIGKILL, SIGTERM, Ctrl-C, a second start of the
same command, or another command with the same files at the same time. After
some attacks, it puts files of a user into the folder. Then the command is
started again until it has finished, and its results are compared with those of
a command that nothing happened to. The table counts, by command and by kind of
attack:

- hits: attacks after which a process had not finished its work
- tracebacks, and deaths by a signal that nobody has sent
- silent losses: files, records or scores differ, or files of the user are gone;
  or a reader would accept files of which some are older than the others
- leftovers: temporary files
- hangs

Processes are forked from a server that has imported the libraries, but has not
started JAX. So an attack costs no imports. The runs of sweeps are processes of
their own.
"""

import argparse
import atexit
import collections
from collections.abc import Callable, Iterator, Sequence
import contextlib
import faulthandler
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
from unittest import mock

from tests.faults.attacked_commands import (
  AttackedCommand,
  AttackedFit,
  AttackedPredict,
  AttackedSweep,
  linear,
  neural,
  tree,
)
from xjax.core.processes.lock import NAME

KINDS = 'kill', 'terminate', 'interrupt', 'twice', 'other'
FAULTS = 'tracebacks', 'silent losses', 'leftovers', 'hangs'
COLUMNS = 'attacks', 'hits', *FAULTS
ROOT = pathlib.Path(__file__).parents[2]
PATIENCE = 120  # seconds until a process counts as hanging
_SENT = {
  'kill': signal.SIGKILL,
  'terminate': signal.SIGTERM,
  'interrupt': signal.SIGINT,
}
# Modules that the server imports before it forks.
_PRELOADED = (
  *('optuna', 'sqlalchemy.dialects.sqlite', 'orbax.checkpoint', 'tensorboardX'),
  *(
    'xjax.models.neural.neural_model',
    'xjax.models.linear.linear_model',
    'xjax.run.evaluate',
    'xjax.run.predict_file',
  ),
  *('xjax.report.card', 'xjax.report.terminal.fitted'),
  *('xjax.report.terminal.sweep', 'xjax.sweep.workers'),
  'tests.faults.attacked_commands',
)


class Attacks:
  """Attacks commands, and counts faults.

  Attributes:
    counts: (command or kind of attack, column) -> number.
  """

  def __init__(self, folder: pathlib.Path, rng: random.Random) -> None:
    """Runs each command without an attack.

    Args:
      folder: the folder of all files.
      rng: draws the attacks and their moments.
    """
    self.counts = collections.Counter()
    self._folder, self._rng = folder, rng
    self._processes = multiprocessing.get_context('forkserver')
    self._processes.set_forkserver_preload(list(_PRELOADED))
    self._number = 0
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
      self._run_whole(command.words(workdir))
      self._whole[command.name] = command.results(workdir), _amount(workdir)
    self._run_whole(predict.other(predict.old))

  def draw(self) -> tuple[AttackedCommand, str]:
    """Returns a random command and a random kind of attack."""
    weights = [command.weight for command in self.commands]
    (command,) = self._rng.choices(self.commands, weights)
    return command, self._rng.choice(KINDS)

  def attack(self, command: AttackedCommand, kind: str) -> None:
    """Makes one attack at a random moment, and counts its faults."""
    self._number += 1
    names = command.name, kind, 'all'

    def count(fault: str, number: int = 1) -> None:
      for name in names:
        self.counts[name, fault] += number

    workdir = self._folder / str(self._number)
    command.prepare(workdir)
    self._disturb(kind, command, workdir, count)
    lost = command.torn(workdir)
    mine = command.mine if self._rng.random() < 0.5 else ()
    litter = _litter(workdir, mine) if command.has_begun(workdir) else ()
    ended = self._finish(command.words(workdir), count)
    expected, _ = self._whole[command.name]
    lost += _differences(command.results(workdir) if ended else {}, expected)
    lost += [name for name in litter if not (workdir / name).is_file()]
    left = _leftovers(workdir)
    if lost or left:
      said = f'{self._number} {command.name} {kind}: {lost}, {left}'
      print(said, file=sys.stderr)
    count('attacks')
    count('silent losses', len(lost))
    count('leftovers', len(left))
    if ended:
      shutil.rmtree(workdir)

  def table(self) -> str:
    """Returns the counts, with a row for each command and kind of attack."""
    names = *(command.name for command in self.commands), *KINDS, 'all'
    rows = [('', *COLUMNS)]
    rows += [(name, *(self.counts[name, c] for c in COLUMNS)) for name in names]
    return '\n'.join(''.join(f'{x:>15}' for x in row) for row in rows)

  def _run_whole(self, words: Sequence[str]) -> None:
    """Runs a command without an attack."""
    faults = []
    process = self._start(words)
    self._end(process, lambda fault: faults.append(fault))
    if faults or process.exitcode:
      raise RuntimeError(f'{words}: {process.exitcode}: {process.log}')

  def _disturb(
    self,
    kind: str,
    command: AttackedCommand,
    workdir: pathlib.Path,
    count: Callable[[str], None],
  ) -> None:
    """Starts a command, and disturbs it once at a random moment."""
    _, amount = self._whole[command.name]
    before = _amount(workdir)
    processes = [self._start(command.words(workdir))]
    # Ctrl-C before a command has begun is Python's own traceback.
    least = before + self._rng.randrange(kind == 'interrupt', amount)
    until = time.monotonic() + PATIENCE
    while processes[0].is_alive() and time.monotonic() < until:
      if _amount(workdir) >= least:
        time.sleep(self._rng.choice((0, 0.2)) * self._rng.random())
        break
      time.sleep(0.002)
    if kind in _SENT:
      with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(processes[0].pid, _SENT[kind])
    else:
      second = command.words if kind == 'twice' else command.other
      processes.append(self._start(second(workdir)))
    for process in processes:
      self._end(process, count, _SENT.get(kind, 0))
    if any(process.exitcode for process in processes):
      count('hits')

  def _finish(self, words: Sequence[str], count: Callable[[str], None]) -> bool:
    """Starts a command until it has finished; returns whether it has."""
    for _ in range(3):
      process = self._start(words)
      self._end(process, count)
      if process.exitcode == 0:
        return True
    return False

  def _start(self, words: Sequence[str]) -> multiprocessing.Process:
    handle, log = tempfile.mkstemp(dir=self._folder)
    os.close(handle)
    process = self._processes.Process(target=run_command, args=(words, log))
    process.log = pathlib.Path(log)
    process.start()
    return process

  def _end(
    self,
    process: multiprocessing.Process,
    count: Callable[[str], None],
    sent: int = 0,
  ) -> None:
    """Waits for a process, and counts its hang or its traceback."""
    process.join(PATIENCE)
    if process.exitcode is None:
      count('hangs')
      sent = signal.SIGABRT
      os.kill(process.pid, sent)  # prints what all threads are doing
      process.join(10)
      process.kill()
      process.join()
      print(process.log.read_text(errors='replace'), file=sys.stderr)
    output, code = process.log.read_text(errors='replace'), process.exitcode
    process.log.unlink()
    errors = 'Traceback', 'Exception ignored', 'Fatal Python error'
    if any(e in output for e in errors) or (code < 0 and code != -sent):
      count('tracebacks')
      print(f'exit code {code}: {output}', file=sys.stderr)


def run_command(words: Sequence[str], log: str) -> None:
  """Runs the command `xjax`, and ends the process with its exit code.

  Args:
    words: the words of the command.
    log: file for the output.
  """
  from xjax.commands.main import main

  file = os.open(log, os.O_WRONLY | os.O_APPEND)
  os.dup2(file, 1)
  os.dup2(file, 2)
  faulthandler.enable(file)
  sys.argv = ['xjax', *words]
  try:
    main()
  finally:
    atexit._run_exitfuncs()  # multiprocessing leaves them out


def _amount(workdir: pathlib.Path) -> int:
  """Returns how much was written: the number of files and records."""
  n_files = sum(len(files) for _, _, files in os.walk(workdir))
  path = workdir / 'metrics.jsonl'
  return n_files + (path.read_bytes().count(b'\n') if path.exists() else 0)


def _litter(workdir: pathlib.Path, names: Sequence[str]) -> Sequence[str]:
  """Puts files of a user into a folder, and returns their names."""
  for name in names:
    path = workdir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('mine')
  return names


def _differences(
  results: dict[str, object], expected: dict[str, object]
) -> list[str]:
  """Returns the names of results that are missing, new or different."""
  names = results.keys() | expected.keys()
  absent = object()
  return sorted(
    n for n in names if results.get(n, absent) != expected.get(n, absent)
  )


def _leftovers(workdir: pathlib.Path) -> list[str]:
  """Returns the temporary files that no process uses any more."""
  names = ('*.tmp', '*orbax-checkpoint-tmp*', NAME, 'damaged')
  paths = [path for name in names for path in workdir.rglob(name)]
  return [path.relative_to(workdir).as_posix() for path in paths]


@contextlib.contextmanager
def attacking(seed: int) -> Iterator[Attacks]:
  """Yields Attacks in a temporary folder."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix='xjax_attacks_'))
  environment = {
    'JAX_NUM_CPU_DEVICES': '1',
    'JAX_COMPILATION_CACHE_DIR': str(folder / 'compiled'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    'XJAX_CACHE_DIR': str(folder / 'cache'),
    'PYTHONPATH': str(ROOT),
  }
  try:
    with mock.patch.dict(os.environ, environment):
      yield Attacks(folder, random.Random(seed))
  finally:
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--kills', type=int, default=200)
  parser.add_argument('--seed', type=int, default=0)
  options = parser.parse_args()
  with attacking(options.seed) as attacks:
    for _ in range(options.kills):
      attacks.attack(*attacks.draw())
    print(attacks.table())


if __name__ == '__main__':
  main()
