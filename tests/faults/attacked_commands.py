"""Commands that test_attack_runs.py attacks, and what they must give."""

import abc
import atexit
from collections.abc import Iterator, Sequence
import dataclasses
import faulthandler
import json
import os
import pathlib
import shutil
import sys

from tests.fixtures.shrink import shrink
from tests.fixtures.sparse_runs import RUNS, config_of
from tests.run.small_runs import records
from xjax.models.contract import Config
from xjax.models.linear.linear_model import LinearModel, LinearTrain
from xjax.sweep.config import Grid, Sweep
from xjax.sweep.session import SweepFolder, write_config
from xjax.sweep.store import Store
from xjax.train.checkpoint import read_params

_COMPLETE = 'checkpoints/*/checkpoint.json'
N_TEST = 20
# The contents of these files and folders of a run depend on the time.
_WITH_TIME = 'tb', 'checkpoints', 'README.md', 'run.json', 'metrics.jsonl'
_TEXTS = tuple(f'{{"text": "nipa buvu {number}"' for number in range(40))


class AttackedCommand(abc.ABC):
  """A command, and how its results are compared."""

  name: str
  # Files that a user may put into the workdir, by path.
  mine: tuple[str, ...] = ('notes.txt', '.metrics.jsonl.swp')

  @abc.abstractmethod
  def words(self, workdir: pathlib.Path) -> list[str]:
    """Returns the words of the command that is attacked."""

  @abc.abstractmethod
  def other(self, workdir: pathlib.Path) -> list[str]:
    """Returns the words of another command that uses the same files."""

  @abc.abstractmethod
  def results(self, workdir: pathlib.Path) -> dict[str, object]:
    """Returns what must be the same whatever happened to the command."""

  def prepare(self, workdir: pathlib.Path) -> None:
    """Makes the files that are there before the command starts."""
    del workdir

  def has_begun(self, workdir: pathlib.Path) -> bool:
    """Returns whether the folder may get files of a user.

    A run refuses a workdir with checkpoints/ but no config.json. So nothing is
    put into the workdir of a run that has not begun.
    """
    return (workdir / 'config.json').exists()

  def torn(self, workdir: pathlib.Path) -> list[str]:
    """Returns the faults of a stopped command that no reader would notice."""
    return []


class AttackedFit(AttackedCommand):
  """Training of one model."""

  def __init__(
    self, name: str, config: Config, folder: pathlib.Path, *mine: str
  ) -> None:
    self.name, self.mine = name, self.mine + mine
    self._config = folder / f'{name}.py'
    write_config(self._config, config, [])

  def words(self, workdir: pathlib.Path) -> list[str]:
    return ['train', f'--config={self._config}', f'--workdir={workdir}']

  def other(self, workdir: pathlib.Path) -> list[str]:
    return ['evaluate', f'--workdir={workdir}', '--split=dev']

  def results(self, workdir: pathlib.Path) -> dict[str, object]:
    return _run_results(workdir, self.mine)


class AttackedSweep(AttackedCommand):
  """Two trials at a time, each a process of its own."""

  name = 'sweep'
  mine = ('notes.txt', 'trials/notes.txt', 'configs/.0000.py.swp')
  sweep = Sweep(Grid({'train.c': (0.1, 1.0)}), metric='all/RP@5')

  def __init__(self, folder: pathlib.Path) -> None:
    self._config = folder / 'sweep.py'
    write_config(self._config, linear(), [])
    with self._config.open('a') as file:
      file.write(
        '\n\nfrom xjax.sweep.config import *\n\n\n'
        f'def get_sweep():\n  return {self.sweep!r}\n'
      )

  def words(self, workdir: pathlib.Path) -> list[str]:
    config, folder = f'--config={self._config}', f'--workdir={workdir}'
    return ['sweep', config, folder, '--workers=2']

  def other(self, workdir: pathlib.Path) -> list[str]:
    trial = SweepFolder(workdir).place(0, None).workdir
    return ['evaluate', f'--workdir={trial}', '--split=dev']

  def has_begun(self, workdir: pathlib.Path) -> bool:
    return (workdir / 'sweep.json').exists()

  def results(self, workdir: pathlib.Path) -> dict[str, object]:
    folder = SweepFolder(workdir)
    store = Store(folder.store, self.sweep.search, self.sweep.pruning)
    trials = [(x.state, x.value, x.params) for x in store.trials()]
    results: dict[str, object] = {'trials': trials}
    for path in _files(workdir, self.mine):
      name = path.relative_to(workdir).as_posix()
      if path.suffix == '.py':
        here = str(workdir).encode()
        results[name] = path.read_bytes().replace(here, b'')
      elif not name.startswith('trials/'):
        results[name] = None  # the file must be there
    for number in range(len(store)):
      trial = folder.place(number, None).workdir
      results |= {
        f'{number}/{name}': value
        for name, value in _run_results(trial, ()).items()
      }
    return results


class AttackedPredict(AttackedCommand):
  """Predictions that replace older predictions with more files."""

  name = 'predict'
  mine = ('X.txt', 'X.html', '.X.jsonl.swp')

  def __init__(self, run: pathlib.Path, folder: pathlib.Path) -> None:
    self._run = run
    self._plain, self._labelled = folder / 'plain.jsonl', folder / 'gold.jsonl'
    self._plain.write_text(''.join(f'{text}}}\n' for text in _TEXTS))
    gold = ', "labels": ["L0"]}\n'
    self._labelled.write_text(''.join(text + gold for text in _TEXTS))
    self.old = folder / 'old'

  def words(self, workdir: pathlib.Path) -> list[str]:
    return self._words(workdir, self._plain, 5)

  def other(self, workdir: pathlib.Path) -> list[str]:
    return self._words(workdir, self._labelled, 2)

  def prepare(self, workdir: pathlib.Path) -> None:
    if self.old.exists():
      shutil.copytree(self.old, workdir)

  def has_begun(self, workdir: pathlib.Path) -> bool:
    return True

  def results(self, workdir: pathlib.Path) -> dict[str, object]:
    return {path.name: path.read_bytes() for path in _files(workdir, self.mine)}

  def torn(self, workdir: pathlib.Path) -> list[str]:
    files = self.results(workdir)
    mark = json.loads(files.get('X.judged.json', '{}'))
    if mark.get('unfinished'):
      return []  # readers refuse such files
    sets = {name for name in files if name.startswith('X.')}
    return sorted(sets ^ {*mark.get('files', ()), *sets & {'X.judged.json'}})

  def _words(
    self, workdir: pathlib.Path, source: pathlib.Path, k: int
  ) -> list[str]:
    output = f'--output={workdir / "X.jsonl"}'
    run = f'--workdir={self._run}'
    return ['predict', run, f'--input={source}', output, f'--k={k}']


def environment(folder: pathlib.Path) -> dict[str, str]:
  """Returns variables for runs on one CPU device, so that steps queue.

  What they compile and prepare is kept in the folder.
  """
  return {
    'JAX_NUM_CPU_DEVICES': '1',
    'JAX_COMPILATION_CACHE_DIR': str(folder / 'compiled'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    'XJAX_CACHE_DIR': str(folder / 'cache'),
    'PYTHONPATH': str(pathlib.Path(__file__).parents[2]),
  }


def neural() -> Config:
  """Returns a config with dropout, several epochs and many checkpoints."""
  small = shrink(Config())
  return dataclasses.replace(
    small,
    data=dataclasses.replace(small.data, n_train=48),
    train=dataclasses.replace(
      small.train,
      steps=24,
      log_every=2,
      checkpoint_every=3,
      judge_every=8,
      learning_rate=0.01,
      keep=2,
    ),
  )


def linear() -> Config:
  """Returns the config of a linear run, which saves two parts."""
  return config_of(LinearModel(), LinearTrain())


def tree() -> Config:
  """Returns the config of a calibrated label tree with a test split."""
  config = config_of(*RUNS['plt'])
  data = dataclasses.replace(config.data, n_test=N_TEST)
  return dataclasses.replace(config, data=data)


def run_command(words: Sequence[str], log: str) -> None:
  """Runs `xjax` with a file for its output, and ends its process."""
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


def _run_results(
  workdir: pathlib.Path, mine: Sequence[str]
) -> dict[str, object]:
  """Returns the files of a run, its records and its checkpoints.

  Files that have the time of the run must be there, with any content.
  """
  results: dict[str, object] = {}
  for path in _files(workdir, mine):
    name = path.relative_to(workdir).as_posix()
    top = name.partition('/')[0]
    if top in _WITH_TIME:
      results[top] = None
    else:
      results[name] = path.read_bytes()
  # A run that is asked to stop saves a step between the usual ones.
  steps = [int(path.parent.name) for path in workdir.glob(_COMPLETE)]
  results['steps'] = len(steps), max(steps, default=0)
  if steps:
    params = read_params(workdir / 'checkpoints', max(steps))
    results |= {name: array.tobytes() for name, array in params.items()}
  results['records'] = []
  if (workdir / 'metrics.jsonl').exists():
    results['records'] = records(workdir)
  return results


def _files(
  folder: pathlib.Path, without: Sequence[str]
) -> Iterator[pathlib.Path]:
  """Yields the files of a folder without those of the user and temporaries."""
  for path in sorted(folder.rglob('*')):
    name = path.relative_to(folder).as_posix()
    if path.is_file() and name not in without and '.tmp' not in name:
      yield path
