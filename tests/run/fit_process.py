"""A run in a process of its own, for tests that kill it or have several.

python fit_process.py CONFIG.json WORKDIR [COORDINATOR COUNT ID [STRATEGY]]

Labels of dev that a strategy chooses are saved in WORKDIR.ID.npy.
"""

import sys

import numpy as np

from xjax.core.console import show_log
from xjax.core.errors import Interrupted, Preempted, UserError
from xjax.core.processes import connection
from xjax.models.contract import load_config
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest

if __name__ == '__main__':
  config, workdir, *others = sys.argv[1:]
  show_log()
  if others:
    connection.start(True, others[0], int(others[1]), int(others[2]))
  try:
    with connection.failing_together():
      fit(load_config(config), workdir)
      if others[3:]:
        asked = StrategyRequest(StrategyKind(others[3]), 3)
        chosen = evaluate_split(workdir, 'dev', strategy=asked).predictions
        np.save(f'{workdir}.{others[2]}.npy', chosen.lists['all'].ids)
  except Interrupted:
    sys.exit(130)
  except Preempted:
    sys.exit(75)
  except UserError as error:
    sys.exit(f'error: {error}')
