"""Lists the models that a run trains, in the order of training."""

from collections.abc import Iterator
import dataclasses

from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.plan.sizes import Sizes


@dataclasses.dataclass(frozen=True)
class TrainedModel:
  """Describes a model that a run trains: its own model, or that of a stage."""

  config: Config  # of the model's own run
  folder: str = ''  # in the run's workdir, such as stages/encoder
  path: str = ''  # in the run's config, such as model.vectors.stage
  clusters: int | None = None  # at most as many are ranked; None: labels

  @property
  def planned(self) -> bool:
    """Returns whether the model is trained in steps, which can be planned."""
    return self.config.model.has_steps

  def title(self, sizes: Sizes | None = None) -> str:
    """Returns a line that says which model this is; no sizes if not planned."""
    name = f'{self.folder or "model of the run"}: '
    name += type(self.config.model).__name__
    if sizes is None:
      return f'{name}, which is trained on CPUs and not planned'
    what = 'labels' if self.clusters is None else 'clusters'
    listed, n = sizes.longest.listed, f'{sizes.labels:,}'
    if listed:
      return f'{name}, which scores about {listed:,} of {n} {what} per document'
    return f'{name}, which scores {n} {what}'

  def and_stages(self) -> Iterator['TrainedModel']:
    for stage in self.config.model.trained_stages(self.config):
      model = TrainedModel(
        stage.config,
        _joined('/', self.folder, 'stages', stage.name),
        _joined('.', self.path, stage.path),
        stage.clusters or self.clusters,
      )
      yield from model.and_stages()
    yield self


def _joined(separator: str, *parts: str) -> str:
  return separator.join(filter(None, parts))


def trained_models(config: Config) -> list[TrainedModel]:
  """Returns the models that a run trains, in the order of training.

  ConfigError is raised if no model is trained in steps.
  """
  models = list(TrainedModel(config).and_stages())
  if not any(model.planned for model in models):
    raise ConfigError(
      '--plan: only neural models can be planned, and this run trains none; '
      f'this config has {type(config.model).__name__}'
    )
  return models
