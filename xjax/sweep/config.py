"""Defines the config of a sweep: values to try, and rules to stop trials early.

The config file of a sweep has both get_config() and get_sweep().
"""

from collections.abc import Mapping
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Range:
  """Describes a range of numbers: of integers if both ends are integers."""

  low: float
  high: float
  log: bool = False  # whether values are drawn on a logarithmic scale


# Maps a dotted field, such as 'train.steps', to the values to try, or a range.
# - A key can have several fields, separated by commas. All these fields get the
#   same value.
# - If a value is a dict, the field is a part of the config, and the dict sets
#   fields of this part.
# - If a value is a part of a config, this part replaces the old part.
Space = Mapping[str, tuple[Any, ...] | Range]


@dataclasses.dataclass(frozen=True)
class Grid:
  """Tries all combinations of the values; the last field changes fastest."""

  space: Space  # without ranges


@dataclasses.dataclass(frozen=True)
class Listed:
  trials: tuple[Mapping[str, Any], ...]  # keys as in a Space


@dataclasses.dataclass(frozen=True)
class Tpe:
  """Draws trials by Optuna's Parzen estimator (TPE, Bergstra et al. 2011)."""

  space: Space
  # With pruned and failed trials. A finished sweep continues if it is started
  # again with a larger number.
  n_trials: int
  seed: int = 0  # of the draws; with one worker it determines all trials
  startup_trials: int = 10  # number of first trials that are drawn at random


Search = Grid | Listed | Tpe


@dataclasses.dataclass(frozen=True)
class MedianPruning:
  """Stops a trial if its best value so far is below the median of other trials.

  At the n-th judging (evaluation on dev during training), Optuna's rule
  compares the best value of the trial so far with the median of the values (not
  the best so far) of complete trials at their n-th judging. The judging at
  train.steps never stops a trial. With several seeds, only the judgings of the
  first seed are compared.
  """

  startup_trials: int = 5  # no trial is stopped until so many are complete
  warmup_judgings: int = 1  # number of first judgings that never stop a trial


@dataclasses.dataclass(frozen=True)
class Sweep:
  """Describes a search for the best values of some fields of a config."""

  search: Search
  pruning: MedianPruning | None = None
  # 'slice/metric' on dev of a run's best checkpoint, by which trials are
  # compared; '' means train.best_metric.
  metric: str = ''
