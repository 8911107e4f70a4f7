"""Holds the configs that come with xjax: one file per paper or family.

Every public function of a file that returns a Config is a config, by its name;
the function get_config of a file that has only one config goes by the name of
the file. A user's file has one function, get_config.
"""

from collections.abc import Callable
import functools
import importlib
from typing import Any

from xjax.models.contract import Config
from xjax.run.named_configs import call_variant, shipped_configs


def variants(*names: str) -> Callable[..., Any]:
  """Decorates a function whose argument is one of some names.

  Without an argument, it is the first name. Spaces separate names in a text.
  """
  names = ' '.join(names).split()

  def decorate(function: Callable[[str], Any]) -> Callable[[str], Any]:
    @functools.wraps(function)
    def choose(variant: str = names[0]) -> Any:
      if variant not in names:
        raise ValueError(f'{variant!r} is not one of {", ".join(names)}')
      return function(variant)

    return choose

  return decorate


def get_config(name: str) -> Config:
  """Returns the config NAME or NAME:VARIANT of a file with several configs."""
  name, colon, variant = name.partition(':')
  file = shipped_configs()[name].file
  module = importlib.import_module(f'xjax.configs.{file.stem}')
  return call_variant(getattr(module, name), colon + variant)
