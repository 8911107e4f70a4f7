"""Defines the base class of the settings of training."""

import dataclasses

from xjax.core.config_part import ConfigPart


@dataclasses.dataclass
class TrainConfig(ConfigPart, abstract=True):
  # Number of optimizer steps; 0 if training takes no such steps.
  steps = 0
  # The 'slice/metric' that chooses the best checkpoint; empty if there is only
  # one.
  best_metric = ''


@dataclasses.dataclass
class NoTrain(TrainConfig):
  """Skips training, for models that have nothing to learn."""
