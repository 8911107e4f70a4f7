"""Stores the trials of a sweep in an SQLite database, through Optuna."""

from collections.abc import Sequence
import pathlib
import statistics
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, Trial, TrialState
import sqlalchemy.exc
import sqlalchemy.pool

from xjax.core.atomic import WriteError
from xjax.core.errors import DAMAGE, DataError
from xjax.sweep.config import MedianPruning, Search
from xjax.sweep.trials import (
  distribution_of,
  fixed_trials,
  optuna_text,
  space_of,
  trial_values,
)

# The exceptions of Optuna when a database has other content than it expects.
_DAMAGE = (
  *DAMAGE,
  LookupError,
  AssertionError,
  optuna.exceptions.StorageInternalError,
)
# The name of Optuna's study, and names of attributes of trials in the database:
# the metric of each seed of a complete trial, and why a trial failed.
_NAME, _SEEDS, _ERROR = 'sweep', 'values by seed', 'error'
# What users read; an unfinished trial runs or can be resumed.
STATES = {
  TrialState.COMPLETE: 'complete',
  TrialState.PRUNED: 'pruned',
  TrialState.FAIL: 'failed',
  TrialState.RUNNING: 'unfinished',
}
# A repeated trial is wasted, but if fields have few values, the TPE sampler
# often draws an earlier trial again. After _TRIES attempts, draws are random.
_TRIES, _RANDOM_TRIES = 10, 100


class TrialStore:
  """Starts and ends trials, which Optuna keeps; only one process may write."""

  def __init__(
    self, path: pathlib.Path, search: Search, pruning: MedianPruning | None
  ) -> None:
    """Opens the database, or creates it; raises DataError if it is damaged."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    self._search = search
    space = space_of(search)
    self._space = {key: distribution_of(space[key]) for key in space}
    pruner = _pruner(pruning)
    try:
      storage = _storage(path)
      if _NAME not in optuna.get_all_study_names(storage):
        optuna.create_study(
          storage=storage, study_name=_NAME, direction='maximize'
        )
      self._study = optuna.load_study(
        study_name=_NAME, storage=storage, pruner=pruner
      )
      for trial in self.trials():  # damage is noticed before a trial starts
        if trial.state is TrialState.COMPLETE:
          seed_values(trial)
        elif trial.state is TrialState.FAIL:
          error_of(trial)
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

  def __len__(self) -> int:
    return len(self.trials())

  def begin(self) -> Trial:
    """Starts a new trial, which is stored at once, with all its values."""
    rows = fixed_trials(self._search)
    if rows is None:
      row = self._draw()
    else:
      row = {key: optuna_text(value) for key, value in rows[len(self)].items()}
    distributions = {key: self._space[key] for key in row}
    self._study.add_trial(
      optuna.create_trial(
        state=TrialState.RUNNING, params=row, distributions=distributions
      )
    )
    return self.unfinished()[-1]

  def _draw(self) -> dict[str, Any]:
    """Draws the next trial; repeats an earlier one only if all attempts do."""
    trials = self.trials()
    earlier = [trial.params for trial in trials]
    parameters: dict[str, Any] = {}
    for attempt in range(_TRIES + _RANDOM_TRIES):
      # The draws depend only on the seed and on the trials so far.
      seed = np.random.SeedSequence([self._search.seed, len(trials), attempt])
      number = int(seed.generate_state(1)[0])
      sampler = optuna.samplers.TPESampler(
        n_startup_trials=self._search.startup_trials, seed=number
      )
      if attempt >= _TRIES:
        sampler = optuna.samplers.RandomSampler(seed=number)
      study = optuna.create_study(direction='maximize', sampler=sampler)
      study.add_trials(trials)
      parameters = study.ask(self._space).params
      if parameters not in earlier:
        break
    return parameters

  def unfinished(self) -> list[Trial]:
    running = [t for t in self.trials() if t.state is TrialState.RUNNING]
    return [Trial(self._study, trial._trial_id) for trial in running]

  def last_reported(self, trial: Trial) -> int:
    """Returns the number of a trial's last reported judging, or 0."""
    return self.trials()[trial.number].last_step or 0

  def complete(self, trial: Trial, values: Sequence[float]) -> None:
    trial.set_user_attr(_SEEDS, list(values))
    self._study.tell(trial, statistics.fmean(values))

  def prune(self, trial: Trial) -> None:
    self._study.tell(trial, state=TrialState.PRUNED)

  def fail(self, trial: Trial, error: str) -> None:
    trial.set_user_attr(_ERROR, error)
    self._study.tell(trial, state=TrialState.FAIL)

  def values(self, number: int) -> dict[str, Any]:
    return trial_values(self._search, self.trials()[number].params)

  def trials(self) -> list[FrozenTrial]:
    """Returns all trials; the value of a pruned one is its last judging's."""
    return self._study.get_trials(deepcopy=False)


def _storage(path: pathlib.Path) -> optuna.storages.RDBStorage:
  # Without a pool, a connection is closed after each use: SQLite would keep the
  # file open after the store is gone.
  pool = {'poolclass': sqlalchemy.pool.NullPool}
  return optuna.storages.RDBStorage(f'sqlite:///{path}', engine_kwargs=pool)


def best_trial(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
  """Returns the first complete trial with the largest value, or None."""
  complete = [x for x in trials if x.state is TrialState.COMPLETE]
  return max(complete, key=lambda trial: trial.value, default=None)


def seed_values(trial: FrozenTrial) -> list[float]:
  """Returns the metric of each seed of a complete trial."""
  return trial.user_attrs[_SEEDS]


def error_of(trial: FrozenTrial) -> str:
  """Returns why a trial failed."""
  return trial.user_attrs[_ERROR]


def _pruner(pruning: MedianPruning | None) -> optuna.pruners.BasePruner:
  if pruning is None:
    return optuna.pruners.NopPruner()
  return optuna.pruners.MedianPruner(
    n_startup_trials=pruning.startup_trials,
    # Optuna counts steps from 0; judgings are counted from 1.
    n_warmup_steps=pruning.warmup_judgings + 1,
  )
