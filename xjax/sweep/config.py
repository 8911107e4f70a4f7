"""Defines the config of a sweep: values to try, and rules to stop trials early.

A sweep needs a config file that has get_sweep() as well as get_config().
"""

from collections.abc import Mapping
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Range:
  """Describes a range of numbers, or of integers if both ends are integers.

  Attributes:
    low: the smallest value.
    high: the largest value.
    log: whether values are drawn uniformly on a logarithmic scale.
  """

  low: float
  high: float
  log: bool = False


# Dotted field -> the values to try, or a range. A key may name several fields,
# separated by commas, which get the same value. A value may be a dict, which
# sets fields of the part that the key names, or a part, which replaces that
# part.
Space = Mapping[str, tuple[Any, ...] | Range]


@dataclasses.dataclass(frozen=True)
class Search:
  """Describes a way of choosing the trials."""


@dataclasses.dataclass(frozen=True)
class Grid(Search):
  """Tries all combinations of the values; the last field changes fastest.

  Attributes:
    space: the values of each field; ranges are not allowed.
  """

  space: Space


@dataclasses.dataclass(frozen=True)
class Listed(Search):
  """Tries a given list of trials.

  Attributes:
    trials: for each trial its values by field, with keys as in a Space.
  """

  trials: tuple[Mapping[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Tpe(Search):
  """Draws trials by Optuna's tree-structured Parzen estimator.

  The estimator draws values near the values of good trials (Bergstra et al.
  2011).

  Attributes:
    space: the values or the range of each field.
    n_trials: number of trials, including pruned and failed trials. A finished
      sweep continues if it is started with a larger number.
    seed: the seed of the draws. With one worker, the seed determines all
      trials.
    startup_trials: number of trials that are drawn at random, before the
      results of earlier trials are used.
  """

  space: Space
  n_trials: int = dataclasses.field(metadata={'may_change': True})
  seed: int = 0
  startup_trials: int = 10


@dataclasses.dataclass(frozen=True)
class Pruning:
  """Describes a rule for stopping trials early."""


@dataclasses.dataclass(frozen=True)
class NoPruning(Pruning):
  """Stops no trial early."""


@dataclasses.dataclass(frozen=True)
class MedianPruning(Pruning):
  """Stops a trial if its best value so far is below a median of other trials.

  This is Optuna's rule. At the n-th judging of a trial, its best value so far
  is compared with the median of the values of the complete trials at their n-th
  judging (their values at this judging, not their best values so far). Pruned
  trials, failed trials and trials with fewer judgings do not count. The judging
  at train.steps never stops a trial. With several seeds, only the run of the
  first seed decides.

  Attributes:
    startup_trials: number of complete trials before any trial is stopped.
    warmup_judgings: number of judgings of a trial before it may be stopped.
  """

  startup_trials: int = 5
  warmup_judgings: int = 1


@dataclasses.dataclass(frozen=True)
class Sweep:
  """Describes a search for the best values of some fields of a config.

  Attributes:
    search: how trials are chosen.
    pruning: which trials are stopped early.
    metric: metric of a run's best checkpoint on dev, as 'slice/metric', by
      which trials are compared. If '', train.best_metric is used.
  """

  search: Search
  pruning: Pruning = NoPruning()
  metric: str = ''
