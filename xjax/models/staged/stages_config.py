"""Defines the stages of a run, which train a model that the run then uses."""

from collections.abc import Iterator
import dataclasses
import typing
from typing import Any

from xjax.core.config_part import AT_LEAST_1, POSITIVE, field
from xjax.data.config import TfidfConfig
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.models.model_configs import ModelConfig, NodesModel, VectorsConfig
from xjax.models.staged.stage_config import StageConfig
from xjax.networks.shortlists import RankedShortlist

if typing.TYPE_CHECKING:
  pass


@dataclasses.dataclass
class StageVectors(VectorsConfig):
  """Joins the vectors of an encoder that is trained as a stage of this run."""

  stage: StageConfig = field(StageConfig, 'The stage that trains the encoder.')
  labels: bool = field(
    True,
    'Whether the encoder learns the labels. Otherwise it learns the levels of '
    'clusters of stage.model.shortlist=LevelShortlist(...), and not the labels '
    'below them: for corpora with so many labels that only linear classifiers '
    'can rank them. stage.train.steps is not used then.',
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    if config.data.sparse:
      return
    yield from _encoder_faults(self.stage, f'{path}.stage')
    if not self.labels and not _levels_of(self.stage.model):
      yield (
        f'{path}.labels=False: needs {path}.stage.model.shortlist='
        'LevelShortlist(...) with at least one level of clusters'
      )


def _encoder_faults(stage: StageConfig, path: str) -> Iterator[str]:
  """Yields a fault if the model of a stage has no encoder."""
  from xjax.networks.text_model import NeuralModel

  if not isinstance(stage.model, NeuralModel):
    yield (
      f'{path}.model={type(stage.model).__name__}(...): must be '
      'NeuralModel(...), which has an encoder'
    )


def _levels_of(model: ModelConfig) -> tuple[int, ...]:
  """Returns the sizes of the levels that a model is trained by, or ()."""
  levels = getattr(getattr(model, 'shortlist', None), 'levels', None)
  return levels.sizes if levels else ()


def _tree_stage() -> StageConfig:
  from xjax.models.model_configs import TreeModel
  from xjax.models.train_configs import TreeTrain

  tree = TreeModel(), TreeTrain()
  return StageConfig(TfidfConfig(), (), *tree)


@dataclasses.dataclass
class StageShortlist(RankedShortlist):
  """Ranks the labels that a model lists, which is trained as a stage first."""

  stage: StageConfig = field(
    _tree_stage, 'The stage that trains the model that proposes labels.'
  )


def _matcher_stage() -> StageConfig:
  from xjax.losses.squared_hinge import SquaredHingeConfig

  stage = StageConfig()
  stage.train.loss = SquaredHingeConfig()
  return stage


@dataclasses.dataclass
class MatchedModel(NodesModel):
  """Ranks the labels of clusters that a neural model proposes (X-Transformer).

  The neural model is the matcher, a stage of the run. It learns which clusters
  of labels a document has. Then each label has a linear classifier, whose
  features are a document's TF-IDF features and its vector, both of length 1. A
  document's labels are ranked by their own classifiers, and only labels of
  proposed clusters are ranked (Chang et al. 2020,
  https://arxiv.org/abs/1905.02331, Section 3).
  """

  reads = (TfidfConfig,)
  chained = False

  levels: LevelsConfig = field(
    lambda: LevelsConfig(sizes=(64,)), 'One level of clusters of labels.'
  )
  matcher: StageConfig = field(
    _matcher_stage, 'The neural model that proposes clusters.'
  )
  kept: int = field(
    10,
    'Number of clusters of a document whose labels are ranked.',
    AT_LEAST_1,
    may_change=True,
  )
  weight: float = field(
    1.0,
    "Length to which the matcher's vector of a document is scaled. The TF-IDF "
    'features of a document have length 1.',
    POSITIVE,
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    if len(self.levels.sizes) != 1:
      yield (
        f'{path}.levels.sizes={self.levels.sizes}: must be one number of '
        'clusters'
      )
    yield from _encoder_faults(self.matcher, f'{path}.matcher')
    if getattr(self.matcher.model, 'head', None) and (
      self.matcher.model.head.describes
    ):
      yield (
        f'{path}.matcher.model.head: needs a head without label names, because '
        'clusters have no names'
      )
