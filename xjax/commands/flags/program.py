"""Runs a command: parses its flags, and turns errors into exit codes."""

import atexit
from collections.abc import Callable
import contextlib
import functools
import inspect
import signal
import sys
from typing import NoReturn

from absl import app, flags

from xjax.commands.flags import compile_cache, config, imports, processes
from xjax.commands.flags.help import asks_for_help, help_text
from xjax.core.allocation import keep_freed_memory
from xjax.core.console import show_log, start_command, writing_output
from xjax.core.errors import Interrupted, Preempted, UserError, printable
from xjax.core.progress import Heartbeat

EXIT_USER_ERROR = 1
EXIT_PREEMPTED = 75  # a launcher then starts the same command again
EXIT_INTERRUPTED = 130

# The words of this command, as the user wrote them: later, names of configs
# become paths.
WORDS: list[str] = []


def run(main: Callable[..., None], heartbeat: bool = True) -> None:
  """Parses the flags, calls main and exits.

  The exit code is 0 after success. After a user's mistake it is 1, and one
  message is printed without a traceback. If the run was preempted, the exit
  code is 75, and the same command must be started again. A main with an
  argument gets a list of those that are not flags. With `heartbeat`, a line is
  written after each ten seconds of silence.
  """
  WORDS[:] = [*sys.argv[0].split(), *sys.argv[1:]]
  start_command()
  imports.define()
  takes_arguments = bool(inspect.signature(main).parameters)

  def work(argv: list[str]) -> None:
    keep_freed_memory()
    show_log()
    shown = Heartbeat(sys.argv[0]) if heartbeat else contextlib.nullcontext()
    with (
      shown,
      writing_output(),
      processes.connected(),
      compile_cache.keeping_programs(),
    ):
      main(*([argv[1:]] if takes_arguments else []))

  parse = functools.partial(_parse, takes_arguments=takes_arguments)
  try:
    if asks_for_help(sys.argv):
      with writing_output():
        print(help_text(sys.argv[0], main.__globals__['__doc__']))
      sys.exit(0)
    app.run(work, flags_parser=parse)
  except (UserError, flags.Error) as error:
    _exit(f'error: {error}', EXIT_USER_ERROR)
  except Interrupted as error:
    _exit(f'interrupted: {error}', EXIT_INTERRUPTED)
  except Preempted as error:
    _exit(f'preempted: {error}', EXIT_PREEMPTED)
  except KeyboardInterrupt:
    _exit('interrupted', EXIT_INTERRUPTED)
  finally:
    # While Python exits, Ctrl-C would print tracebacks. Python calls the
    # function that was registered last first.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)


def _exit(message: str, code: int) -> NoReturn:
  """Prints a message with paths or values of the user, and exits."""
  print(printable(message), file=sys.stderr)
  sys.exit(code)


def _parse(argv: list[str], takes_arguments: bool) -> list[str]:
  imports.import_modules(argv)
  if 'config' in flags.FLAGS:
    config.replace_config_names(argv)
    config.check_overrides(argv)
  rest = flags.FLAGS(argv)
  if len(rest) > 1 and not takes_arguments:
    raise UserError(f'{rest[1]!r} is not a flag; write flags as --name=value')
  if 'config' in flags.FLAGS:
    config.check()
  return rest
