"""Checks a sweep before any trial starts."""

from collections.abc import Iterator, Mapping
import itertools
import math
from typing import Any

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
from xjax.sweep.overrides import fields_of, override
from xjax.sweep.trials import fixed_trials, text_of
from xjax.train.neural_train import NeuralTrain

# If a space has more combinations than this, not all of them are checked.
_MOST = 1000


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


def describe_values(values: Mapping[str, Any]) -> str:
  """Returns one line with the values that a trial sets, `key=value, ...`."""
  return ', '.join(f'{key}={text_of(value)}' for key, value in values.items())


def metric_of(sweep: Sweep, config: Config) -> str:
  """Returns the 'slice/metric' that compares trials, or '' if none is set."""
  return sweep.metric or config.train.best_metric


def _faults(sweep: Sweep, config: Config, seeds: int) -> Iterator[str]:
  yield from _metric_faults(metric_of(sweep, config), config)
  match sweep.pruning:
    case MedianPruning(startup_trials=first, warmup_judgings=warmup):
      if min(first, warmup) < 0:
        yield (
          f'get_sweep().pruning={sweep.pruning}: startup_trials and '
          'warmup_judgings must be at least 0'
        )
    case NoPruning():
      pass
    case other:
      yield (
        f'get_sweep().pruning={other!r}: must be NoPruning() or '
        'MedianPruning(...)'
      )
  yield from _search_faults(sweep.search)
  fields = _fields(sweep.search)
  if seeds > 1 and 'seed' in fields:
    yield f'--seeds={seeds}: must be 1, since the sweep sets the field seed'


def _metric_faults(metric: str, config: Config) -> Iterator[str]:
  """Yields the faults of the metric, by the checks of train.best_metric."""
  train = NeuralTrain(best_metric=metric)
  try:
    check_config(Config(train=train, eval=config.eval))
  except ConfigError as error:
    yield str(error).replace('config.train.best_metric', 'get_sweep().metric')


def _search_faults(search: Search) -> Iterator[str]:
  match search:
    case Listed(trials):
      if not trials:
        yield 'get_sweep().search.trials=(): must have at least one trial'
      for trial in trials:
        yield from _twice(list(trial))
    case Grid(space):
      ranges = [k for k, v in space.items() if isinstance(v, Range)]
      for key in ranges:
        yield (
          f'get_sweep().search.space[{key!r}]: a grid needs a tuple of values, '
          'not a Range'
        )
      yield from _space_faults(space)
    case Tpe(space):
      if search.n_trials < 1:
        yield (
          f'get_sweep().search.n_trials={search.n_trials}: must be at least 1'
        )
      yield from _too_many(search)
      for name in ('seed', 'startup_trials'):
        if getattr(search, name) < 0:
          yield f'get_sweep().search.{name}: must be at least 0'
      yield from _space_faults(space)
    case other:
      yield f'get_sweep().search={other!r}: must be Grid, Listed or Tpe'


def _space_faults(space: Space) -> Iterator[str]:
  if not space:
    yield 'get_sweep().search.space={}: must have at least one field'
  yield from _twice(list(space))
  for key, values in space.items():
    where = f'get_sweep().search.space[{key!r}]'
    match values:
      case Range(low=low, high=high, log=log):
        floor = 0 if log else -math.inf
        if not floor < low < high < math.inf:
          above = 'above 0 and ' if log else ''
          yield f'{where}={values}: low must be {above}below high'
      case tuple():
        texts = [text_of(value) for value in values]
        if not texts or len(set(texts)) < len(texts):
          yield f'{where}={values}: must be one or more different values'
      case _:
        yield f'{where}={values!r}: must be a tuple of values, or a Range'


def _too_many(search: Tpe) -> Iterator[str]:
  """Yields a fault if there are more trials than combinations of values."""
  lists = [v for v in search.space.values() if isinstance(v, tuple)]
  combinations = math.prod(map(len, lists))
  if len(lists) == len(search.space) and combinations < search.n_trials:
    yield (
      f'get_sweep().search.n_trials={search.n_trials}: the space has only '
      f'{combinations} combinations; use Grid(space) to try all of them'
    )


def _twice(keys: list[str]) -> Iterator[str]:
  fields = [path for key in keys for path in fields_of(key)]
  for path in sorted({path for path in fields if fields.count(path) > 1}):
    yield f'get_sweep().search: {path} is set twice'


def _fields(search: Search) -> set[str]:
  keys: list[str] = []
  match search:
    case Listed(trials):
      keys = [key for trial in trials for key in trial]
    case Grid(space) | Tpe(space):
      keys = list(space)
  return {path for key in keys for path in fields_of(key)}


def _examples(search: Search) -> Iterator[Mapping[str, Any]]:
  """Yields the values of the trials to check.

  For Grid and Listed, these are all trials. For Tpe, they are all combinations,
  with only the ends of each range. If there are more than _MOST, some are
  checked, such that each value occurs at least once.
  """
  rows = fixed_trials(search)
  if rows is not None:
    yield from rows
    return
  ends = {key: _ends(values) for key, values in search.space.items()}
  if math.prod(map(len, ends.values())) <= _MOST:
    for row in itertools.product(*ends.values()):
      yield dict(zip(ends, row, strict=True))
    return
  first = {key: values[0] for key, values in ends.items()}
  for key, values in ends.items():
    yield from ({**first, key: value} for value in values)


def _ends(values: tuple | Range) -> tuple:
  return (values.low, values.high) if isinstance(values, Range) else values
