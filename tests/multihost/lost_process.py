"""One of two processes of which one fails; argv: port, id, what happens."""

import os
import signal
import sys

from absl import flags

from xjax.core.console import show_log
from xjax.core.distributed import barrier
from xjax.core.errors import UserError
from xjax.core.processes import connection


def main(port, process, what):
  connection._LOST = 10
  if what == 'never joins':
    connection._JOIN = 5
  flags.FLAGS(sys.argv[:1])
  show_log()
  connection.start(True, f'localhost:{port}', 2, int(process))
  with connection.failing_together():
    barrier('first')
    if what == f'{process} is killed':
      os.kill(os.getpid(), signal.SIGKILL)
    if what == f'{process} is frozen':
      os.kill(os.getpid(), signal.SIGSTOP)
    if what == f'{process} has an error':
      raise UserError('the file is damaged')
    if what == f'{process} has a bug':
      raise KeyError('bug')
    barrier('second')


if __name__ == '__main__':
  main(*sys.argv[1:])
