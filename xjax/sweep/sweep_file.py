"""Python files of a sweep: the one it is read from, those it writes."""

from collections.abc import Sequence
import os
import pprint
import runpy

from xjax.config.json import to_json
from xjax.config.run import Config
from xjax.core.atomic import atomic_write
from xjax.core.errors import ConfigError
from xjax.sweep.config import Sweep


def read_sweep(path: str) -> Sweep:
  """What get_sweep() of a config file makes.

  Args:
    path: FILE.py, or FILE.py:NAME for get_sweep(NAME).

  Raises:
    ConfigError: the file fails, has no get_sweep(), or that makes no Sweep.
  """
  file, _, name = path.partition(':')
  arguments = [name] if name else []
  try:
    make = runpy.run_path(file).get('get_sweep')
    made = make(*arguments) if make else None
  except Exception as error:  # whatever a user's Python file may raise
    last = str(error).strip().rpartition('\n')[2]
    raise ConfigError(
      f'--config={path}: get_sweep(): {type(error).__name__}: {last}'
    ) from error
  if not make:
    raise ConfigError(
      f'--config={path}: has no get_sweep(): a file that can be swept has one, '
      'as experiments/configs/sweep_quickstart.py'
    )
  if not isinstance(made, Sweep):
    raise ConfigError(
      f'--config={path}: get_sweep() must return a Sweep, not '
      f'{type(made).__name__}'
    )
  return made


def write_config(
  path: str | os.PathLike, config: Config, remarks: Sequence[str]
) -> None:
  """Writes a config file that needs no other.

  Args:
    path: a Python file.
    config: what its get_config() makes.
    remarks: lines at its top.
  """
  tree = pprint.pformat(to_json(config), width=76, sort_dicts=False)
  comments = [f'# {line}'.rstrip() for line in remarks]
  lines = [
    *comments,
    '',
    'from xjax.config.run import Config',
    'from xjax.config.json import from_json',
    '',
    f'_CONFIG = {tree}',
    '',
    '',
    'def get_config() -> Config:',
    '  return from_json(_CONFIG)',
    '',
  ]
  with atomic_write(path) as file:
    file.write('\n'.join(lines))
