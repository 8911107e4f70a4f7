"""Converts configs to JSON and back, and compares two configs."""

from collections.abc import Callable, Mapping
import dataclasses
import enum
import json
import os
import pathlib
import typing
from typing import Any, TypeVar

from xjax.core.config_part import has_kinds, kind_named, kinds
from xjax.core.errors import ConfigError, DataError
from xjax.data.files.json_lines import parse_object

T = TypeVar('T')


def _kind_of(cls: type) -> str | None:
  if any(has_kinds(base) for base in cls.__mro__[1:-2]):
    return cls.__name__
  return None


def to_json(value: Any) -> Any:
  """Returns a config as JSON values; parts that have kinds have a "kind".

  The value of a field, or a dict of such values, is converted too.
  """
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
  if isinstance(value, Mapping):
    return {name: to_json(item) for name, item in value.items()}
  return value


def from_json(value: Any, cls: type) -> Any:
  """Builds a config from the JSON values that to_json returns.

  Absent fields get their default values. `cls` is built if `value` has no
  "kind". A ConfigError has the dotted path of the faulty field.
  """
  return _dataclass(value, cls, '')


def read_part(
  path: str | os.PathLike, cls: type[T], check: Callable[[T], None]
) -> T:
  """Reads a file of a part, such as config.json, and checks its values.

  A DataError says that it is absent, damaged, or from another version of xjax.
  """
  try:
    part = from_json(parse_object(pathlib.Path(path).read_bytes()), cls)
    check(part)
    return part
  except (OSError, ValueError, ConfigError) as error:
    raise DataError(
      f'{path}: cannot be read as a config of xjax ({error})'
    ) from error


def _dataclass(value: Any, cls: type, path: str) -> Any:
  if not isinstance(value, dict):
    raise ConfigError(f'{path or "config"}: expected an object, got {value!r}')
  # A copy, because the caller may use the object again.
  value = dict(value)
  kind = value.pop('kind', None)
  if kind is not None:
    cls = _kind_named(kind, cls, path)
  elif choices := kinds(cls):
    names = ', '.join(repr(choice.__name__) for choice in choices)
    raise ConfigError(f'{path}: has no "kind", which must be one of {names}')
  hints = typing.get_type_hints(cls)
  names = {field.name for field in dataclasses.fields(cls)}
  if unknown := sorted(set(value) - names):
    raise ConfigError(f'unknown field {_join(path, unknown[0])!r}')
  return cls(
    **{k: _value(v, hints[k], _join(path, k)) for k, v in value.items()}
  )


def _kind_named(kind: Any, base: type, path: str) -> type:
  if isinstance(kind, str) and (choice := kind_named(kind, base)):
    return choice
  choices = kinds(base) or (base,)
  for choice in choices:
    if kind == choice.__name__:
      return choice
  raise ConfigError(
    f'{path}: unknown kind {kind!r}; the kinds are '
    f'{", ".join(choice.__name__ for choice in choices)}. If your own '
    'module defines this kind, import the module first, with --import=MODULE '
    'or in Python'
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
      raise ConfigError(f'{path}: {value!r} must be one of {choices}') from None
  # JSON has one kind of number, and writers may drop the zero of 1.0.
  if hint is float and type(value) is int:
    return float(value)
  # The exact type is compared, since isinstance would accept True as an int.
  if isinstance(hint, type) and type(value) is hint:
    return value
  raise ConfigError(f'{path}: expected {hint}, got {value!r}')


def _join(path: str, name: str) -> str:
  return f'{path}.{name}' if path else name


@dataclasses.dataclass(frozen=True)
class ConfigDifference:
  """Describes a field in which two configs differ."""

  path: str  # dotted
  old: Any  # as JSON; None if the config has no such field
  new: Any
  may_change: bool  # whether a resumed run can have another value

  def __str__(self) -> str:
    return f'{self.path}: {json.dumps(self.old)} -> {json.dumps(self.new)}'


def diff(old: Any, new: Any) -> list[ConfigDifference]:
  """Returns the fields in which two configs differ, in the order of fields."""
  return _diff(old, new, '', False)


def _diff(
  old: Any, new: Any, path: str, may_change: bool
) -> list[ConfigDifference]:
  if not dataclasses.is_dataclass(old) or not dataclasses.is_dataclass(new):
    values = to_json(old), to_json(new)
    if values[0] == values[1]:
      return []
    return [ConfigDifference(path, *values, may_change)]
  differences = []
  # Parts of different kinds are still compared field by field below, so that
  # the message shows all differences.
  if type(old) is not type(new):
    names = (_kind_of(type(old)), _kind_of(type(new)))
    differences.append(
      ConfigDifference(_join(path, 'kind'), *names, may_change)
    )
  for name, field in _fields(old, new).items():
    inner = may_change or bool(field.metadata.get('may_change'))
    values = getattr(old, name, None), getattr(new, name, None)
    differences += _diff(*values, _join(path, name), inner)
  return differences


def _fields(*configs: Any) -> dict[str, dataclasses.Field]:
  return {f.name: f for config in configs for f in dataclasses.fields(config)}
