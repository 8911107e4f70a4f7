"""What a sweep tries: fields of a config, in which order, and when to give up.

A config file that has get_sweep() beside get_config() can be swept.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Range:
  """The numbers from low to high; whole ones where both ends are whole.

  Attributes:
    low, high: both included.
    log: whether their logarithms are drawn evenly, not they themselves.
  """

  low: float
  high: float
  log: bool = False


# Dotted field -> the values to try, or a range. A key may name several fields,
# separated by commas, that are set alike; a value may be a dict that sets
# fields below the one named, or another part of the model.
Space = Mapping[str, tuple[Any, ...] | Range]


@dataclasses.dataclass(frozen=True)
class Search:
  """Which trials there are."""


@dataclasses.dataclass(frozen=True)
class Grid(Search):
  """Every combination of the values; the last field changes fastest.

  Attributes:
    space: without ranges.
  """

  space: Space


@dataclasses.dataclass(frozen=True)
class Listed(Search):
  """These.

  Attributes:
    trials: of each the fields it sets, as in a Space, and their values.
  """

  trials: tuple[Mapping[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Tpe(Search):
  """A tree-structured Parzen estimator (Bergstra et al. 2011), by Optuna.

  Attributes:
    space: of the trials.
    n_trials: in all, with those that are pruned or fail. More of them go on.
    seed: of what is drawn. With one worker the trials follow from it.
    startup_trials: drawn at random before the results of others count.
  """

  space: Space
  n_trials: int = dataclasses.field(metadata={'may_change': True})
  seed: int = 0
  startup_trials: int = 10


@dataclasses.dataclass(frozen=True)
class Pruning:
  """Which trials are stopped before their end."""


@dataclasses.dataclass(frozen=True)
class NoPruning(Pruning):
  """None."""


@dataclasses.dataclass(frozen=True)
class MedianPruning(Pruning):
  """Those whose best judging so far is below a median of others.

  By Optuna's rule: at its n-th judging, a trial's best value so far is compared
  with the median of the values, not the best so far, that the complete trials
  had at their n-th. Pruned and failed trials do not count, nor do those that
  ended before. The judging at train.steps stops nothing. With several seeds the
  first one's run decides.

  Attributes:
    startup_trials: complete before any is stopped.
    warmup_judgings: of a trial, before it may be stopped.
  """

  startup_trials: int = 5
  warmup_judgings: int = 1


@dataclasses.dataclass(frozen=True)
class Sweep:
  """A search for the best values of some fields of a config.

  Attributes:
    search: which trials there are.
    pruning: which of them are stopped early.
    metric: 'slice/metric' on dev by which trials are compared, of the
      checkpoint that a run judges best; '': train.best_metric.
  """

  search: Search
  pruning: Pruning = NoPruning()
  metric: str = ''
