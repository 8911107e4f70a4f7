"""A small run in a process of its own, for tests that kill it.

python train_process.py WORKDIR STEPS
"""

import dataclasses
import sys

from xjax.core.console import show_log
from xjax.train.config import Config, shrink
from xjax.train.fit import fit
from xjax.train.preemption import Preempted


def config(steps: int) -> Config:
  """Dropout, several epochs, judgings and checkpoints out of step."""
  small = shrink(Config())
  return dataclasses.replace(
    small,
    data=dataclasses.replace(small.data, n_train=48),
    train=dataclasses.replace(
      small.train,
      batch_size=16,
      steps=steps,
      log_every=2,
      checkpoint_every=3,
      judge_every=10,
      learning_rate=0.01,
      keep=2,
    ),
  )


if __name__ == '__main__':
  show_log()
  try:
    fit(config(int(sys.argv[2])), sys.argv[1])
  except Preempted:
    sys.exit(75)
