"""Starts a sub-command of `xjax`."""

import ast
import difflib
import pathlib
import runpy
import sys

from xjax.version import __version__

_GROUPS = {
  'Train and use a model': ('train', 'predict', 'serve'),
  'Judge and compare': ('evaluate', 'compare', 'report'),
  'Look around': ('configs', 'data'),
  'More': ('sweep', 'transfer', 'embed', 'embeddings', 'export'),
}
COMMANDS = [name for names in _GROUPS.values() for name in names]


def main() -> None:
  """Runs the command line `xjax COMMAND ...` and exits."""
  command, *arguments = sys.argv[1:] or ['--help']
  if command in ('--help', '-h', '-help', 'help'):
    _print(_help())
  elif command in ('--version', '-V', 'version'):
    _print(f'xjax {__version__}')
  elif command in COMMANDS:
    sys.argv[1:] = arguments
    run_command(command)
  else:
    close = difflib.get_close_matches(command, COMMANDS, n=1)
    advice = f'did you mean {close[0]}?' if close else 'xjax --help lists them'
    print(f'error: {command!a} is no command; {advice}', file=sys.stderr)
    sys.exit(1)


def run_command(name: str) -> None:
  """Runs a sub-command, one of COMMANDS, with sys.argv's flags, and exits."""
  # Messages and model cards show this as the command.
  sys.argv[0] = f'xjax {name}'
  # The flags of a module of this name are the first group of --help.
  command = runpy.run_module(f'xjax.commands.{name}', run_name='__main__')
  from xjax.commands.flags import program

  program.run(command['main'], command.get('HEARTBEAT', True))


def _print(text: str) -> None:
  from xjax.core.console import writing_output
  from xjax.core.errors import UserError

  try:
    with writing_output():
      print(text)
  except UserError as error:
    sys.exit(f'error: {error}')


def _help() -> str:
  lines = ['usage: xjax COMMAND [--flag=value ...]', '']
  for title, names in _GROUPS.items():
    commands = [f'  {name:<12}{_summary(name)}' for name in names]
    lines += [f'{title}:', *commands, '']
  lines += [
    '`xjax COMMAND --help` shows the flags of a command. A first run:',
    '  xjax train --config=quickstart --workdir=runs/quickstart',
    'A first run on your own documents:',
    '  xjax train --config=auto --config.data.dir=FILE --workdir=runs/mine',
  ]
  return '\n'.join(lines)


def _summary(name: str) -> str:
  """Returns the first line of a command's docstring, without importing it."""
  source = pathlib.Path(__file__).with_name(f'{name}.py').read_text('utf-8')
  return ast.get_docstring(ast.parse(source)).partition('\n')[0]
