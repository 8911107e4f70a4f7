"""Defines --import, with which every command imports modules of the user."""

from collections.abc import Iterator, Sequence
import importlib
import os
import re
import sys

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
  """Imports the modules of --import, before any config is read."""
  _search_current_folder()
  for name in _names(argv):
    if re.search(r'[/\\]|^\.|\.py$', name):
      raise ConfigError(
        f"--import={name}: give the module's name, without .py and without a "
        'folder. Start the command in the folder of the module, or add this '
        'folder to PYTHONPATH'
      )
    try:
      importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a module may raise anything
      raise ConfigError(
        f'--import={name}: {type(error).__name__}: {error}'
      ) from error


def _names(argv: Sequence[str]) -> Iterator[str]:
  following = iter(argv[1:])
  for argument in following:
    match = re.fullmatch(r'--?import(?:=(.*))?', argument, re.S)
    if match:
      yield next(following, '') if match[1] is None else match[1]


def _search_current_folder() -> None:
  """Lets the script `xjax` find modules in the current folder.

  The folder comes last, so that a file in it never hides a library.
  """
  folder = os.getcwd()
  if folder not in sys.path and '' not in sys.path:
    sys.path.append(folder)
