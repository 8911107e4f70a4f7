"""Starts a sub-command of `xjax`."""

import difflib
import runpy
import sys

from xjax.version import __version__

_GROUPS = {
  'Train and use a model': {
    'train': 'Trains a model, judges it, and shows some predictions.',
    'predict': 'Predicts the labels of new documents.',
    'serve': 'Serves a model over HTTP.',
  },
  'Judge and compare': {
    'evaluate': 'Judges a run, or a file of scores of any system.',
    'compare': 'Compares systems with a baseline, with p-values.',
    'report': 'Writes a page with tables and pictures about systems.',
  },
  'Look around': {
    'configs': 'Lists the configs that --config takes by name.',
    'data': 'Checks a corpus: faults, duplicates, labels, lengths.',
  },
  'More': {
    'sweep': 'Searches for the best values of config fields.',
    'transfer': 'Transfers a corpus between hierarchical and flat form.',
    'embed': 'Writes vectors of documents and labels by an encoder.',
    'embeddings': 'Trains vectors of single words (word2vec).',
    'export': 'Writes an encoder as a Hugging Face folder.',
  },
}
COMMANDS = {
  name: text for group in _GROUPS.values() for name, text in group.items()
}


def main() -> None:
  """Runs the command line `xjax COMMAND ...` and exits."""
  command, *arguments = sys.argv[1:] or ['--help']
  if command in ('--help', '-h', '-help', 'help'):
    print(_help())
  elif command in ('--version', '-V', 'version'):
    print(f'xjax {__version__}')
  elif command in COMMANDS:
    sys.argv[1:] = arguments
    run_command(command)
  else:
    close = difflib.get_close_matches(command, COMMANDS, n=1)
    advice = f'did you mean {close[0]}?' if close else 'xjax --help lists them'
    print(f'error: {command!a} is no command; {advice}', file=sys.stderr)
    sys.exit(1)


def run_command(name: str) -> None:
  """Runs a sub-command, a key of COMMANDS, with sys.argv's flags, and exits."""
  # Messages and model cards show this as the command.
  sys.argv[0] = f'xjax {name}'
  runpy.run_module(f'xjax.commands.{name}', run_name='__main__')


def _help() -> str:
  lines = ['usage: xjax COMMAND [--flag=value ...]', '']
  for title, commands in _GROUPS.items():
    lines.append(f'{title}:')
    lines += [f'  {name:<12}{text}' for name, text in commands.items()]
    lines.append('')
  lines += [
    '`xjax COMMAND --help` shows the flags of a command. A first run:',
    '  xjax train --config=quickstart --workdir=runs/quickstart',
    'A first run on your own documents:',
    '  xjax train --config=auto --config.data.dir=FILE --workdir=runs/mine',
  ]
  return '\n'.join(lines)
