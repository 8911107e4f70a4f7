"""Checks a corpus before a run: faults, duplicates, labels, lengths.

  xjax data check DIR [--config.data.FIELD=VALUE ...]
  xjax data check --config=NAME [--config.data.FIELD=VALUE ...]

DIR is a file or folder of your own documents, in a format that the config
own_linear reads. With --config, the corpus of another config is checked. The
checks are those of a run, of its model too. The exit code is 1 if a run would
refuse the corpus.
"""

import re
import sys

from xjax.commands.flags import config, program
from xjax.core.console import show
from xjax.core.errors import ConfigError

_CONFIG = config.define()
_USAGE = 'write: xjax data check DIR, or xjax data check --config=NAME'


def main(arguments: list[str]) -> None:
  """Prints what is in the corpus, and what is wrong with it."""
  from xjax.report.terminal.data_check import check_data

  if arguments != ['check']:
    raise ConfigError(_USAGE)
  text, accepted = check_data(_CONFIG.value)
  show(text)
  if not accepted:
    sys.exit(program.EXIT_USER_ERROR)


def with_folder(words: list[str]) -> list[str]:
  """Turns `check DIR` into flags: own_linear reads the corpus in DIR."""
  folder = []
  if words[:1] == ['check'] and words[1:] and not words[1].startswith('-'):
    folder = [f'--config.data.dir={words[1]}']
    words = [words[0], *words[2:]]
  chosen = any(re.match(r'--?config(=|$)', word) for word in words)
  # The library that reads --config.FIELD needs --config before it.
  config_ = [] if chosen else ['--config=own_linear']
  return [*words[:1], *config_, *words[1:], *folder]


if __name__ == '__main__':
  # The command's start runs this file first, and then `main`.
  sys.argv[1:] = with_folder(sys.argv[1:])
