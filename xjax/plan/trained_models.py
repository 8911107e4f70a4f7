"""Lists the models that a run trains, in the order of training."""

from collections.abc import Iterator
import dataclasses

from xjax.core.errors import ConfigError
from xjax.models.config import Config
from xjax.models.model_configs import TreeModel, is_neural
from xjax.models.staged.level_stages import level_config
from xjax.models.staged.matched import MATCHER
from xjax.models.staged.proposals import LEVEL, PROPOSER
from xjax.models.staged.stack_config import StackModel
from xjax.models.staged.stage_config import StageConfig
from xjax.models.staged.stages_config import (
  MatchedModel,
  StageShortlist,
  StageVectors,
)
from xjax.models.staged.vectors import ENCODER
from xjax.networks.shortlists import LevelShortlist
from xjax.networks.text_model import NeuralModel
from xjax.plan.sizes import Sizes


@dataclasses.dataclass(frozen=True)
class TrainedModel:
  """Describes a model that a run trains: its own model, or that of a stage.

  Attributes:
    config: the config of the model's own run.
    folder: the folder of the model in the workdir of the run, such as
      stages/encoder; '' for the run's own model.
    path: the path of the stage in the config of the run, such as
      model.vectors.stage; '' for models that have the settings of the run.
    clusters: the largest number of clusters that the model ranks; None if it
      ranks labels.
  """

  config: Config
  folder: str = ''
  path: str = ''
  clusters: int | None = None

  @property
  def planned(self) -> bool:
    """Returns whether the model is trained in steps, which can be planned."""
    return is_neural(self.config.model)

  def title(self, sizes: Sizes | None = None) -> str:
    """Returns a line that says which model this is.

    Args:
      sizes: the sizes of the model; None if it is not planned.
    """
    name = f'{self.folder or "model of the run"}: '
    name += type(self.config.model).__name__
    if sizes is None:
      return f'{name}, which is trained on CPUs and not planned'
    what = 'labels' if self.clusters is None else 'clusters'
    listed, n = sizes.longest.listed, f'{sizes.labels:,}'
    if listed:
      return f'{name}, which scores about {listed:,} of {n} {what} per document'
    return f'{name}, which scores {n} {what}'

  def _stage(
    self, name: str, path: str, stage: StageConfig, clusters: int | None = None
  ) -> 'TrainedModel':
    """Returns the model of a stage, which ranks what this model ranks."""
    return TrainedModel(
      stage.run_config(self.config),
      _joined('/', self.folder, 'stages', name),
      _joined('.', self.path, path),
      clusters or self.clusters,
    )

  def _level(self, folder: str) -> 'TrainedModel':
    """Returns the model of the level above."""
    sizes = self.config.model.shortlist.levels.sizes
    above = level_config(self.config)
    return TrainedModel(above, folder, self.path, sizes[-1])

  def and_stages(self) -> Iterator['TrainedModel']:
    """Yields the models of all stages of this model, then this model."""
    match self.config.model:
      case NeuralModel(shortlist=StageShortlist(stage=stage)):
        path = 'model.shortlist.stage'
        yield from self._stage(PROPOSER, path, stage).and_stages()
      case NeuralModel(shortlist=LevelShortlist(levels=levels)):
        if levels.sizes:
          folder = _joined('/', self.folder, 'stages', LEVEL)
          yield from self._level(folder).and_stages()
      case TreeModel(vectors=StageVectors() as vectors):
        path = 'model.vectors.stage'
        encoder = self._stage(ENCODER, path, vectors.stage)
        if not vectors.labels:  # only the levels above the labels are trained
          encoder = encoder._level(encoder.folder)
        yield from encoder.and_stages()
      case StackModel(proposers=proposers):
        for number, proposer in enumerate(proposers):
          path = f'model.proposers[{number}]'
          yield from self._stage(proposer.name, path, proposer).and_stages()
      case MatchedModel(matcher=matcher, levels=levels):
        path, (size,) = 'model.matcher', levels.sizes
        yield from self._stage(MATCHER, path, matcher, size).and_stages()
    yield self


def _joined(separator: str, *parts: str) -> str:
  return separator.join(filter(None, parts))


def trained_models(config: Config) -> list[TrainedModel]:
  """Returns the models that a run trains, in the order of training.

  Args:
    config: the config of the run.

  Raises:
    ConfigError: no model is trained in steps.
  """
  models = list(TrainedModel(config).and_stages())
  if not any(model.planned for model in models):
    raise ConfigError(
      '--plan: only neural models can be planned, and this run trains none; '
      f'this config has {type(config.model).__name__}'
    )
  return models
