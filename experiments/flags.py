"""Runs the command-line programs: parses flags and reports errors."""

from collections.abc import Callable, Iterator, Sequence
import functools
import importlib
import os
import pathlib
import re
import sys
from typing import Any

from absl import app, flags
from ml_collections import config_flags

from xjax.config.check import check_config, field_fault
from xjax.config.run import Config
from xjax.core import distributed
from xjax.core.allocation import keep_freed_memory
from xjax.core.console import show_log
from xjax.core.errors import ConfigError, UserError
from xjax.train.preemption import Preempted

# Without this call, --help would list the flags under the name of this file,
# not of the program.
flags.disclaim_key_flags()

EXIT_USER_ERROR = 1
EXIT_PREEMPTED = 75  # a launcher then starts the same command again
EXIT_INTERRUPTED = 130


class TupleParser(flags.ArgumentParser):
  """Parses 'a,b' or "('a', 'b')" into a tuple with elements of one type."""

  def __init__(self, element: type):
    self._element = element

  def parse(self, argument: str | tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(argument, tuple):  # absl parses a flag's default too
      return argument
    items = (
      item.strip(' \'"') for item in _strip_brackets(argument).split(',')
    )
    return tuple(self._element(item) for item in items if item)

  def flag_type(self) -> str:
    return f'tuple of {self._element.__name__}'


def _strip_brackets(text: str) -> str:
  """Removes brackets around the whole text, but no other brackets.

  In 'layers/[0-3]' and '[ab]/x,[cd]/x' brackets belong to globs and stay.
  """
  text = text.strip()
  if text[:1] + text[-1:] not in ('()', '[]'):
    return text
  depth, steps = 0, {'(': 1, '[': 1, ')': -1, ']': -1}
  for character in text[:-1]:
    depth += steps.get(character, 0)
    if not depth:  # the first bracket closes before the end
      return text
  return text[1:-1]


def define_config() -> flags.FlagHolder[Config]:
  """Defines --config=FILE.py[:NAME] and --config.<field>=<value>."""
  for element in (int, float, str):
    config_flags.register_flag_parser_for_type(
      tuple[element, ...], TupleParser(element)
    )
  holder = config_flags.DEFINE_config_file(
    'config',
    None,
    'Python file with get_config(), or FILE.py:NAME for get_config(NAME).',
    lock_config=True,
  )
  flags.mark_flag_as_required('config')
  return holder


class _StepsParser(flags.ArgumentParser):
  """Parses 'FIRST:LAST' into two integers."""

  syntactic_help = 'FIRST:LAST, two step numbers.'

  def parse(self, argument: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d+):(\d+)', argument)
    if not match:
      raise ValueError('expected FIRST:LAST, such as 100:109')
    return int(match[1]), int(match[2])


def define_profile() -> flags.FlagHolder[tuple[int, int] | None]:
  """Defines --profile=FIRST:LAST, which traces the steps FIRST to LAST."""
  return flags.DEFINE(
    _StepsParser(),
    'profile',
    None,
    'Steps to trace with jax.profiler; traces are saved in WORKDIR/profile.',
  )


def define_multihost() -> None:
  """Defines --multihost and the flags that connect the processes."""
  flags.DEFINE_bool(
    'multihost', False, 'Run as one of several connected processes.'
  )
  flags.DEFINE_string(
    'coordinator',
    '',
    'address:port of process 0; not needed on TPU pods, SLURM and Kubernetes.',
  )
  flags.DEFINE_integer(
    'num_processes', 0, 'Number of processes; used only with --coordinator.'
  )
  flags.DEFINE_integer(
    'process_id',
    -1,
    'Number of this process, counted from 0; used only with --coordinator.',
  )


def _define_import() -> None:
  """Defines --import, which every program has."""
  flags.DEFINE_multi_string(
    'import',
    [],
    'Your own module (encoders, metrics etc.) to import before the config. '
    'The flag may be repeated.',
  )


def imports() -> list[str]:
  """Returns the names of the modules in --import."""
  return flags.FLAGS['import'].value


def _import_modules(argv: Sequence[str]) -> None:
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


def run(main: Callable[[], None]) -> None:
  """Parses the flags, calls main and exits.

  The exit code is 0 after success. After a user's mistake it is 1, and one
  message is printed without a traceback. If the run was preempted, the exit
  code is 75, and the same command must be started again.
  """
  _define_import()
  app.run(
    functools.partial(_run_guarded, lambda _: main()),
    flags_parser=functools.partial(_parse, takes_arguments=False),
  )


def run_with_arguments(main: Callable[[list[str]], None]) -> None:
  """Does the same as run(), but main gets the arguments that are not flags."""
  _define_import()
  app.run(
    functools.partial(_run_guarded, main),
    flags_parser=functools.partial(_parse, takes_arguments=True),
  )


def _run_guarded(main: Callable[[list[str]], None], argv: Sequence[str]) -> int:
  keep_freed_memory()
  show_log()
  try:
    if 'multihost' in flags.FLAGS:
      distributed.start(
        *(
          flags.FLAGS[name].value
          for name in (
            'multihost',
            'coordinator',
            'num_processes',
            'process_id',
          )
        )
      )
    main(list(argv[1:]))
  except UserError as error:
    return _fail(error)
  except Preempted as error:
    print(f'preempted: {error}', file=sys.stderr)
    return EXIT_PREEMPTED
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    return EXIT_INTERRUPTED
  except BrokenPipeError:  # the reader of standard output has closed it
    # At exit, Python writes the rest of the output. To avoid a second error,
    # the rest goes to the null device.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  return 0


def _fail(error: Exception) -> int:
  print(f'error: {error}', file=sys.stderr)
  return EXIT_USER_ERROR


def _parse(argv: Sequence[str], takes_arguments: bool) -> list[str]:
  try:
    _import_modules(argv)
    if 'config' in flags.FLAGS:
      _check_overrides(argv)
    rest = flags.FLAGS(argv)
    if len(rest) > 1 and not takes_arguments:
      raise UserError(f'{rest[1]!r} is not a flag; write flags as --name=value')
    if 'config' in flags.FLAGS:
      check_config(flags.FLAGS['config'].value)
    return rest
  except (UserError, flags.Error) as error:
    sys.exit(_fail(error))
  except SystemExit:
    # Only --help raises SystemExit. absl exits with 1, but help is no error.
    sys.exit(0)


def _check_overrides(argv: Sequence[str]) -> None:
  """Checks that each --config.<field> is a field of the config file's Config.

  Without this check, config_flags would print a traceback, not a message.
  """
  path, names = _config_arguments(argv)
  if path is None and names:
    raise ConfigError(f'--config.{names[0]} needs --config=FILE.py')
  if path is None:
    return
  config = _load(path)
  for name in names:
    if fault := field_fault(config, name):
      raise ConfigError(fault)


def _config_arguments(argv: Sequence[str]) -> tuple[str | None, list[str]]:
  """Returns the config file and the names of overridden fields."""
  path, names = None, []
  following: Iterator[str] = iter(argv[1:])
  for argument in following:
    match = re.fullmatch(r'--?config(?:\.([^=]+))?(?:=(.*))?', argument, re.S)
    if match and match[1] is not None:
      names.append(match[1])
    elif match:
      path = next(following, '') if match[2] is None else match[2]
  return path, names


def _load(path: str) -> Config:
  # FILE.py:NAME selects one of several configs of a file.
  file = path.partition(':')[0]
  if not pathlib.Path(file).is_file():
    raise ConfigError(f'--config={path}: no such file')
  try:
    config = flags.FLAGS['config'].parser.parse(path)
  except (Exception, SystemExit) as error:  # the file may raise anything
    last = str(error).strip().rpartition('\n')[2]
    raise ConfigError(
      f'--config={path}: {type(error).__name__}: {last}'
    ) from error
  if not isinstance(config, Config):
    raise ConfigError(f'--config={path}: get_config() must return a Config')
  return config
