"""Defines the config of a stage, a model that is trained for another run.

This module loads no JAX, which linear models do not need.
"""

from collections.abc import Iterator
import dataclasses
import re

from xjax.core.config_part import AT_LEAST_1, ConfigPart, field, kind_named
from xjax.core.errors import ConfigError
from xjax.data.config import TokensConfig, WordsConfig
from xjax.models.config_check import check_config
from xjax.models.contract import Config, Model, default_model
from xjax.train.train_config import TrainConfig

# Finds the fields of a run's config that a stage has itself.
_OWN_FIELDS = re.compile(r'\bconfig\.(?:data\.(tokens)|(model|train))\b')


def with_stage_paths(message: str, path: str) -> str:
  """Replaces paths like config.train.steps of a stage by those of the run.

  `path` is that of the stage in the run's config, such as config.model.matcher.
  """
  # All replacements are made at once, because `path` has config.model.
  return _OWN_FIELDS.sub(rf'{path}.\1\2', message)


def _neural_train() -> TrainConfig:
  return kind_named('NeuralTrain', TrainConfig)()


def _pooled_model() -> Model:
  return default_model().pooled()


@dataclasses.dataclass
class StageConfig(ConfigPart):
  """Configures a stage: a model that is trained before the run's own model.

  The stage has the corpus, the seed, the evaluation and the mesh of the run.
  """

  is_stage = True

  tokens: TokensConfig = field(WordsConfig, 'How the model reads documents.')
  zones: tuple[str, ...] = field(
    (),
    'The zones that the model reads, which must be zones of the run. If empty, '
    'the model reads all zones of the run.',
    tiny=(),
  )
  model: Model = field(_pooled_model, 'The model.')
  train: TrainConfig = field(_neural_train, 'How the model is trained.')
  batch_size: int = field(
    64, 'Documents per batch when the model is judged or used.', AT_LEAST_1
  )

  def run_config(self, config: Config) -> Config:
    """Returns the config of the stage's own run."""
    zones = self.zones or config.data.zones
    return dataclasses.replace(
      config,
      data=dataclasses.replace(config.data, tokens=self.tokens, zones=zones),
      model=self.model,
      train=self.train,
      eval=dataclasses.replace(config.eval, batch_size=self.batch_size),
    )

  def faults(self, config: Config, path: str) -> Iterator[str]:
    outside = [zone for zone in self.zones if zone not in config.data.zones]
    if config.data.zones and outside:
      yield (
        f'{path}.zones={self.zones}: {", ".join(outside)} must be in '
        f'config.data.zones={config.data.zones}'
      )
    try:
      check_config(self.run_config(config))
    except ConfigError as error:
      yield from with_stage_paths(str(error), path).splitlines()
