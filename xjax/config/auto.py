"""Defines the config of a run that chooses its model by the corpus."""

import dataclasses

from xjax.config.train import TrainConfig
from xjax.core.config_part import field
from xjax.data.config import TokensConfig
from xjax.score.config import ModelConfig


@dataclasses.dataclass
class AutoModel(ModelConfig):
  """Stands for the model that xjax.run.auto chooses when a run starts.

  The choice is saved in the workdir in place of this part.
  """

  reads = (TokensConfig,)

  encoder: str = field(
    '',
    'The folder of a pretrained encoder. It is used only if an accelerator is '
    'there.',
    tiny='',
  )


@dataclasses.dataclass
class AutoTrain(TrainConfig):
  """Stands for the training of the model that is chosen."""

  trains = (AutoModel,)
