"""Stores the trials of a sweep in an SQLite database, through Optuna."""

from collections.abc import Sequence
import dataclasses
import enum
import os
import pathlib
import statistics
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState
import sqlalchemy.exc

from xjax.core.atomic import WriteError, temporary_folder
from xjax.core.errors import DAMAGE, DataError
from xjax.sweep.config import MedianPruning, Pruning, Search
from xjax.sweep.drawing import draw
from xjax.sweep.trials import (
  distribution_of,
  fixed_trials,
  space_of,
  text_of,
  values_of,
)

# The exceptions of Optuna when a database has other content than it expects.
_DAMAGE = (
  *DAMAGE,
  LookupError,
  AssertionError,
  optuna.exceptions.StorageInternalError,
)
# The name of Optuna's study, and names of attributes of trials in the database.
_NAME = 'sweep'
_FIELDS = 'fields'
_SEEDS = 'values by seed'
_ERROR = 'error'
_DECIDED = 'judgings decided on'
_STOPPED = 'stopped'


class TrialStatus(enum.Enum):
  """Gives the status of a trial; an UNFINISHED trial runs or can be resumed."""

  COMPLETE = 'complete'
  PRUNED = 'pruned'
  FAILED = 'failed'
  UNFINISHED = 'unfinished'


_STATES = {
  TrialState.COMPLETE: TrialStatus.COMPLETE,
  TrialState.PRUNED: TrialStatus.PRUNED,
  TrialState.FAIL: TrialStatus.FAILED,
}


@dataclasses.dataclass(frozen=True)
class Outcome:
  """Holds the status and the result of a trial."""

  number: int
  state: TrialStatus
  value: float | None  # mean of `values`; if pruned, the last judging's
  values: tuple[float, ...]  # of a complete trial: a metric per seed
  parameters: dict[str, Any]  # in Optuna's form, by key of the space
  error: str  # why the trial failed

  @property
  def deviation(self) -> float | None:
    """Returns the standard deviation (ddof 1); None below two values."""
    return statistics.stdev(self.values) if len(self.values) > 1 else None


class Store:
  """Starts, resumes and ends the trials in the database.

  Two processes must not write to the database at the same time.
  """

  def __init__(
    self, path: pathlib.Path, search: Search, pruning: Pruning
  ) -> None:
    """Opens the database, or creates it.

    Raises:
      DataError: the file is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    self._search = search
    space = space_of(search)
    self._space = {key: distribution_of(space[key]) for key in space}
    try:
      if not path.exists():
        _create(path)
      self._study = optuna.load_study(
        study_name=_NAME, storage=_storage(path), pruner=_pruner(pruning)
      )
      self._check()
    except WriteError:
      raise
    except sqlalchemy.exc.DatabaseError as error:
      raise DataError(f'{path}: cannot be read: {error.orig}') from error
    except _DAMAGE as error:
      raise DataError(
        f'{path}: is not the database of a sweep of xjax, or is damaged '
        f'({type(error).__name__}: {error}); restore the file from a copy, or '
        'start the sweep in a new folder'
      ) from error

  def _check(self) -> None:
    """Reads all trials, so that damage is noticed before a trial is started."""
    for number, trial in enumerate(self._trials()):
      if trial.number != number:
        raise ValueError(f'trial {number} has the number {trial.number}')
      if trial.state is TrialState.WAITING:
        continue
      fields, outcome = trial.user_attrs[_FIELDS], _outcome(trial)
      if outcome.state is TrialStatus.COMPLETE:
        statistics.fmean([outcome.value, *outcome.values])
      # A sweep that was killed while it started a trial left no parameters.
      for field in trial.params:
        self._space[field].to_internal_repr(trial.params[field])
      if trial.params.keys() == set(fields):
        values_of(self._search, trial.params)
      decided = trial.user_attrs.get(_DECIDED, 0)
      if not isinstance(decided, int) or not isinstance(outcome.error, str):
        raise TypeError(
          f'trial {trial.number} has an attribute of a wrong type'
        )

  def __len__(self) -> int:
    return sum(t.state is not TrialState.WAITING for t in self._trials())

  def begin(self) -> Trial:
    """Starts a new trial.

    All values of the trial are stored before the trial counts as running. So
    every running trial has all its values, even after a kill of the sweep.
    """
    if all(t.state is not TrialState.WAITING for t in self._trials()):
      row = self._next()
      self._study.enqueue_trial(row, user_attrs={_FIELDS: list(row)})
    trial = self._study.ask()
    self._fill(trial)
    return trial

  def unfinished(self) -> list[Trial]:
    running = [t for t in self._trials() if t.state is TrialState.RUNNING]
    trials = [Trial(self._study, frozen._trial_id) for frozen in running]
    for trial in trials:
      self._fill(trial)
    return trials

  def last_reported(self, trial: Trial) -> int:
    """Returns the number of a trial's last reported judging, or 0."""
    return self._trials()[trial.number].last_step or 0

  def last_decided(self, trial: Trial) -> int:
    """Returns the number of the last judging that decide() has seen, or 0."""
    return trial.user_attrs.get(_DECIDED, 0)

  def is_stopped(self, trial: Trial) -> bool:
    """Returns whether decide() has stopped a trial; it may still be running."""
    return trial.user_attrs.get(_STOPPED, False)

  def decide(self, trial: Trial, number: int, may_stop: bool) -> bool:
    """Decides whether to stop a trial at its last judging, `number` (from 1).

    The decision is stored. If a killed sweep is resumed later, more trials may
    be complete, but these trials must not change the decision.
    """
    stop = may_stop and trial.should_prune()
    if stop:
      trial.set_user_attr(_STOPPED, True)
    trial.set_user_attr(_DECIDED, number)
    return stop

  def complete(self, trial: Trial, values: Sequence[float]) -> None:
    trial.set_user_attr(_SEEDS, list(values))
    self._study.tell(trial, statistics.fmean(values))

  def prune(self, trial: Trial) -> None:
    self._study.tell(trial, state=TrialState.PRUNED)

  def fail(self, trial: Trial, error: str) -> None:
    trial.set_user_attr(_ERROR, error)
    self._study.tell(trial, state=TrialState.FAIL)

  def values(self, number: int) -> dict[str, Any]:
    """Returns the values that a trial sets, by key of the space."""
    return values_of(self._search, self._trials()[number].params)

  def outcomes(self) -> list[Outcome]:
    """Returns the outcomes of all started trials, ordered by number."""
    started = [t for t in self._trials() if t.state is not TrialState.WAITING]
    return [_outcome(trial) for trial in started]

  def _trials(self) -> list[FrozenTrial]:
    return self._study.get_trials(deepcopy=False)

  def _next(self) -> dict[str, Any]:
    rows = fixed_trials(self._search)
    if rows is None:
      return draw(self._search, self._space, self._trials())
    row = rows[len(self)]
    return {key: text_of(value) for key, value in row.items()}

  def _fill(self, trial: Trial) -> None:
    """Gives a trial the parameters that were stored for it."""
    for name in trial.user_attrs[_FIELDS]:
      match self._space[name]:
        case optuna.distributions.CategoricalDistribution(choices=choices):
          trial.suggest_categorical(name, choices)
        case optuna.distributions.IntDistribution() as d:
          trial.suggest_int(name, d.low, d.high, log=d.log)
        case optuna.distributions.FloatDistribution() as d:
          trial.suggest_float(name, d.low, d.high, log=d.log)


def _create(path: pathlib.Path) -> None:
  """Creates a database without trials.

  Optuna does not notice that a database lacks an index because its creation was
  interrupted. So the database gets its name when it is complete.
  """
  with temporary_folder(path) as folder:
    storage = _storage(folder / path.name)
    optuna.create_study(storage=storage, study_name=_NAME, direction='maximize')
    storage.engine.dispose()
    os.replace(folder / path.name, path)


def _storage(path: pathlib.Path) -> optuna.storages.RDBStorage:
  return optuna.storages.RDBStorage(f'sqlite:///{path}')


def best_trial(outcomes: Sequence[Outcome]) -> Outcome | None:
  """Returns the first complete trial with the largest value, or None."""
  complete = [x for x in outcomes if x.state is TrialStatus.COMPLETE]
  return max(complete, key=lambda outcome: outcome.value, default=None)


def _outcome(trial: FrozenTrial) -> Outcome:
  return Outcome(
    number=trial.number,
    state=_STATES.get(trial.state, TrialStatus.UNFINISHED),
    value=trial.value,
    values=tuple(trial.user_attrs.get(_SEEDS, ())),
    parameters=trial.params,
    error=trial.user_attrs.get(_ERROR, ''),
  )


def _pruner(pruning: Pruning) -> optuna.pruners.BasePruner:
  if isinstance(pruning, MedianPruning):
    return optuna.pruners.MedianPruner(
      n_startup_trials=pruning.startup_trials,
      # Optuna counts steps from 0; judgings are counted from 1.
      n_warmup_steps=pruning.warmup_judgings + 1,
    )
  return optuna.pruners.NopPruner()
