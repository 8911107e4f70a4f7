"""Defines --import, with which every command imports modules of the user."""

from collections.abc import Iterator, Sequence
import importlib
import os
import re
import sys

from absl import flags

from xjax.core.config_part import ConfigPart
from xjax.core.errors import ConfigError, printable

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

  Modules and config files of the user may import modules from the current
  folder, whether the command is `xjax` or `python -m xjax`.
  """
  _search_current_folder()
  for name in _names(argv):
    if re.search(r'[/\\]|^\.|\.py$', name):
      raise ConfigError(
        f"--import={name}: give the module's name, without .py and without a "
        'folder. Start the command in the folder of the module, or add this '
        'folder to PYTHONPATH'
      )
    before = _users_classes()
    try:
      importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a module may raise anything
      raise ConfigError(
        f'--import={name}: {type(error).__name__}: {error}'
      ) from error
    _warn_if_useless(name, before)


def _names(argv: Sequence[str]) -> Iterator[str]:
  following = iter(argv[1:])
  for argument in following:
    match = re.fullmatch(r'--?import(?:=(.*))?', argument, re.S)
    if match:
      yield next(following, '') if match[1] is None else match[1]


def _search_current_folder() -> None:
  """Lets Python find modules in the current folder.

  `python -m` does so, but the script `xjax` does not. The folder comes last, so
  that a file in it never hides a library.
  """
  folder = os.getcwd()
  if folder not in sys.path and '' not in sys.path:
    sys.path.append(folder)


def _warn_if_useless(name: str, before: set[type]) -> None:
  """Warns if a module has defined nothing that xjax can use.

  `before` has the user's classes from before the import.
  """
  package = name.partition('.')[0]
  classes = _users_classes()
  if classes == before and not any(
    cls.__module__.partition('.')[0] == package for cls in classes
  ):
    place = getattr(sys.modules[name], '__file__', None) or 'a folder'
    text = (
      f'--import={name}: the module ({place}) defines no part of a config and '
      'no metric; docs/extending.md names their base classes'
    )
    print(f'warning: {printable(text)}', file=sys.stderr)


def _users_classes() -> set[type]:
  """Returns the parts of configs and the metrics that xjax does not define."""
  metrics = sys.modules.get('xjax.judge.metrics.metric')
  bases = [ConfigPart, *([metrics.Metric] if metrics else [])]
  classes: set[type] = set()
  while bases:
    bases += (new := set(bases.pop().__subclasses__()) - classes)
    classes |= new
  return {cls for cls in classes if not cls.__module__.startswith('xjax.')}
