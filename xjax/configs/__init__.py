"""Holds the configs that come with xjax: one file per paper or family.

Every public function of a file that returns a Config is a config, by its name;
the function get_config of a file that has only one config goes by the name of
the file. A user's file has one function, get_config.
"""

from collections.abc import Callable, Mapping
import functools
import inspect
from typing import Any

from xjax.models.contract import Config


def variants(*names: str) -> Callable[..., Any]:
  """Decorates a function whose argument is one of some names.

  Without an argument, it is the first name.
  """

  def decorate(function: Callable[[str], Any]) -> Callable[[str], Any]:
    @functools.wraps(function)
    def choose(variant: str = names[0]) -> Any:
      if variant not in names:
        raise ValueError(f'{variant!r} is not one of {", ".join(names)}')
      return function(variant)

    return choose

  return decorate


def by_name(functions: Mapping[str, Any], name: str) -> Config:
  """Returns the config NAME or NAME:VARIANT of a file with several configs."""
  name, colon, variant = name.partition(':')
  configs = {
    known: function
    for known, function in functions.items()
    if inspect.isfunction(function)
    and function.__module__ == functions['__name__']
    and known[0] != '_'
    and known != 'get_config'
  }
  if name not in configs:
    raise ValueError(
      f'give FILE.py:NAME, where NAME is one of {", ".join(configs)}'
    )
  function = configs[name]
  if colon and not inspect.signature(function).parameters:
    raise ValueError(f'there are no variants; leave out :{variant}')
  return function(*[variant] if colon else [])
