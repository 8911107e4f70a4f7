"""Refuses a config that cannot work, naming the field."""

from collections.abc import Iterable, Iterator
import dataclasses
import difflib
import enum
import types
import typing
from typing import Any

from xjax.config.run import Config
from xjax.config.train import TrainConfig
from xjax.core.config_part import ConfigPart, kinds
from xjax.core.errors import ConfigError
from xjax.score.config import ModelConfig


def field_fault(holder: Any, path: str) -> str | None:
  """Says why a dotted path is no field of a single value, and what is near.

  Args:
    holder: a dataclass.
    path: for example 'train.steps'.

  Returns:
    A message for the user, or None where it is one.
  """
  done = []
  for name in path.split('.'):
    known = _field_names(holder)
    if name not in known:
      where = '.'.join(['config', *done])
      if not known:
        return f'config.{path}: {where} has no fields of its own'
      return f'{where}.{name}: no such field; {_nearest(name, known)}'
    done.append(name)
    holder = getattr(holder, name)
  if known := _field_names(holder):
    fault = f'config.{path}: set its fields one by one: {", ".join(known)}'
    bases = type(holder).__mro__[1:-2]
    return fault + '; another kind is chosen in the config file' * any(
      len(kinds(base)) > 1 for base in bases
    )
  if dataclasses.is_dataclass(holder):
    return f'config.{path}: another kind is chosen in the config file alone'
  return None


def check_config(config: Config) -> None:
  """Checks names, types, bounds, and what fields ask of one another.

  Raises:
    ConfigError: one line per fault, each naming its field.
  """
  if not isinstance(config, Config):
    raise ConfigError(
      f'get_config() must return a Config, not {type(config).__name__}'
    )
  # Each stage may rely on what those before it have found sound.
  for stage in (_field_faults, _training_faults, _faults_between):
    if faults := list(stage(config, 'config')):
      raise ConfigError('\n'.join(faults))


def _field_names(holder: Any) -> tuple[str, ...]:
  if not dataclasses.is_dataclass(holder):
    return ()
  return tuple(field.name for field in dataclasses.fields(holder))


def _nearest(name: str, known: Iterable[str]) -> str:
  near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
  if near:
    return f'did you mean {" or ".join(near)}?'
  return f'the fields there are {", ".join(known)}'


def _field_faults(part: ConfigPart, path: str) -> Iterator[str]:
  """Names, types and bounds of a part's fields, and of the parts below it."""
  known = _field_names(part)
  for name in vars(part).keys() - set(known):
    yield f'{path}.{name}: no such field; {_nearest(name, known)}'
  hints = typing.get_type_hints(type(part))
  for name in known:
    value, where = getattr(part, name), f'{path}.{name}'
    if not _is(value, hints[name]):
      yield f'{where}={value!r}: must be {_spell(hints[name])}'
    elif choices := kinds(type(value)):
      names = ', '.join(kind.__name__ for kind in choices)
      yield f'{where}={type(value).__name__}(...): must be one of {names}'
    elif isinstance(value, ConfigPart):
      yield from _field_faults(value, where)
    elif dataclasses.is_dataclass(value):
      yield f'{where}: {type(value).__name__} must be a ConfigPart'
    else:
      for bound in type(part).bounds(name):
        if not bound.holds(value):
          yield f'{where}={value!r}: must be {bound.text}'


def _is(value: Any, hint: Any) -> bool:
  if typing.get_origin(hint) is tuple:
    element = typing.get_args(hint)[0]
    return isinstance(value, tuple) and all(_is(v, element) for v in value)
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    return any(_is(value, part) for part in typing.get_args(hint))
  if hint is float:
    hint = int | float
  # A bool is an int to Python, never to a config.
  if isinstance(value, bool) and hint is not bool:
    return False
  return isinstance(value, hint)


def _spell(hint: Any) -> str:
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    return f'{hint.__name__}.' + ' or '.join(e.name for e in hint)
  if typing.get_origin(hint) is tuple:
    return f'a tuple of {typing.get_args(hint)[0].__name__}'
  return getattr(hint, '__name__', str(hint))


def _training_faults(config: Config, path: str) -> Iterator[str]:
  """Models that are not trained in this way."""
  model, train = config.model, config.train
  if isinstance(model, train.trains):
    return
  needs = [
    f'{one.__name__} needs {kind.__name__}'
    for kind in kinds(TrainConfig)
    for one in kinds(ModelConfig)
    if issubclass(one, kind.trains)
  ]
  yield (
    f'{path}.train={type(train).__name__}(): does not go with '
    f'{path}.model={type(model).__name__}(): {", ".join(needs)}'
  )


def _faults_between(
  part: ConfigPart, path: str, config: Config | None = None
) -> Iterator[str]:
  """What the parts find wrong between fields, each by its check()."""
  config = config or part
  yield from part.check(config, path)
  for name in _field_names(part):
    if isinstance(value := getattr(part, name), ConfigPart):
      yield from _faults_between(value, f'{path}.{name}', config)
