"""Defines --import, with which every command imports modules of the user."""

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


def import_modules(argv: list[str]) -> None:
  """Imports the modules of --import, before any config is read."""
  _search_current_folder()
  for _, name in values_of_flag(argv, 'import'):
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


def values_of_flag(argv: list[str], flag: str) -> list[tuple[int, str]]:
  """Returns places and values of --FLAG=VALUE, before absl reads the flags.

  `--FLAG VALUE` becomes `--FLAG=VALUE`, in place.
  """
  for i in reversed(range(1, len(argv) - 1)):
    if argv[i] in (f'-{flag}', f'--{flag}'):
      argv[i : i + 2] = [f'--{flag}={argv[i + 1]}']
  words = [re.fullmatch(f'--?{flag}=(.*)', word, re.S) for word in argv]
  return [(i, match[1]) for i, match in enumerate(words) if match]


def _search_current_folder() -> None:
  """Lets the script `xjax` find modules in the current folder.

  The folder comes last, so that a file in it never hides a library.
  """
  folder = os.getcwd()
  if folder not in sys.path and '' not in sys.path:
    sys.path.append(folder)
