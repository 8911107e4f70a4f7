"""Finds configs by the names of xjax or by files, and loads them."""

from collections.abc import Callable
import difflib
import importlib.machinery
import importlib.util
import inspect
import os
import pathlib
import sys
import typing
from typing import Any

from xjax.core.errors import ConfigError, UserError

if typing.TYPE_CHECKING:
  from xjax.models.contract import Config

CONFIGS = pathlib.Path(__file__).parents[1] / 'configs'
# Files of configs are modules of this name, as ml_collections names them.
_MODULE = 'config_config'


def config_names() -> list[str]:
  """Returns the names of all configs that come with xjax, sorted."""
  return sorted(path.stem for path in CONFIGS.glob('[!_]*.py'))


def config_file(name: str) -> str:
  """Returns the path of the file of a config.

  `name` is the name of a config of xjax, such as `quickstart`, or a path of a
  Python file. If it ends in `:VARIANT`, so does the result.
  """
  stem, colon, variant = name.partition(':')
  if stem in config_names():
    return f'{CONFIGS / stem}.py{colon}{variant}'
  if os.path.isfile(stem):
    return name
  if stem.endswith('.py'):
    raise ConfigError(f'config={name}: no such file')
  close = difflib.get_close_matches(stem, config_names(), n=1)
  advice = f'did you mean {close[0]}? ' if close else ''
  raise ConfigError(
    f'config={name}: xjax has no config of this name, and there is no such '
    f'file; {advice}`xjax configs` lists all configs'
  )


def named_config(name: str) -> 'Config':
  """Returns the config of xjax, or of a Python file, that a name stands for.

  Examples are `eurlex57k_xr_linear:large` and `mine.py`.

  Raises:
    ConfigError: there is no such config and no such file, the config has no
      such variant, or the file has a fault.
  """
  from xjax.models.contract import Config

  path, colon, variant = config_file(name).partition(':')
  own = pathlib.Path(path).parent == CONFIGS
  shown = f'config={pathlib.Path(path).stem if own else path}{colon}{variant}'
  try:
    get_config = _get_config(path)
    if colon and not inspect.signature(get_config).parameters:
      raise ConfigError(f'there are no variants; leave out :{variant}')
    config = get_config(*[variant] if colon else [])
  except (UserError, ValueError) as error:
    raise ConfigError(f'{shown}: {error}') from error
  except (Exception, SystemExit) as error:  # a user's file may raise anything
    last = str(error).strip().rpartition('\n')[2]
    raise ConfigError(f'{shown}: {type(error).__name__}: {last}') from error
  if not isinstance(config, Config):
    raise ConfigError(f'{shown}: get_config() must return a Config')
  return config


def _get_config(path: str) -> Callable[..., Any]:
  """Runs a Python file, and returns its function get_config."""
  loader = importlib.machinery.SourceFileLoader(_MODULE, path)
  spec = importlib.util.spec_from_loader(_MODULE, loader)
  module = importlib.util.module_from_spec(spec)
  sys.modules[_MODULE] = module  # dataclasses look for their module there
  loader.exec_module(module)
  if not callable(function := getattr(module, 'get_config', None)):
    raise ConfigError('the file has no function get_config()')
  return function
