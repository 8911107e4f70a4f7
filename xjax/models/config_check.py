"""Checks a config before a run, and reports the path of each faulty field."""

from collections.abc import Iterable, Iterator
import dataclasses
import difflib
import enum
import math
import types
import typing
from typing import Any

from xjax.core.config_part import (
  ConfigPart,
  has_kinds,
  kind_named,
  kinds,
  parts_in,
)
from xjax.core.errors import ConfigError


def field_fault(holder: Any, path: str) -> str | None:
  """Says why a dotted path, such as 'train.steps', is not a single value."""
  # The path is followed field by field, so that the message names the first
  # part of it that is wrong.
  parents = ['config']
  for name in path.split('.'):
    names = _field_names(holder)
    if name not in names:
      parent = '.'.join(parents)
      if not names:
        return f'config.{path}: {parent} has no fields of its own'
      if name.partition('[')[0] in names:
        return (
          f'{parent}.{name}: parts of a list can only be set in a config file; '
          'copy the function of the config into a file of your own, as '
          'get_config(), and use --config=FILE.py'
        )
      return f'{parent}.{name}: no such field; {_similar(name, names)}'
    parents.append(name)
    holder = getattr(holder, name)
  if names := _field_names(holder):
    fault = f'config.{path}: set its fields ({", ".join(names)}) one by one'
    # The last two classes are ConfigPart and object, which all parts have.
    bases = type(holder).__mro__[1:-2]
    return fault + '; to use another class, edit the config file' * any(
      len(kinds(base)) > 1 for base in bases
    )
  if dataclasses.is_dataclass(holder):
    return f'config.{path}: another class can only be chosen in the config file'
  return None


def check_config(config: ConfigPart) -> None:
  """Checks the names, types and bounds of fields, and that fields fit together.

  A ConfigError has a line for each fault, with the path of a field.
  """
  if not isinstance(config, ConfigPart):
    raise ConfigError(
      f'get_config() must return a Config, not {type(config).__name__}'
    )
  # A stage runs only if the stages before it found no fault.
  for stage in (_field_faults, _training_faults, _faults_between):
    if faults := list(stage(config, 'config')):
      raise ConfigError('\n'.join(faults))


def check_values(config: ConfigPart) -> None:
  """Checks only the types and bounds of single fields; raises a ConfigError."""
  if faults := list(_field_faults(config, 'config')):
    raise ConfigError('\n'.join(faults))


def _field_names(holder: Any) -> tuple[str, ...]:
  if not dataclasses.is_dataclass(holder):
    return ()
  return tuple(field.name for field in dataclasses.fields(holder))


def _similar(name: str, names: Iterable[str]) -> str:
  """Returns a hint with similar names, or with all names if none is similar."""
  similar = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
  if similar:
    return f'did you mean {" or ".join(similar)}?'
  return f'the fields are {", ".join(names)}'


def _field_faults(part: ConfigPart, path: str) -> Iterator[str]:
  names = _field_names(part)
  for name in vars(part).keys() - set(names):
    yield f'{path}.{name}: no such field; {_similar(name, names)}'
  hints = typing.get_type_hints(type(part))
  for name in names:
    value, where = getattr(part, name), f'{path}.{name}'
    if not _has_type(value, hints[name]):
      yield f'{where}={value!r}: must be {_type_text(hints[name])}'
    # A class that only has kinds, such as Model itself, is no choice.
    elif choices := kinds(type(value)):
      options = ', '.join(kind.__name__ for kind in choices)
      yield f'{where}={type(value).__name__}(...): must be one of {options}'
    elif parts := named_parts(value, where):
      for part_path, inner in parts:
        yield from _name_faults(type(inner), part_path)
        yield from _field_faults(inner, part_path)
    elif dataclasses.is_dataclass(value):
      yield f'{where}: {type(value).__name__} must be a subclass of ConfigPart'
    else:
      # Bounds are checked only for values of the right type, so they cannot
      # fail on a comparison of strings and numbers.
      bounds = [b for b in type(part).bounds(name) if not b.holds(value)]
      if not bounds and not _fits(value):
        yield f'{where}={value!r}: must be a finite number of at most 64 bits'
      for bound in bounds:
        yield f'{where}={value!r}: must be {bound.text}'


def _name_faults(kind: type[ConfigPart], path: str) -> Iterator[str]:
  """Yields a fault if a user's kind has the name of another kind."""
  if kind.__module__.startswith('xjax.'):
    return
  # The name is saved in config.json, and could then stand for both classes.
  for base in filter(has_kinds, kind.__mro__[1:-2]):
    try:
      kind_named(kind.__name__, base)
    except ConfigError as error:
      yield f'{path}: {error}'
      return


def _has_type(value: Any, hint: Any) -> bool:
  if typing.get_origin(hint) is tuple:
    element = typing.get_args(hint)[0]
    return isinstance(value, tuple) and all(
      _has_type(v, element) for v in value
    )
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    return any(_has_type(value, part) for part in typing.get_args(hint))
  if hint is float:
    hint = int | float
  # In Python, a bool is an int. In a config, a bool is accepted only as a bool.
  if isinstance(value, bool) and hint is not bool:
    return False
  return isinstance(value, hint)


def _fits(value: Any) -> bool:
  if isinstance(value, tuple):
    return all(map(_fits, value))
  if isinstance(value, int):
    # Larger numbers cannot be read again by all readers of JSON, nor become
    # NumPy integers.
    return -(2**63) <= value < 2**63
  return not isinstance(value, float) or math.isfinite(value)


def _type_text(hint: Any) -> str:
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    return f'{hint.__name__}.' + ' or '.join(e.name for e in hint)
  if typing.get_origin(hint) is tuple:
    return f'a tuple of {typing.get_args(hint)[0].__name__}'
  return getattr(hint, '__name__', str(hint))


def _training_faults(config: ConfigPart, path: str) -> Iterator[str]:
  model, train = config.model, config.train
  if isinstance(train, model.trained_by):
    return
  base = typing.get_type_hints(type(config))['model']
  needs = [
    f'{kind.__name__} needs {kind.trained_by.__name__}' for kind in kinds(base)
  ]
  yield (
    f'{path}.train={type(train).__name__}() does not go with '
    f'{path}.model={type(model).__name__}() ({", ".join(needs)})'
  )


def _faults_between(
  part: ConfigPart, path: str, config: ConfigPart | None = None
) -> Iterator[str]:
  """Yields the faults that check() finds in a part and in its inner parts."""
  config = config or part
  yield from part.faults(config, path)
  # A stage checks its parts itself, with the config of its own run.
  if part.is_stage:
    return
  for name in _field_names(part):
    for inner_path, inner in named_parts(getattr(part, name), f'{path}.{name}'):
      yield from _faults_between(inner, inner_path, config)


def named_parts(value: Any, path: str) -> list[tuple[str, ConfigPart]]:
  """Returns the paths and parts of a field: one part, or a tuple of them."""
  if isinstance(value, ConfigPart):
    return [(path, value)]
  parts = parts_in(value)
  return [(f'{path}[{i}]', part) for i, part in enumerate(parts)]
