"""Defines --import, with which every command imports modules of the user."""

from collections.abc import Iterator, Sequence
import importlib
import re

from absl import flags

from xjax.core.errors import ConfigError

TITLE = 'Your own code'


def define() -> None:
  """Defines --import, which every command has."""
  flags.DEFINE_multi_string(
    'import',
    [],
    'Your own module (encoders, metrics etc.) to import before the config. '
    'The flag may be repeated.',
  )


def imports() -> list[str]:
  """Returns the names of the modules in --import."""
  return flags.FLAGS['import'].value


def import_modules(argv: Sequence[str]) -> None:
  """Imports the modules of --import, before any config is read.

  Raises:
    ConfigError: a module does not exist or raises an error.
  """
  following: Iterator[str] = iter(argv[1:])
  for argument in following:
    match = re.fullmatch(r'--?import(?:=(.*))?', argument, re.S)
    if not match:
      continue
    name = next(following, '') if match[1] is None else match[1]
    try:
      importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a module may raise anything
      raise ConfigError(
        f'--import={name}: {type(error).__name__}: {error}'
      ) from error
