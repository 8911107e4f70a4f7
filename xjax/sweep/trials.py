"""Computes and checks the trials of a search, and converts them for Optuna."""

from collections.abc import Iterator, Mapping
import dataclasses
import itertools
import json
import math
from typing import Any

from optuna.distributions import (
  BaseDistribution,
  CategoricalDistribution,
  FloatDistribution,
  IntDistribution,
)

from xjax.core.errors import ConfigError
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.sweep.config import (
  Grid,
  Listed,
  MedianPruning,
  NoPruning,
  Range,
  Search,
  Space,
  Sweep,
  Tpe,
)
from xjax.sweep.overrides import fields_of, override, plain_json
from xjax.train.neural_train import NeuralTrain

_MOST = 1000  # If a space has more combinations, not all of them are checked.
_SEARCH, _PRUNING = 'get_sweep().search', 'get_sweep().pruning'
_LEAST = {'n_trials': 1, 'startup_trials': 0, 'warmup_judgings': 0, 'seed': 0}


def space_of(search: Search) -> Space:
  """Returns the values, or the range, of each field that trials set."""
  if not isinstance(search, Listed):
    return search.space
  space: dict[str, dict[Any, Any]] = {}
  for trial in search.trials:
    for key, value in trial.items():
      space.setdefault(key, {})[text_of(value)] = value
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
  if isinstance(search, Tpe):
    return search.n_trials
  return len(fixed_trials(search))


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


def text_of(value: Any) -> str | float | bool | None:
  """Returns a value in the form that Optuna stores and that logs show."""
  if isinstance(value, bool | int | float | str | None):
    return value
  json_value = plain_json(value)
  return json_value if isinstance(json_value, str) else json.dumps(json_value)


def describe_values(values: Mapping[str, Any]) -> str:
  """Returns one line with the values that a trial sets, `key=value, ...`."""
  return ', '.join(f'{key}={text_of(value)}' for key, value in values.items())


def values_of(search: Search, parameters: Mapping[str, Any]) -> dict[str, Any]:
  """Converts the parameters of a trial in Optuna to values of fields."""
  space, values = space_of(search), {}
  for key, stored in parameters.items():
    values[key] = stored
    if not isinstance(space[key], Range):
      texts = [text_of(value) for value in space[key]]
      values[key] = space[key][texts.index(stored)]
  return values


def distribution_of(values: tuple | Range) -> BaseDistribution:
  """Returns Optuna's distribution over the values of a field."""
  match values:
    case Range(low=int(low), high=int(high), log=log):
      return IntDistribution(low, high, log=log)
    case Range(low=low, high=high, log=log):
      return FloatDistribution(low, high, log=log)
  return CategoricalDistribution([text_of(value) for value in values])


def metric_of(sweep: Sweep, config: Config) -> str:
  """Returns the 'slice/metric' that compares trials, or '' if none is set."""
  return sweep.metric or config.train.best_metric


def check_sweep(sweep: Sweep, config: Config, seeds: int) -> None:
  """Raises ConfigError if a field of a sweep or of a trial is wrong."""
  if faults := list(_faults(sweep, config, seeds)):
    raise ConfigError('\n'.join(faults))
  for values in _examples(sweep.search):
    try:
      check_config(override(config, values))
    except ConfigError as error:
      raise ConfigError(
        f'a trial with {describe_values(values)} is not possible: {error}'
      ) from error


def _faults(sweep: Sweep, config: Config, seeds: int) -> Iterator[str]:
  # train.best_metric has the same checks as the metric of a sweep.
  train = NeuralTrain(best_metric=metric_of(sweep, config))
  try:
    check_config(Config(train=train, eval=config.eval))
  except ConfigError as error:
    yield str(error).replace('config.train.best_metric', 'get_sweep().metric')
  if not isinstance(sweep.pruning, NoPruning | MedianPruning):
    yield (
      f'get_sweep().pruning={sweep.pruning!r}: must be NoPruning() or '
      'MedianPruning(...)'
    )
  if not isinstance(sweep.search, Grid | Listed | Tpe):
    yield f'{_SEARCH}={sweep.search!r}: must be Grid, Listed or Tpe'
    return
  for path, part in (_SEARCH, sweep.search), (_PRUNING, sweep.pruning):
    for name, least in _LEAST.items():
      if (value := getattr(part, name, least)) < least:
        yield f'{path}.{name}={value}: must be at least {least}'
  if isinstance(sweep.search, Listed):
    if not sweep.search.trials:
      yield f'{_SEARCH}.trials=(): must have at least one trial'
  else:
    yield from _space_faults(sweep.search)
  fields = [f for key in space_of(sweep.search) for f in fields_of(key)]
  if seeds > 1 and 'seed' in fields:
    yield f'--seeds={seeds}: must be 1, since the sweep sets the field seed'


def _space_faults(search: Grid | Tpe) -> Iterator[str]:
  where, lists = f'{_SEARCH}.space', []
  if not search.space:
    yield f'{where}={{}}: must have at least one field'
  fields = [path for key in search.space for path in fields_of(key)]
  for path in sorted({path for path in fields if fields.count(path) > 1}):
    yield f'{where}: {path} is set twice'
  for key, values in search.space.items():
    fault = ''
    match values:
      case Range() if isinstance(search, Grid):
        fault = 'a grid needs a tuple of values, not a Range'
      case Range(low=low, high=high, log=log):
        if not (0 if log else -math.inf) < low < high < math.inf:
          fault = f'low must be {"above 0 and " if log else ""}below high'
      case tuple():
        lists.append(values)
        if not values or len(set(map(text_of, values))) < len(values):
          fault = 'must be one or more different values'
      case _:
        fault = 'must be a tuple of values, or a Range'
    if fault:
      yield f'{where}[{key!r}]={values!r}: {fault}'
  combinations = math.prod(map(len, lists))
  if len(lists) == len(search.space) and isinstance(search, Tpe):
    if combinations < search.n_trials:
      yield (
        f'{_SEARCH}.n_trials={search.n_trials}: the space has only '
        f'{combinations} combinations; use Grid(space) to try all of them'
      )


def _examples(search: Search) -> Iterator[Mapping[str, Any]]:
  """Yields the values of the trials to check."""
  # For Grid and Listed, all; for Tpe, all combinations, with only the ends of
  # ranges, or if these are too many, each value at least once.
  if (rows := fixed_trials(search)) is not None:
    yield from rows
    return
  ends = {
    key: (x.low, x.high) if isinstance(x, Range) else x
    for key, x in search.space.items()
  }
  if math.prod(map(len, ends.values())) <= _MOST:
    yield from fixed_trials(Grid(ends))
    return
  first = {key: values[0] for key, values in ends.items()}
  for key, values in ends.items():
    yield from ({**first, key: value} for value in values)
