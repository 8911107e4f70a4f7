"""Runs a command: parses its flags, and turns errors into exit codes."""

import atexit
from collections.abc import Callable, Sequence
import functools
import signal
import sys
import threading

from absl import app, flags

from xjax.commands.flags import config, imports, processes
from xjax.commands.flags.help import asks_for_help, help_text
from xjax.core.allocation import keep_freed_memory
from xjax.core.console import show_log, writing_output
from xjax.core.errors import Interrupted, Preempted, UserError, printable
from xjax.core.interrupts import hearing_ctrl_c
from xjax.core.progress import Heartbeat

EXIT_USER_ERROR = 1
EXIT_PREEMPTED = 75  # a launcher then starts the same command again
EXIT_INTERRUPTED = 130
# A command that is still starting after this time says so.
_SILENCE = 1.0  # seconds


# The words of the command line, before names of configs became paths.
_WORDS: list[str] = []


def words() -> list[str]:
  """Returns the words of this command, as the user wrote them."""
  return _WORDS


def run(main: Callable[[], None]) -> None:
  """Parses the flags, calls main and exits.

  The exit code is 0 after success. After a user's mistake it is 1, and one
  message is printed without a traceback. If the run was preempted, the exit
  code is 75, and the same command must be started again.
  """
  _run(main, lambda _: main(), takes_arguments=False)


def run_with_arguments(main: Callable[[list[str]], None]) -> None:
  """Does the same as run(), but main gets the arguments that are not flags."""
  _run(main, main, takes_arguments=True)


def _run(
  main: Callable[..., None],
  with_arguments: Callable[[list[str]], None],
  takes_arguments: bool,
) -> None:
  _WORDS[:] = [*sys.argv[0].split(), *sys.argv[1:]]
  imports.define()
  if asks_for_help(sys.argv):
    print(help_text(sys.argv[0], main.__globals__['__doc__']))
    sys.exit(0)
  # Loading libraries and a config takes seconds.
  notice = threading.Timer(
    _SILENCE, print, [f'{sys.argv[0]}: starting'], {'file': sys.stderr}
  )
  notice.daemon = True
  notice.start()
  try:
    app.run(
      functools.partial(_run_guarded, with_arguments),
      flags_parser=functools.partial(_parse, takes_arguments=takes_arguments),
    )
  finally:
    notice.cancel()
    # While Python exits, Ctrl-C would print tracebacks. Python calls the
    # function that was registered last first.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)


def _run_guarded(main: Callable[[list[str]], None], argv: Sequence[str]) -> int:
  keep_freed_memory()
  show_log()
  try:
    with (
      hearing_ctrl_c(),
      Heartbeat(sys.argv[0]),
      writing_output(),
      processes.connected(),
    ):
      main(list(argv[1:]))
  except UserError as error:
    return _fail(error)
  except Interrupted as error:
    print(f'interrupted: {error}', file=sys.stderr)
    return EXIT_INTERRUPTED
  except Preempted as error:
    print(f'preempted: {printable(str(error))}', file=sys.stderr)
    return EXIT_PREEMPTED
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    return EXIT_INTERRUPTED
  return 0


def _fail(error: Exception) -> int:
  print(f'error: {error}', file=sys.stderr)
  return EXIT_USER_ERROR


def _parse(argv: list[str], takes_arguments: bool) -> list[str]:
  try:
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
  except (UserError, flags.Error) as error:
    sys.exit(_fail(error))
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(EXIT_INTERRUPTED)
