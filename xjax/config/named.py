"""Finds the configs that come with xjax by their names."""

import difflib
import importlib
import pathlib
import typing

from xjax.core.errors import ConfigError

if typing.TYPE_CHECKING:
  from xjax.config.run import Config

CONFIGS = pathlib.Path(__file__).parents[1] / 'configs'


def config_names() -> list[str]:
  """Returns the names of all configs that come with xjax, sorted."""
  return sorted(path.stem for path in CONFIGS.glob('[!_]*.py'))


def config_file(name: str) -> str:
  """Returns the path of the file of a config.

  Args:
    name: the name of a config of xjax, such as `quickstart`, or a path FILE.py.
      Both may end in `:VARIANT`.

  Returns:
    The path of the file; it ends in `:VARIANT` if the name does.

  Raises:
    ConfigError: there is no such config and no such file.
  """
  stem, colon, variant = name.partition(':')
  if pathlib.Path(stem).suffix == '.py' or pathlib.Path(stem).is_file():
    if not pathlib.Path(stem).is_file():
      raise ConfigError(f'--config={name}: no such file')
    return name
  if stem not in config_names():
    raise ConfigError(
      f'--config={name}: there is no such file, and {_no_config(stem)}'
    )
  return f'{CONFIGS / stem}.py{colon}{variant}'


def _no_config(name: str) -> str:
  """Returns a message that xjax has no config of a name."""
  close = difflib.get_close_matches(name, config_names(), n=1)
  advice = f'did you mean {close[0]}? ' if close else ''
  return (
    f'xjax has no config of this name; {advice}`xjax configs` lists all configs'
  )


def named_config(name: str) -> 'Config':
  """Returns a config that comes with xjax.

  Args:
    name: NAME or NAME:VARIANT, such as `eurlex57k_xr_linear:large`.

  Raises:
    ConfigError: there is no config of this name, or it has no such variant.
  """
  stem, _, variant = name.partition(':')
  if stem not in config_names():
    raise ConfigError(f'config {name!r}: {_no_config(stem)}')
  module = importlib.import_module(f'xjax.configs.{stem}')
  try:
    return module.get_config(*[variant] if variant else [])
  except (TypeError, ValueError) as error:
    raise ConfigError(f'config {name}: {error}') from error
