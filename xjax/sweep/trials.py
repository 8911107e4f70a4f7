"""Computes the trials of a search, and converts values for Optuna and back."""

from collections.abc import Mapping
import dataclasses
import itertools
import json
from typing import Any

from optuna.distributions import (
  BaseDistribution,
  CategoricalDistribution,
  FloatDistribution,
  IntDistribution,
)

from xjax.core.errors import ConfigError
from xjax.sweep.config import Grid, Listed, Range, Search, Space, Sweep, Tpe
from xjax.sweep.overrides import plain_json


def space_of(search: Search) -> Space:
  """Returns the values, or the range, of each field that trials set."""
  match search:
    case Listed(trials):
      keys = dict.fromkeys(key for trial in trials for key in trial)
      return {key: _distinct(trials, key) for key in keys}
    case Grid(space) | Tpe(space):
      return space
  raise ConfigError(
    f'get_sweep().search={search!r}: must be Grid, Listed or Tpe'
  )


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
  """Returns a sweep with another number of trials; None leaves it unchanged.

  Only a Tpe search can have another number; for others, ConfigError is raised.
  """
  if number is None:
    return sweep
  if not isinstance(sweep.search, Tpe):
    raise ConfigError(
      f'--n_trials={number}: needs Tpe(...), but get_sweep().search is '
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


def values_of(search: Search, parameters: Mapping[str, Any]) -> dict[str, Any]:
  """Converts the parameters of a trial in Optuna to values of fields."""
  space = space_of(search)
  return {key: _value(space[key], x) for key, x in parameters.items()}


def distribution_of(values: tuple | Range) -> BaseDistribution:
  """Returns Optuna's distribution over the values of a field."""
  match values:
    case Range(low=int(low), high=int(high), log=log):
      return IntDistribution(low, high, log=log)
    case Range(low=low, high=high, log=log):
      return FloatDistribution(low, high, log=log)
  return CategoricalDistribution([text_of(value) for value in values])


def _distinct(trials: tuple[Mapping[str, Any], ...], key: str) -> tuple:
  """Returns the values that trials set for a key, without repetitions."""
  values = [trial[key] for trial in trials if key in trial]
  return tuple({text_of(value): value for value in values}.values())


def _value(values: tuple | Range, stored: Any) -> Any:
  """Converts a stored value from Optuna's form back to the value of a field."""
  if isinstance(values, Range):
    return stored
  return values[[text_of(value) for value in values].index(stored)]
