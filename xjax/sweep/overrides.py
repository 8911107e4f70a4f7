"""Sets some fields of a config to other values."""

from collections.abc import Mapping
from typing import Any

from xjax.core.errors import ConfigError
from xjax.models.config_check import field_fault
from xjax.models.config_json import from_json, to_json
from xjax.models.contract import Config


def override(config: Config, values: Mapping[str, Any]) -> Config:
  """Returns a copy of a config with other values, or a ConfigError."""
  # Keys are those of a config.Space. An enum may be given by its value.
  tree = to_json(config)
  for key, value in values.items():
    for path in fields_of(key):
      _put(tree, path, plain_json(value), config)
  return from_json(tree, Config)


def fields_of(key: str) -> list[str]:
  """Returns the dotted fields in a key of a space."""
  return [path.strip() for path in key.split(',')]


def plain_json(value: Any) -> Any:
  """Converts the value of a field, or a dict of such values, to JSON."""
  if isinstance(value, Mapping):
    return {name: plain_json(inner) for name, inner in value.items()}
  return to_json(value)


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
