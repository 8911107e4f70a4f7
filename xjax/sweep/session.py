"""What a sweep has to do, whoever does it: configs and commands of its runs."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import pathlib
import shlex
from typing import Any

from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.sweep.config import Sweep
from xjax.sweep.folder import Place, SweepFolder
from xjax.sweep.launchers import Launcher, job_words, train_words
from xjax.sweep.overrides import overridden
from xjax.sweep.sweep_check import check_sweep, metric_of, spelled
from xjax.sweep.sweep_file import write_config
from xjax.sweep.trials import prescribed


@dataclasses.dataclass(frozen=True)
class TrialRun:
  """One run of a trial.

  Attributes:
    config: of the trial, with a seed.
    place: where it is.
  """

  config: Config
  place: Place


@dataclasses.dataclass(frozen=True)
class SweepSession:
  """A sweep in its folder.

  Attributes:
    sweep: which trials there are.
    config: that they set fields of.
    folder: where all is.
    seeds: with which each trial is run, from config.seed on.
    launcher: how runs are started.
    train: the words of the command that trains a config, other than those of
      experiments.train.
    imports: modules that define parts of the config, imported by each run.
  """

  sweep: Sweep
  config: Config
  folder: SweepFolder
  seeds: int = 1
  launcher: Launcher = Launcher.LOCAL
  train: Sequence[str] = ()
  imports: Sequence[str] = ()

  @property
  def metric(self) -> str:
    """'slice/metric' on dev by which trials are compared."""
    return metric_of(self.sweep, self.config)

  @contextlib.contextmanager
  def begun(self) -> Iterator[None]:
    """Checks the sweep, and has its folder alone while entered.

    Raises:
      ConfigError: a field of it is wrong, another process is at work in the
        folder, or it is that of another sweep.
      DataError: a file of the folder is damaged.
    """
    check_sweep(self.sweep, self.config, self.seeds)
    with self.folder.alone():
      self.folder.open(self.sweep, self.config, self.seeds)
      yield

  def runs(self, number: int, values: Mapping[str, Any]) -> list[TrialRun]:
    """The runs of a trial, whose config files are written."""
    config = overridden(self.config, values)
    runs = []
    for seed in range(config.seed, config.seed + self.seeds):
      place = self.folder.place(number, seed if self.seeds > 1 else None)
      runs.append(TrialRun(dataclasses.replace(config, seed=seed), place))
      remark = f'Trial {number}: {spelled(values)}'
      write_config(place.config, runs[-1].config, [remark])
    return runs

  def command(self, place: Place) -> list[str]:
    """The words of the command that makes a run, or goes on with it."""
    options = [f'--config={place.config}', f'--workdir={place.workdir}']
    train = self.train or train_words(self.launcher)
    return [*job_words(self.launcher, place), *train, *self.imported, *options]

  @property
  def imported(self) -> list[str]:
    """The flags of commands whose config has parts of one's own."""
    return [f'--import={name}' for name in self.imports]

  def train_again(self, config: pathlib.Path) -> str:
    """The command that trains a config file of this sweep anew."""
    words = [*self.imported, f'--config={config}']
    return f'python -m experiments.train {shlex.join(words)} --workdir=DIR'

  def commands(self) -> Iterator[str]:
    """The command of every run, for a shell; config files are written.

    Raises:
      ConfigError: trials follow from the results of others, or as begun.
      DataError: as begun.
    """
    rows = prescribed(self.sweep.search)
    if rows is None:
      raise ConfigError(
        f'{type(self.sweep.search).__name__}(...) chooses a trial by the '
        'results of those before it: there are no commands to print '
        'beforehand. --launcher=local runs them; Grid and Listed can be printed'
      )
    with self.begun():
      for number, values in enumerate(rows):
        for run in self.runs(number, values):
          yield shlex.join(self.command(run.place))
