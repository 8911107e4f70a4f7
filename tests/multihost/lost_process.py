"""One of two processes of which one fails; argv: port, id, what happens."""

import os
import signal
import sys

from absl import flags

from xjax.core import distributed
from xjax.core.console import show_log
from xjax.core.errors import UserError


def main(port, process, what):
  distributed._LOST = 10
  if what == 'never joins':
    distributed._JOIN = 5
    distributed._SAY_EVERY = 2
  flags.FLAGS(sys.argv[:1])
  show_log()
  distributed.start(True, f'localhost:{port}', 2, int(process))
  with distributed.together():
    distributed.barrier('first')
    if what == f'{process} is killed':
      os.kill(os.getpid(), signal.SIGKILL)
    if what == f'{process} is frozen':
      os.kill(os.getpid(), signal.SIGSTOP)
    if what == f'{process} has an error':
      raise UserError('the file is damaged')
    if what == f'{process} has a bug':
      raise KeyError('bug')
    distributed.barrier('second')


if __name__ == '__main__':
  main(*sys.argv[1:])
