"""Keeps the files of a sweep, and builds the command of each of its runs."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os
import pathlib
import pprint
import shlex
from typing import Any

from xjax.core.atomic import (
  atomic_write,
  remove_temporaries,
  write_json,
  writing,
)
from xjax.core.console import command_words
from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import locked
from xjax.models.config_json import diff, from_json, to_json
from xjax.models.contract import Config
from xjax.run.named_configs import from_file
from xjax.sweep.config import Sweep, Tpe
from xjax.sweep.launchers import Launcher, TrialPaths, job_words, train_words
from xjax.sweep.trials import (
  check_sweep,
  describe_values,
  fixed_trials,
  metric_of,
  override,
)
from xjax.train.workdir import read_json

_CONFIG_FILE = """
from xjax.models.config_json import from_json
from xjax.models.contract import Config

_CONFIG = {}


def get_config() -> Config:
  return from_json(_CONFIG, Config)
"""


@dataclasses.dataclass(frozen=True)
class SweepFolder:
  path: pathlib.Path

  @classmethod
  def at(cls, path: str | os.PathLike) -> 'SweepFolder':
    """Returns a sweep folder, even new; a ConfigError for a run's workdir."""
    folder = cls(pathlib.Path(os.path.expanduser(path)).absolute())
    if (folder.path / 'config.json').exists():
      raise ConfigError(
        f'{folder.path}: is the workdir of a run, not of a sweep; choose '
        'another folder'
      )
    return folder

  @property
  def sweep(self) -> pathlib.Path:
    return self.path / 'sweep.json'

  @property
  def store(self) -> pathlib.Path:
    return self.path / 'sweep.db'

  @property
  def best(self) -> pathlib.Path:
    return self.path / 'best.py'

  def place(self, number: int, seed: int | None) -> TrialPaths:
    """Returns the paths of a run; seed is None if trials have only one seed."""
    name = f'{number:04d}' + ('' if seed is None else f'_seed{seed}')
    return TrialPaths(
      self.path / 'trials' / name,
      self.path / 'configs' / f'{name}.py',
      self.path / 'logs' / f'{name}.txt',
    )

  @contextlib.contextmanager
  def lock(self) -> Iterator[int]:
    """Makes and locks the folder; a ConfigError says who else has locked it."""
    # Unfinished files of a killed sweep are removed. The workdirs of trials are
    # left alone: each run looks after its own.
    with contextlib.ExitStack() as stack:
      try:
        lock = stack.enter_context(locked(self.path))
      except ConfigError as error:  # it may name a sweep that has been killed
        raise ConfigError(
          f'{error}. The runs of a killed sweep may still be saving for some '
          'seconds'
        ) from error
      for folder in ('trials', 'configs', 'logs'):
        with writing(self.path / folder):
          (self.path / folder).mkdir(exist_ok=True)
      for files in (self.sweep.name, self.best.name, 'configs/*'):
        remove_temporaries(self.path, files)
      yield lock

  def open(self, sweep: Sweep, config: Config, seeds: int) -> None:
    """Checks that a resumed sweep has the same settings; writes sweep.json.

    A ConfigError shows differences; a DataError says that sweep.json is
    damaged.
    """
    if isinstance(sweep.search, Tpe):  # whose number of trials may change
      search = dataclasses.replace(sweep.search, n_trials=0)
      sweep = dataclasses.replace(sweep, search=search)
    new = {'sweep': repr(sweep), 'config': to_json(config), 'seeds': seeds}
    if not self.sweep.exists():
      write_json(self.sweep, new)
      return
    old = read_json(self.sweep)
    try:
      before = from_json(old['config'], Config)
    except (KeyError, ConfigError) as error:
      raise DataError(
        f'{self.sweep}: does not describe a sweep of xjax ({error})'
      ) from error
    faults = [
      f'{name}: {old.get(name)} -> {new[name]}'
      for name in ('sweep', 'seeds')
      if old.get(name) != new[name]
    ]
    faults += [f'config.{difference}' for difference in diff(before, config)]
    if faults:
      raise ConfigError(
        f'{self.path} was started with another sweep:\n  '
        + '\n  '.join(faults)
        + '\nchoose a new workdir, or use the same sweep as before'
      )


@dataclasses.dataclass(frozen=True)
class TrialRun:
  config: Config
  place: TrialPaths


@dataclasses.dataclass(frozen=True)
class SweepSession:
  sweep: Sweep
  config: Config  # the config whose fields the trials set
  folder: SweepFolder
  seeds: int = 1  # number of seeds of a trial, from config.seed on
  launcher: Launcher = Launcher.LOCAL
  train: Sequence[str] = ()  # training command; () means xjax train
  imports: Sequence[str] = ()  # modules of the user, which each run imports

  @property
  def metric(self) -> str:
    return metric_of(self.sweep, self.config)

  @contextlib.contextmanager
  def start(self) -> Iterator[int]:
    """Checks the sweep; locks its folder, by the file that it gives."""
    check_sweep(self.sweep, self.config, self.seeds)
    with self.folder.lock() as lock:
      self.folder.open(self.sweep, self.config, self.seeds)
      yield lock

  def runs(self, number: int, values: Mapping[str, Any]) -> list[TrialRun]:
    """Returns the runs of a trial, and writes the config file of each run."""
    config = override(self.config, values)
    runs = []
    for seed in range(config.seed, config.seed + self.seeds):
      place = self.folder.place(number, seed if self.seeds > 1 else None)
      runs.append(TrialRun(dataclasses.replace(config, seed=seed), place))
      remark = f'Trial {number}: {describe_values(values)}'
      write_config_file(place.config, runs[-1].config, [remark])
    return runs

  def command(self, place: TrialPaths) -> list[str]:
    options = [f'--config={place.config}', f'--workdir={place.workdir}']
    train = self.train or train_words(self.launcher)
    job = job_words(self.launcher, place)
    return [*job, *train, *self.import_flags, *options]

  @property
  def import_flags(self) -> list[str]:
    return [f'--import={name}' for name in self.imports]

  def train_again(self, config: pathlib.Path) -> str:
    """Returns a command that trains again with a config file of this sweep."""
    words = [*self.import_flags, f'--config={config}']
    return f'{command_words()} train {shlex.join(words)} --workdir=DIR'

  def commands(self) -> Iterator[str]:
    """Yields the shell command of every run, and writes the config files."""
    # A ConfigError says that trials depend on results of earlier trials.
    rows = fixed_trials(self.sweep.search)
    if rows is None:
      raise ConfigError(
        f'{type(self.sweep.search).__name__}(...) chooses each trial by '
        'the results of earlier trials, so there are no commands to print '
        'beforehand; use --launcher=local, or search with Grid or Listed'
      )
    with self.start():
      for number, values in enumerate(rows):
        for run in self.runs(number, values):
          yield shlex.join(self.command(run.place))


def read_sweep(name: str) -> Sweep:
  """Returns the sweep of FILE.py, or of FILE.py:NAME by get_sweep(NAME)."""
  return from_file(name, 'get_sweep', Sweep)


def write_config_file(
  path: str | os.PathLike, config: Config, remarks: Sequence[str]
) -> None:
  """Writes a config file that needs no other; remarks are comments on top."""
  tree = pprint.pformat(to_json(config), width=76, sort_dicts=False)
  comments = ''.join(f'{f"# {line}".rstrip()}\n' for line in remarks)
  with atomic_write(path) as file:
    file.write(comments + _CONFIG_FILE.format(tree))
