"""Defines the config of a sweep: values to try, and rules to stop trials early.

The config file of a sweep has both get_config() and get_sweep().
"""

from collections.abc import Mapping
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Range:
  """Describes a range of numbers.

  If `low` and `high` are integers, all values are integers.

  Attributes:
    low: the smallest value.
    high: the largest value.
    log: whether values are drawn uniformly on a logarithmic scale.
  """

  low: float
  high: float
  log: bool = False


# Maps a dotted field, such as 'train.steps', to the values to try, or a range.
# - A key can have several fields, separated by commas. All these fields get the
#   same value.
# - If a value is a dict, the field is a part of the config, and the dict sets
#   fields of this part.
# - If a value is a part of a config, this part replaces the old part.
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
    trials: the values of each trial, by field. A key has the same form as in a
      Space.
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
      sweep continues if it is started again with a larger number.
    seed: the seed of the draws. With one worker, the seed determines all
      trials.
    startup_trials: number of first trials that are drawn at random. Later draws
      use the results of earlier trials.
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
  """Stops a trial if its best value so far is below the median of other trials.

  A judging is an evaluation on dev during training. Optuna's rule is applied at
  each judging of a trial:

  - At the n-th judging, the best value of the trial so far is compared with a
    median.
  - The median is computed over the values of complete trials at the n-th
    judging, not over their best values so far. Pruned trials, failed trials,
    and trials with fewer than n judgings are left out.
  - The judging at train.steps never stops a trial.
  - With several seeds, only the judgings of the first seed are compared.

  Attributes:
    startup_trials: no trial is stopped until this number of trials is complete.
    warmup_judgings: number of first judgings that never stop a trial.
  """

  startup_trials: int = 5
  warmup_judgings: int = 1


@dataclasses.dataclass(frozen=True)
class Sweep:
  """Describes a search for the best values of some fields of a config.

  Attributes:
    search: how trials are chosen.
    pruning: which trials are stopped early.
    metric: metric by which trials are compared, as 'slice/metric'. The metric
      is computed on dev for the best checkpoint of a run. '' means
      train.best_metric.
  """

  search: Search
  pruning: Pruning = NoPruning()
  metric: str = ''
