"""A config as JSON and back, and the fields in which two configs differ."""

import dataclasses
import enum
import json
import os
import pathlib
import typing
from typing import Any

from xjax.config.run import Config
from xjax.core.config_part import kinds
from xjax.core.errors import ConfigError, DataError

_SUFFIXES = ('Config', 'Data', 'Model', 'Weights')


def _kind_of(cls: type) -> str | None:
  """The "kind" of a part that is chosen among several; else None."""
  if any(isinstance(base, type) and kinds(base) for base in cls.__mro__[1:-2]):
    return cls.__name__
  return None


def _earlier_kinds(cls: type) -> set[str]:
  """What "kind" an earlier xjax wrote for its class, without underscores."""
  if not cls.__module__.startswith('xjax.'):
    return set()
  stems = {cls.__name__.removesuffix(suffix) for suffix in ('', *_SUFFIXES)}
  names = {*stems, cls.earlier_kind} - {''}
  return {name.replace('_', '').lower() for name in names}


def to_json(value: Any) -> Any:
  """JSON values of a config; dataclasses of a union carry their "kind"."""
  if dataclasses.is_dataclass(value):
    fields = {
      f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)
    }
    kind = _kind_of(type(value))
    return {'kind': kind, **fields} if kind else fields
  if isinstance(value, enum.Enum):
    return value.value
  if isinstance(value, tuple | list):
    return [to_json(item) for item in value]
  return value


def from_json(value: Any, cls: type = Config) -> Any:
  """The config that to_json made; absent fields take their defaults.

  Args:
    value: the JSON object.
    cls: dataclass to build, where value has no "kind".

  Raises:
    ConfigError: an unknown kind or field, a union without its kind, or a value
      of the wrong type; the message names it by its dotted path.
  """
  return _dataclass(value, cls, '')


def load_config(path: str | os.PathLike) -> Config:
  """Reads a config.json.

  Raises:
    DataError: it is absent, damaged, or of another version of xjax.
  """
  try:
    return from_json(json.loads(pathlib.Path(path).read_text('utf-8')))
  except (OSError, ValueError, ConfigError) as error:
    raise DataError(f'{path}: not a config of xjax: {error}') from error


def _dataclass(value: Any, cls: type, path: str) -> Any:
  if not isinstance(value, dict):
    raise ConfigError(f'{path or "config"}: expected an object, got {value!r}')
  value = dict(value)
  kind = value.pop('kind', None)
  if kind is not None:
    cls = _kind_named(kind, cls, path)
    if kind != cls.__name__:
      value = cls.from_earlier(value)
  elif choices := kinds(cls):
    names = ', '.join(repr(one.__name__) for one in choices)
    raise ConfigError(f'{path}: has no "kind", which is one of {names}')
  hints = typing.get_type_hints(cls)
  if unknown := sorted(set(value) - {f.name for f in dataclasses.fields(cls)}):
    raise ConfigError(f'unknown field {_join(path, unknown[0])!r}')
  return cls(
    **{k: _value(v, hints[k], _join(path, k)) for k, v in value.items()}
  )


def _kind_named(kind: Any, base: type, path: str) -> type:
  """The kind of a part with this name, or that an earlier xjax called so."""
  choices = kinds(base) or (base,)
  for one in choices:
    if kind == one.__name__:
      return one
  spelled = str(kind).replace('_', '')
  for one in choices:
    if spelled in _earlier_kinds(one):
      return one
  raise ConfigError(
    f'{path}: unknown kind {kind!r}; there are '
    f'{", ".join(one.__name__ for one in choices)}. Is it defined in '
    'a module of yours? --import=MODULE reads that first; from Python, import '
    'it yourself'
  )


def _value(value: Any, hint: Any, path: str) -> Any:
  if dataclasses.is_dataclass(hint):
    return _dataclass(value, hint, path)
  if typing.get_origin(hint) is tuple and isinstance(value, list):
    element = typing.get_args(hint)[0]
    return tuple(_value(item, element, path) for item in value)
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    try:
      return hint(value)
    except ValueError:
      choices = ', '.join(repr(member.value) for member in hint)
      raise ConfigError(f'{path}: {value!r} is none of {choices}') from None
  if hint is float and type(value) is int:
    return float(value)
  if isinstance(hint, type) and type(value) is hint:
    return value
  raise ConfigError(f'{path}: expected {hint}, got {value!r}')


def _join(path: str, name: str) -> str:
  return f'{path}.{name}' if path else name


@dataclasses.dataclass(frozen=True)
class ConfigDifference:
  """One field in which two configs differ.

  Attributes:
    path: dotted.
    old, new: JSON values; None where one side has no such field.
    may_change: whether a resumed run may differ here.
  """

  path: str
  old: Any
  new: Any
  may_change: bool

  def __str__(self) -> str:
    return f'{self.path}: {json.dumps(self.old)} -> {json.dumps(self.new)}'


def diff(old: Any, new: Any) -> list[ConfigDifference]:
  """The fields in which two configs differ, in their order.

  A field marked may_change makes all that lies below it changeable as well.
  """
  return _diff(old, new, '', False)


def _diff(old: Any, new: Any, path: str, may: bool) -> list[ConfigDifference]:
  if not dataclasses.is_dataclass(old) or not dataclasses.is_dataclass(new):
    left, right = to_json(old), to_json(new)
    return [] if left == right else [ConfigDifference(path, left, right, may)]
  found = []
  if type(old) is not type(new):
    names = (_kind_of(type(old)), _kind_of(type(new)))
    found.append(ConfigDifference(_join(path, 'kind'), *names, may))
  for name, field in _fields(old, new).items():
    below = may or bool(field.metadata.get('may_change'))
    left, right = getattr(old, name, None), getattr(new, name, None)
    found += _diff(left, right, _join(path, name), below)
  return found


def _fields(*configs: Any) -> dict[str, dataclasses.Field]:
  return {f.name: f for config in configs for f in dataclasses.fields(config)}
