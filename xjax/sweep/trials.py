"""Which trials there are, and their values as Optuna keeps them."""

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
from xjax.sweep.overrides import plain


def space_of(search: Search) -> Space:
  """All fields that trials set, with all values they may have."""
  match search:
    case Listed(trials):
      keys = dict.fromkeys(key for trial in trials for key in trial)
      return {key: _distinct(trials, key) for key in keys}
    case Grid(space) | Tpe(space):
      return space
  raise ConfigError(f'get_sweep(): no search is {search!r}')


def prescribed(search: Search) -> list[Mapping[str, Any]] | None:
  """The values of each trial by its number; None: results decide."""
  match search:
    case Listed(trials):
      return list(trials)
    case Grid(space):
      rows = itertools.product(*space.values())
      return [dict(zip(space, row, strict=True)) for row in rows]
  return None


def count(search: Search) -> int:
  """The number of trials."""
  if isinstance(search, Tpe):
    return search.n_trials
  return len(prescribed(search))


def with_trials(sweep: Sweep, number: int | None) -> Sweep:
  """A sweep of as many trials; None: of as many as it says itself.

  Raises:
    ConfigError: its trials are prescribed.
  """
  if number is None:
    return sweep
  if not isinstance(sweep.search, Tpe):
    raise ConfigError(
      f'--n_trials={number}: is for Tpe(...); here is {sweep.search!r}'
    )
  search = dataclasses.replace(sweep.search, n_trials=number)
  return dataclasses.replace(sweep, search=search)


def text_of(value: Any) -> str | float | bool | None:
  """A value as Optuna keeps it, and as it is shown."""
  if isinstance(value, bool | int | float | str | None):
    return value
  shown = plain(value)
  return shown if isinstance(shown, str) else json.dumps(shown)


def values_of(search: Search, parameters: Mapping[str, Any]) -> dict[str, Any]:
  """What a trial sets, of its parameters as Optuna keeps them."""
  space = space_of(search)
  return {key: _value(space[key], kept) for key, kept in parameters.items()}


def distribution_of(values: tuple | Range) -> BaseDistribution:
  """What Optuna draws one of these values from."""
  match values:
    case Range(low=int(low), high=int(high), log=log):
      return IntDistribution(low, high, log=log)
    case Range(low=low, high=high, log=log):
      return FloatDistribution(low, high, log=log)
  return CategoricalDistribution([text_of(value) for value in values])


def _distinct(trials: tuple[Mapping[str, Any], ...], key: str) -> tuple:
  """The values that trials have of a field, each once."""
  values = [trial[key] for trial in trials if key in trial]
  return tuple({text_of(value): value for value in values}.values())


def _value(values: tuple | Range, kept: Any) -> Any:
  if isinstance(values, Range):
    return kept
  return values[[text_of(value) for value in values].index(kept)]
