"""Kills, starts twice and litters runs at random, and counts what goes wrong.

  python -m tests.faults.attack_runs --kills=200 --seed=0

Each attack starts a small run and does one of these things at a random moment:
SIGKILL, SIGTERM, a second start of the same command, or an evaluation at the
same time. After some attacks, it puts files of a user into the workdir. Then
the run is started again until it has finished, and is compared with a run that
nothing happened to. The table at the end counts, for each kind
of attack: tracebacks, silent losses (exit code 0 or 75, but records, files or
scores differ; or files of the user are gone), leftovers (temporary files) and
hangs.
"""

import argparse
from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from xjax.config.json import to_json
from xjax.config.run import Config, shrink
from xjax.core.processes.lock import NAME
from xjax.train.writers import CLOCK_FIELDS

TESTS = pathlib.Path(__file__).parents[1]
FIT = TESTS / 'run' / 'fit_process.py'
EVALUATE = 'import sys; from xjax.run.evaluate import evaluate_split as e'
JUDGE = f"""{EVALUATE}
from xjax.core.errors import UserError
try:
  e(sys.argv[1], 'dev')
except UserError as error:
  sys.exit(f'error: {{error}}')
"""
KINDS = 'kill', 'terminate', 'twice', 'evaluate'
FAULTS = 'tracebacks', 'silent losses', 'leftovers', 'hangs'
PATIENCE = 120  # seconds until a process counts as hanging
STEPS = 24

# Files that a user may put into a workdir, by path.
MINE = (
  'notes.txt',
  'checkpoints/3.bak/params',
  'checkpoints/3.tar',
  'eval/dev/.predictions.npz.mine',
  '.metrics.jsonl.swp',
)


@dataclasses.dataclass
class Attacks:
  """Attacks the run of a config, and counts faults.

  Attributes:
    folder: the folder of all workdirs.
    rng: draws the attacks and their moments.
  """

  folder: pathlib.Path
  rng: random.Random

  def __post_init__(self) -> None:
    self.counts = {kind: dict.fromkeys(('runs', *FAULTS), 0) for kind in KINDS}
    self.config = self.folder / 'config.json'
    self.config.write_text(json.dumps(to_json(_config())))
    self.environment = {
      **os.environ,
      'JAX_NUM_CPU_DEVICES': '1',
      'JAX_COMPILATION_CACHE_DIR': str(self.folder / 'compiled'),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
      'XJAX_CACHE_DIR': str(self.folder / 'cache'),
      'PYTHONPATH': str(TESTS.parent),
    }
    self.whole = self.folder / 'whole'
    process = self._start(self.whole)
    code, output = process.wait(PATIENCE), self._output(process)
    if code:
      raise RuntimeError(output)
    self.expected = _results(self.whole)

  def attack(self, number: int) -> None:
    """Makes one attack, and counts its faults."""
    kind = self.rng.choice(KINDS)
    count = self.counts[kind]
    count['runs'] += 1
    workdir = self.folder / str(number)
    mine = MINE if self.rng.random() < 0.5 else ()
    self._disturb(kind, workdir, count)
    litter = _litter(workdir, mine)
    ended = self._finish(workdir, count)
    lost = _differences(_results(workdir) if ended else {}, self.expected)
    lost += [name for name in litter if not (workdir / name).is_file()]
    if lost:
      print(f'attack {number} ({kind}): {lost}', file=sys.stderr)
    count['silent losses'] += len(lost)
    count['leftovers'] += len(_leftovers(workdir))
    if ended:
      shutil.rmtree(workdir)

  def table(self) -> str:
    """Returns the counts as a table with a row for each kind of attack."""
    rows = [('attack', 'runs', *FAULTS)]
    rows += [(kind, *map(str, self.counts[kind].values())) for kind in KINDS]
    return '\n'.join('  '.join(f'{x:>13}' for x in row) for row in rows)

  def _disturb(
    self, kind: str, workdir: pathlib.Path, count: dict[str, int]
  ) -> None:
    """Starts a run, and disturbs it once at a random moment."""
    first = self._start(workdir)
    self._wait(first, workdir, self.rng.randrange(STEPS))
    time.sleep(self.rng.random() * 0.2)
    others = []
    if kind == 'kill':
      first.kill()
    elif kind == 'terminate':
      first.send_signal(signal.SIGTERM)
    elif kind == 'twice':
      others = [self._start(workdir)]
    else:
      others = [self._start(workdir, ('-c', JUDGE, str(workdir)))]
    for process in (first, *others):
      self._end(process, count)

  def _finish(self, workdir: pathlib.Path, count: dict[str, int]) -> bool:
    """Starts the run until it has finished; returns whether it has."""
    for _ in range(3):
      process = self._start(workdir)
      self._end(process, count)
      if process.returncode == 0:
        return True
    return False

  def _start(
    self, workdir: pathlib.Path, command: Sequence[str] = ()
  ) -> subprocess.Popen:
    log = tempfile.TemporaryFile('w+', dir=self.folder)
    process = subprocess.Popen(
      [
        sys.executable,
        *(command or (str(FIT), str(self.config), str(workdir))),
      ],
      env=self.environment,
      stdout=log,
      stderr=subprocess.STDOUT,
    )
    process.log = log
    return process

  def _wait(
    self, process: subprocess.Popen, workdir: pathlib.Path, step: int
  ) -> None:
    """Waits until the run has written a step, or has ended."""
    until = time.monotonic() + PATIENCE
    path = workdir / 'metrics.jsonl'
    while process.poll() is None and time.monotonic() < until:
      if not step or (path.exists() and _last_step(path) >= step):
        return
      time.sleep(0.005)

  def _end(self, process: subprocess.Popen, count: dict[str, int]) -> None:
    """Waits for a process, and counts its hang or its tracebacks."""
    try:
      process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
      count['hangs'] += 1
      process.kill()
      process.wait()
    output = self._output(process)
    if 'Traceback' in output or 'Exception ignored' in output:
      count['tracebacks'] += 1
      print(output, file=sys.stderr)

  def _output(self, process: subprocess.Popen) -> str:
    process.log.seek(0)
    with process.log as log:
      return log.read()


def _config() -> Config:
  small = shrink(Config())
  return dataclasses.replace(
    small,
    data=dataclasses.replace(small.data, n_train=48),
    train=dataclasses.replace(
      small.train,
      steps=STEPS,
      log_every=2,
      checkpoint_every=3,
      judge_every=8,
      learning_rate=0.01,
      keep=2,
    ),
  )


def _litter(workdir: pathlib.Path, names: Sequence[str]) -> Sequence[str]:
  """Puts files of a user into a workdir, and returns their names.

  A run refuses a workdir with checkpoints/ but no config.json. So nothing is
  put into the workdir of a run that has not begun.
  """
  if not (workdir / 'config.json').exists():
    return ()
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
  return sorted(n for n in names if results.get(n) != expected.get(n))


def _last_step(path: pathlib.Path) -> int:
  lines = path.read_text().splitlines(True)
  steps = [json.loads(x)['step'] for x in lines if x.endswith('\n')]
  return max(steps, default=0)


def _results(workdir: pathlib.Path) -> dict[str, object]:
  """Returns what must be the same whatever happened to a run."""
  results: dict[str, object] = {}
  for path in sorted(workdir.rglob('*')):
    name = path.relative_to(workdir).as_posix()
    if name.startswith(('eval/', 'features/')) and path.suffix != '.mine':
      if path.is_file():
        results[name] = path.read_bytes()
  for name in ('calibration.json', 'labels.jsonl', 'corpus.json'):
    results[name] = (workdir / name).read_bytes()
  records = []
  for line in (workdir / 'metrics.jsonl').read_text().splitlines():
    record = json.loads(line)
    for field in CLOCK_FIELDS:
      record.pop(field, None)
    records.append(record)
  results['records'] = records
  steps = (workdir / 'checkpoints').glob('*/files.json')
  results['steps'] = sorted(path.parent.name for path in steps)
  return results


def _leftovers(workdir: pathlib.Path) -> list[pathlib.Path]:
  """Returns the temporary files that no process uses any more."""
  names = ('*.tmp', '*orbax-checkpoint-tmp*', NAME, 'damaged')
  return [path for name in names for path in workdir.rglob(name)]


def main(kills: int, seed: int) -> Attacks:
  """Makes attacks, and returns the counts of faults."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix='xjax_attacks_'))
  try:
    attacks = Attacks(folder, random.Random(seed))
    for number in range(kills):
      attacks.attack(number)
    return attacks
  finally:
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--kills', type=int, default=200)
  parser.add_argument('--seed', type=int, default=0)
  arguments = parser.parse_args()
  print(main(arguments.kills, arguments.seed).table())
