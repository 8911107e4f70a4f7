"""A config with some of its fields set to other values."""

from collections.abc import Mapping
from typing import Any

from xjax.config.check import field_fault
from xjax.config.json import from_json, to_json
from xjax.config.run import Config
from xjax.core.errors import ConfigError


def overridden(config: Config, values: Mapping[str, Any]) -> Config:
  """A copy of a config in which fields have other values.

  Args:
    config: left as it is.
    values: by dotted field, or by several that are separated by commas and set
      alike. A dict sets fields below the one named; a dataclass takes the
      place of a part. Enum members may be given by their values.

  Raises:
    ConfigError: there is no such field, or a value is of the wrong type.
  """
  tree = to_json(config)
  for key, value in values.items():
    for path in fields_of(key):
      _put(tree, path, plain(value), config)
  return from_json(tree)


def fields_of(key: str) -> list[str]:
  """The dotted fields that a key of a space names."""
  return [path.strip() for path in key.split(',')]


def plain(value: Any) -> Any:
  """A field's value as JSON: of enum members, tuples, parts and dicts."""
  if isinstance(value, Mapping):
    return {name: plain(inner) for name, inner in value.items()}
  return to_json(value)


def _put(tree: dict[str, Any], path: str, value: Any, config: Config) -> None:
  *parents, name = path.split('.')
  holder: Any = tree
  for parent in parents:
    holder = holder.get(parent) if isinstance(holder, dict) else None
  if not isinstance(holder, dict) or name not in holder:
    fault = field_fault(config, path)
    raise ConfigError(fault or f'config.{path}: no such field')
  if isinstance(holder[name], dict) and not isinstance(value, dict):
    raise ConfigError(f'{field_fault(config, path)}; not {value!r}')
  holder[name] = _merged(holder[name], value)


def _merged(old: Any, new: Any) -> Any:
  """Old fields with the new ones in their place, in parts of one kind."""
  if not isinstance(old, dict) or not isinstance(new, dict):
    return new
  if new.get('kind', old.get('kind')) != old.get('kind'):
    return new
  both = {name: _merged(old.get(name), value) for name, value in new.items()}
  return {**old, **both}
