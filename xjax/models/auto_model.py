"""Defines settings that stand for a model which xjax.run.auto chooses."""

import dataclasses
from typing import NoReturn

from xjax.core.errors import ConfigError
from xjax.data.config import TokensConfig
from xjax.data.schema import Corpus
from xjax.models.contract import Model, Run
from xjax.train.train_config import TrainConfig


@dataclasses.dataclass
class AutoTrain(TrainConfig):
  """Stands for the training of the model that is chosen for AutoModel."""


@dataclasses.dataclass
class AutoModel(Model):
  """Stands for the model that xjax.run.auto chooses when a run starts.

  The choice is saved in the workdir in place of this part.
  """

  reads = (TokensConfig,)
  trained_by = AutoTrain
  chooses = True

  def check(self, corpus: Corpus, run: Run) -> NoReturn:
    """Raises a ConfigError, because this is no model."""
    raise ConfigError(f'config.model: no kind of run fits {self!r}')

  def fit(self, corpus: Corpus, run: Run) -> NoReturn:
    self.check(corpus, run)

  def open(self, run: Run) -> NoReturn:
    raise ConfigError(f'config.model: no kind of run fits {self!r}')
