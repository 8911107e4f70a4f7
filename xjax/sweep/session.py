"""Writes a config file, and builds a command, for each run of a sweep."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import pathlib
import shlex
from typing import Any

from xjax.core.console import command_words
from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.sweep.config import Sweep
from xjax.sweep.folder import Place, SweepFolder
from xjax.sweep.launchers import Launcher, job_words, train_words
from xjax.sweep.overrides import override
from xjax.sweep.sweep_check import check_sweep, describe_values, metric_of
from xjax.sweep.sweep_file import write_config
from xjax.sweep.trials import fixed_trials


@dataclasses.dataclass(frozen=True)
class TrialRun:
  """Holds the config, with the run's seed, and the files of a trial's run."""

  config: Config
  place: Place


@dataclasses.dataclass(frozen=True)
class SweepSession:
  """Holds a sweep with its config, its folder and its launcher."""

  sweep: Sweep
  config: Config  # the config whose fields the trials set
  folder: SweepFolder
  seeds: int = 1  # number of seeds of a trial, from config.seed on
  launcher: Launcher = Launcher.LOCAL
  train: Sequence[str] = ()  # training command; () means xjax train
  imports: Sequence[str] = ()  # modules of the user, which each run imports

  @property
  def metric(self) -> str:
    """Returns the 'slice/metric' on dev by which trials are compared."""
    return metric_of(self.sweep, self.config)

  @contextlib.contextmanager
  def start(self) -> Iterator[None]:
    """Checks the sweep, and locks its folder until the context is left.

    Raises:
      ConfigError: a field of the sweep is wrong, another process has locked the
        folder, or the sweep in the folder has other settings.
      DataError: a file of the folder is damaged.
    """
    check_sweep(self.sweep, self.config, self.seeds)
    with self.folder.lock():
      self.folder.open(self.sweep, self.config, self.seeds)
      yield

  def runs(self, number: int, values: Mapping[str, Any]) -> list[TrialRun]:
    """Returns the runs of a trial, and writes the config file of each run."""
    config = override(self.config, values)
    runs = []
    for seed in range(config.seed, config.seed + self.seeds):
      place = self.folder.place(number, seed if self.seeds > 1 else None)
      runs.append(TrialRun(dataclasses.replace(config, seed=seed), place))
      remark = f'Trial {number}: {describe_values(values)}'
      write_config(place.config, runs[-1].config, [remark])
    return runs

  def command(self, place: Place) -> list[str]:
    """Returns the words of the command that starts or resumes a run."""
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
    """Yields the shell command of every run, and writes the config files.

    Raises:
      ConfigError: trials depend on the results of earlier trials, or start()
        fails.
    """
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
