"""Computes, checks and stores the trials of a sweep, through Optuna."""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import json
import pathlib
import statistics
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
  BaseDistribution,
  CategoricalDistribution,
  FloatDistribution,
  IntDistribution,
)
from optuna.trial import FrozenTrial, Trial, TrialState
import sqlalchemy.exc
import sqlalchemy.pool

from xjax.core.atomic import WriteError
from xjax.core.errors import DAMAGE, ConfigError, DataError
from xjax.models.config_check import check_config, field_fault
from xjax.models.config_json import from_json, to_json
from xjax.models.contract import Config
from xjax.sweep.config import (
  Grid,
  Listed,
  MedianPruning,
  Range,
  Search,
  Space,
  Sweep,
  Tpe,
)
from xjax.train.neural_train import NeuralTrain

_SEARCH = 'get_sweep().search'


def override(config: Config, values: Mapping[str, Any]) -> Config:
  """Returns a copy of a config with other values, or a ConfigError."""
  # Keys are those of a config.Space. An enum may be given by its value.
  tree = to_json(config)
  for key, value in values.items():
    for path in fields_of(key):
      _put(tree, path, to_json(value), config)
  return from_json(tree, Config)


def fields_of(key: str) -> list[str]:
  """Returns the dotted fields in a key of a space."""
  return [path.strip() for path in key.split(',')]


def _put(tree: dict[str, Any], path: str, value: Any, config: Config) -> None:
  *parents, name = path.split('.')
  holder: Any = tree
  for parent in parents:
    holder = holder.get(parent) if isinstance(holder, dict) else None
  if not isinstance(holder, dict) or name not in holder:
    fault = field_fault(config, path)
    raise ConfigError(fault or f'config.{path}: there is no such field')
  if isinstance(holder[name], dict) and not isinstance(value, dict):
    raise ConfigError(f'{field_fault(config, path)} (got {value!r})')
  holder[name] = _merge(holder[name], value)


def _merge(old: Any, new: Any) -> Any:
  """Returns the new value; a dict for the same kind keeps the other fields."""
  if not isinstance(old, dict) or not isinstance(new, dict):
    return new
  if new.get('kind', old.get('kind')) != old.get('kind'):
    return new
  merged = {name: _merge(old.get(name), value) for name, value in new.items()}
  return {**old, **merged}


def space_of(search: Search) -> Space:
  """Returns the values, or the range, of each field that trials set."""
  if not isinstance(search, Listed):
    return search.space
  space: dict[str, dict[Any, Any]] = {}
  for trial in search.trials:
    for key, value in trial.items():
      space.setdefault(key, {})[optuna_text(value)] = value
  return {key: tuple(values.values()) for key, values in space.items()}


def fixed_trials(search: Search) -> list[Mapping[str, Any]] | None:
  """Returns the values of all trials; None if they depend on earlier trials."""
  match search:
    case Listed(trials):
      return list(trials)
    case Grid(space):
      rows = itertools.product(*space.values())
      return [dict(zip(space, row, strict=True)) for row in rows]
  return None


def count_trials(search: Search) -> int:
  """Returns the number of trials of a search."""
  rows = fixed_trials(search)
  return search.n_trials if rows is None else len(rows)


def with_trials(sweep: Sweep, number: int | None) -> Sweep:
  """Returns a Tpe sweep with another number of trials; None changes nothing."""
  if number is None:
    return sweep
  if not isinstance(sweep.search, Tpe):
    raise ConfigError(
      f'--n_trials={number}: needs Tpe(...), but {_SEARCH} is '
      f'{sweep.search!r}; leave the flag out'
    )
  search = dataclasses.replace(sweep.search, n_trials=number)
  return dataclasses.replace(sweep, search=search)


def optuna_text(value: Any) -> str | float | bool | None:
  """Returns a value in the form that Optuna stores and that logs show."""
  if isinstance(value, bool | int | float | str | None):
    return value
  json_value = to_json(value)
  return json_value if isinstance(json_value, str) else json.dumps(json_value)


def describe_values(values: Mapping[str, Any]) -> str:
  """Returns one line with the values that a trial sets, `key=value, ...`."""
  return ', '.join(
    f'{key}={optuna_text(value)}' for key, value in values.items()
  )


def trial_values(
  search: Search, parameters: Mapping[str, Any]
) -> dict[str, Any]:
  """Converts the parameters of a trial in Optuna to values of fields."""
  space, values = space_of(search), {}
  for key, stored in parameters.items():
    values[key] = stored
    if not isinstance(space[key], Range):
      texts = [optuna_text(value) for value in space[key]]
      values[key] = space[key][texts.index(stored)]
  return values


def distribution_of(values: tuple | Range) -> BaseDistribution:
  """Returns Optuna's distribution over the values of a field."""
  match values:
    case Range(low=int(low), high=int(high), log=log):
      return IntDistribution(low, high, log=log)
    case Range(low=low, high=high, log=log):
      return FloatDistribution(low, high, log=log)
  return CategoricalDistribution([optuna_text(value) for value in values])


def metric_of(sweep: Sweep, config: Config) -> str:
  """Returns the 'slice/metric' that compares trials, or '' if none is set."""
  return sweep.metric or config.train.best_metric


def check_sweep(sweep: Sweep, config: Config, seeds: int) -> None:
  """Raises ConfigError if a field of a sweep or of a trial is wrong."""
  # train.best_metric has the same checks as the metric of a sweep.
  train = NeuralTrain(best_metric=metric_of(sweep, config))
  try:
    check_config(Config(train=train, eval=config.eval))
  except ConfigError as error:
    text = str(error).replace('config.train.best_metric', 'get_sweep().metric')
    raise ConfigError(text) from error
  space = space_of(sweep.search)
  for key, values in space.items():
    try:
      distribution_of(values)
      if isinstance(values, Range) and isinstance(sweep.search, Grid):
        raise TypeError('a grid needs a tuple of values, not a Range')
    except (TypeError, ValueError) as error:
      raise ConfigError(
        f'{_SEARCH}.space[{key!r}]={values!r}: {error}'
      ) from error
  if count_trials(sweep.search) < 1:
    raise ConfigError(f'{_SEARCH}={sweep.search!r}: has no trials')
  if seeds > 1 and any('seed' in fields_of(key) for key in space):
    raise ConfigError(
      f'--seeds={seeds}: must be 1, since the sweep sets the field seed'
    )
  for values in _examples(sweep.search):
    try:
      check_config(override(config, values))
    except ConfigError as error:
      raise ConfigError(
        f'a trial with {describe_values(values)} is not possible: {error}'
      ) from error


def _examples(search: Search) -> Sequence[Mapping[str, Any]]:
  """Returns the values of the trials to check: for Tpe, each value once."""
  if (rows := fixed_trials(search)) is not None:
    return rows
  ends = {
    key: (x.low, x.high) if isinstance(x, Range) else x
    for key, x in search.space.items()
  }
  first = {key: values[0] for key, values in ends.items()}
  return [
    {**first, key: value} for key, values in ends.items() for value in values
  ]


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
