"""A run in a process of its own, for tests that kill it or have several.

python fit_process.py CONFIG.json WORKDIR [COORDINATOR COUNT ID]
"""

import sys

from xjax.core.console import show_log
from xjax.core.errors import Interrupted, Preempted, UserError
from xjax.core.processes import connection
from xjax.models.contract import load_config
from xjax.run.fit import fit

if __name__ == '__main__':
  config, workdir, *others = sys.argv[1:]
  show_log()
  if others:
    connection.start(True, others[0], int(others[1]), int(others[2]))
  try:
    with connection.failing_together():
      fit(load_config(config), workdir)
  except Interrupted:
    sys.exit(130)
  except Preempted:
    sys.exit(75)
  except UserError as error:
    sys.exit(f'error: {error}')
