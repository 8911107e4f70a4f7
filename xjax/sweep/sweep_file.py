"""Reads the config file of a sweep, and writes the config files of trials."""

from collections.abc import Sequence
import os
import pprint
import runpy

from xjax.core.atomic import atomic_write
from xjax.core.errors import ConfigError
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.sweep.config import Sweep


def read_sweep(path: str) -> Sweep:
  """Returns the sweep of FILE.py, or of FILE.py:NAME by get_sweep(NAME)."""
  file, _, name = path.partition(':')
  arguments = [name] if name else []
  try:
    make = runpy.run_path(file).get('get_sweep')
    sweep = make(*arguments) if make else None
  except Exception as error:  # a user's Python file may raise any error
    last = str(error).strip().rpartition('\n')[2]
    raise ConfigError(
      f'--config={path}: cannot read the sweep ({type(error).__name__}: {last})'
    ) from error
  if not make:
    raise ConfigError(
      f'--config={path}: has no get_sweep(); add one, as in '
      'xjax/configs/sweep_quickstart.py'
    )
  if not isinstance(sweep, Sweep):
    raise ConfigError(
      f'--config={path}: get_sweep() must return a Sweep, not '
      f'{type(sweep).__name__}'
    )
  return sweep


def write_config(
  path: str | os.PathLike, config: Config, remarks: Sequence[str]
) -> None:
  """Writes a config file that needs no other; remarks are comments on top."""
  tree = pprint.pformat(to_json(config), width=76, sort_dicts=False)
  comments = [f'# {line}'.rstrip() for line in remarks]
  lines = [
    *comments,
    '',
    'from xjax.models.config_json import from_json',
    'from xjax.models.contract import Config',
    '',
    f'_CONFIG = {tree}',
    '',
    '',
    'def get_config() -> Config:',
    '  return from_json(_CONFIG, Config)',
    '',
  ]
  with atomic_write(path) as file:
    file.write('\n'.join(lines))
