"""Defines --config and --config.FIELD, and checks them."""

from collections.abc import Callable
import csv
import re
import typing
from typing import Any

from absl import flags
from ml_collections import config_flags

from xjax.commands.flags.imports import values_of_flag
from xjax.commands.flags.required import require
from xjax.core.errors import ConfigError
from xjax.run.named_configs import config_file, named_config

if typing.TYPE_CHECKING:
  from xjax.models.contract import Config

TITLE = 'Config'
T = typing.TypeVar('T')


class TupleParser(flags.ArgumentParser):
  """Parses 'a,b' or "('a', 'b')" into a tuple with elements of one type."""

  def __init__(self, element: type):
    self._element = element

  def parse(self, argument: str | tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(argument, tuple):  # absl parses a flag's default too
      return argument
    line = [_strip_brackets(argument)]  # an item in "" may have commas
    (items,) = csv.reader(line, skipinitialspace=True) if line[0] else [[]]
    items = (item.strip(' \'"') for item in items)
    return tuple(self._element(item) for item in items if item)

  def flag_type(self) -> str:
    return f'tuple of {self._element.__name__}'


def _strip_brackets(text: str) -> str:
  """Removes brackets around the whole text, but not those of globs."""
  text = text.strip()
  if text[:1] + text[-1:] not in ('()', '[]'):
    return text
  depth, steps = 0, {'(': 1, '[': 1, ')': -1, ']': -1}
  for character in text[:-1]:
    depth += steps.get(character, 0)
    if not depth:  # the first bracket closes before the end
      return text
  return text[1:-1]


def define() -> 'flags.FlagHolder[Config]':
  """Defines --config=NAME|FILE.py[:VARIANT] and --config.<field>=<value>."""
  for element in (int, float, str):
    config_flags.register_flag_parser_for_type(
      tuple[element, ...], TupleParser(element)
    )
  holder = config_flags.DEFINE_config_file(
    'config',
    None,
    'Name of a config (`xjax configs` lists them), or a Python file with '
    'get_config(). NAME:VARIANT and FILE.py:VARIANT call get_config(VARIANT). '
    '--config.FIELD=VALUE changes a field, such as --config.train.steps=100.',
    lock_config=True,
  )
  require('config', 'give the name of a config; `xjax configs` lists them')
  return holder


def replace_config_names(argv: list[str]) -> None:
  """Puts paths for names of configs, in place: config_flags reads sys.argv."""
  for i, name in values_of_flag(argv, 'config'):
    argv[i] = f'--config={as_flag(config_file, name)}'


def as_flag(read: Callable[[str], T], name: str) -> T:
  """Returns read(name); messages say --config=NAME, not config=NAME."""
  try:
    return read(name)
  except ConfigError as error:
    raise ConfigError(f'--{error}') from error


def file() -> str:
  """Returns the path of the config file in --config, maybe with `:VARIANT`."""
  return config_flags.get_config_filename(flags.FLAGS['config'])


def check() -> None:
  """Checks the values of the config that the flags give."""
  from xjax.models.config_check import check_config

  check_config(flags.FLAGS['config'].value)


def check_overrides(argv: list[str]) -> None:
  """Refuses --config.<field> that is no field; config_flags would crash."""
  from xjax.models.config_check import field_fault

  matches = (re.match(r'--?config\.([^=]+)', word) for word in argv[1:])
  names = [match[1] for match in matches if match]
  given = values_of_flag(argv, 'config')
  if names and not given:
    raise ConfigError(f'--config.{names[0]} needs --config=NAME')
  if given:
    config = as_flag(named_config, given[-1][1])
    for name in names:
      if fault := field_fault(config, name):
        raise ConfigError(fault)
