"""Finds configs by the names of xjax or by files, and loads them."""

import ast
from collections.abc import Callable, Iterator
import dataclasses
import difflib
import functools
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
T = typing.TypeVar('T')


@dataclasses.dataclass(frozen=True)
class ShippedConfig:
  """Holds what is known of a config of xjax without running its file."""

  name: str
  file: pathlib.Path
  variants: tuple[str, ...]  # names that can follow the name and a colon
  text: str  # its own docstring, and then that of its file

  @property
  def alone(self) -> bool:
    """Returns whether the file has no other config."""
    return self.name == self.file.stem

  @property
  def path(self) -> str:
    """Returns what loads it: FILE.py, or that of all configs with :NAME."""
    if self.alone:
      return str(self.file)
    return f'{CONFIGS / "__init__.py"}:{self.name}'


@functools.cache
def shipped_configs() -> dict[str, ShippedConfig]:
  """Returns all configs that come with xjax by their names, sorted."""
  configs = {}
  for path in CONFIGS.glob('[!_]*.py'):
    tree = ast.parse(path.read_text('utf-8'))
    text = ast.get_docstring(tree) or ''
    functions = [
      node
      for node in tree.body
      if isinstance(node, ast.FunctionDef)
      and node.name[0] != '_'
      and ast.unparse(node.returns or node) == 'Config'
    ]
    for node in functions:
      name = path.stem if node.name == 'get_config' else node.name
      own = ast.get_docstring(node) or ''
      variants = tuple(_variants(node, tree))
      whole = f'{own} {text}'.strip()
      configs[name] = ShippedConfig(name, path, variants, whole)
  return dict(sorted(configs.items()))


def _variants(function: ast.FunctionDef, tree: ast.Module) -> Iterator[str]:
  """Yields the names in @variants('a b') or @variants(*DICT)."""
  for decorator in function.decorator_list:
    for argument in decorator.args:
      if isinstance(argument, ast.Constant):
        yield from argument.value.split()
      else:
        yield from _keys(argument.value.id, tree)


def _keys(name: str, tree: ast.Module) -> Iterator[str]:
  for node in tree.body:
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
      yield from (key.value for key in node.value.keys)


def config_file(name: str) -> str:
  """Returns the path of the file of a config.

  `name` is the name of a config of xjax, such as `quickstart`, or a path of a
  Python file. If it ends in `:VARIANT`, so does the result.
  """
  stem, colon, variant = name.partition(':')
  if stem.endswith('.py'):
    if os.path.isfile(stem):
      return name
    raise ConfigError(f'config={name}: no such file')
  if stem in shipped_configs():
    return f'{shipped_configs()[stem].path}{colon}{variant}'
  if os.path.isfile(stem):
    return name
  close = difflib.get_close_matches(stem, shipped_configs(), n=1)
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

  return from_file(name, 'get_config', Config)


def from_file(name: str, function: str, kind: type[T]) -> T:
  """Returns what a function of a config's file returns (see named_config)."""
  path, colon, variant = config_file(name).partition(':')
  shown = f'config={_shown(path, colon + variant)}'
  try:
    value = call_variant(_load(path, function), colon + variant)
  except (UserError, ValueError) as error:
    raise ConfigError(f'{shown}: {error}') from error
  except (Exception, SystemExit) as error:  # a user's file may raise anything
    last = str(error).strip().rpartition('\n')[2]
    raise ConfigError(f'{shown}: {type(error).__name__}: {last}') from error
  if not isinstance(value, kind):
    raise ConfigError(f'{shown}: {function}() must return a {kind.__name__}')
  return value


def call_variant(function: Callable[..., Any], ending: str) -> Any:
  """Calls a function without an argument, or with that of `:VARIANT`."""
  if not ending:
    return function()
  if not inspect.signature(function).parameters:
    raise ConfigError(f'there are no variants; leave out {ending}')
  return function(ending[1:])


def _shown(path: str, ending: str) -> str:
  """Returns the name by which users know a path and `:VARIANT`."""
  file = pathlib.Path(path)
  if file.parent != CONFIGS:
    return path + ending
  is_family = file.stem not in shipped_configs() and ending
  return ending[1:] if is_family else file.stem + ending


def _load(path: str, name: str) -> Callable[..., Any]:
  """Runs a Python file, and returns its function with a name."""
  loader = importlib.machinery.SourceFileLoader(_MODULE, path)
  spec = importlib.util.spec_from_loader(_MODULE, loader)
  module = importlib.util.module_from_spec(spec)
  sys.modules[_MODULE] = module  # dataclasses look for their module there
  loader.exec_module(module)
  if not callable(function := getattr(module, name, None)):
    names = [
      config.name
      for config in shipped_configs().values()
      if name == 'get_config' and os.path.samefile(config.file, path)
    ]
    advice = f'; use --config=NAME, such as {names[0]}' if names else ''
    raise ConfigError(f'the file has no function {name}(){advice}')
  return function
