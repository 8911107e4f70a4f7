r"""Searches for better settings of quickstart, without any download.

Twelve trials vary the units, the dropout and the learning rate of quickstart's
small BiGRU with label-wise attention (Chalkidis et al. 2019, Figure 1c).

  xjax sweep --config=sweep_quickstart \
    --workdir=runs/sweep_quickstart --workers=2

Data: none, it is generated. Hardware: two CPU cores. Expected: the best trial
has dev RP@5 0.877, and quickstart without changes has 0.871. With several
workers, the trials of two sweeps may differ. Time: three minutes.
"""

from xjax.configs import quickstart
from xjax.models.contract import Config
from xjax.sweep.config import MedianPruning, Range, Sweep, Tpe


def get_config() -> Config:
  return quickstart.get_config()


def get_sweep() -> Sweep:
  return Sweep(
    search=Tpe(
      space={
        'model.encoder.units': (16, 32, 64),
        'model.embedding.dropout,model.encoder.dropout': (0.1, 0.3, 0.5),
        'train.learning_rate': Range(1e-3, 2e-2, log=True),
      },
      n_trials=12,
      startup_trials=6,
    ),
    pruning=MedianPruning(startup_trials=3, warmup_judgings=0),
  )
