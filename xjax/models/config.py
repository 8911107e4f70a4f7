"""Defines the config of a run, and shrinks it for tests."""

from collections.abc import Iterator
import dataclasses
import typing
from typing import Any

from xjax import data, losses, models, networks, train
from xjax.core.config_part import (
  AT_LEAST_1,
  SEED,
  SHARE,
  ConfigPart,
  field,
  offer_kinds,
)
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import MOST_RANKS
from xjax.data.config import TfidfConfig
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.schema import PROPENSITY
from xjax.judge.calibration import Method
from xjax.models.model_configs import (
  EnsembleModel,
  ModelConfig,
  RunVectors,
  TreeModel,
)
from xjax.models.train_configs import TrainConfig, TreeTrain

if typing.TYPE_CHECKING:
  from xjax.judge.criteria import Criteria
  from xjax.networks.text_model import NeuralModel
  from xjax.train.neural_train import NeuralTrain

offer_kinds(data, losses, networks, train, models)


def _neural_model() -> 'NeuralModel':
  from xjax.networks.text_model import NeuralModel

  return NeuralModel()


def _neural_train() -> 'NeuralTrain':
  from xjax.train.neural_train import NeuralTrain

  return NeuralTrain()


@dataclasses.dataclass
class EvalConfig(ConfigPart):
  """Configures how a model is judged, that is, how metrics are computed."""

  batch_size: int = field(
    64, 'Documents per batch, over all devices.', AT_LEAST_1, tiny=16
  )
  depth: int = field(
    50,
    'Length K of the saved lists. A list has no more places than there are '
    'labels, or than 64.',
    AT_LEAST_1,
    tiny=16,
  )
  ks: tuple[int, ...] = field(
    (1, 3, 5, 10),
    'Cut-offs k of the printed and saved metrics.',
    tiny=lambda ks: tuple(k for k in ks if k <= 16),
  )
  propensity: tuple[float, ...] = field(
    PROPENSITY,
    'The constants A and B of the propensity formula. They are 0.6 and 2.6 for '
    'Amazon data sets such as Amazon-670K, 0.5 and 0.4 for Wikipedia, and '
    'usually 0.55 and 1.5.',
  )
  calibration: Method = field(
    Method.AUTO,
    'The method that turns scores into the probabilities that are shown. It is '
    'fitted on dev.',
  )
  recall: float = field(
    1.0,
    'Share of the best labels that the saved lists are expected to contain. '
    'With a value below 1, TPUs find the lists faster and miss some labels.',
    SHARE,
  )
  leave_out: str = field(
    '',
    'A file with one label id per line: labels that are trained, but neither '
    'predicted nor judged. A file name without a folder is searched for in '
    'data.dir first, and then in the current folder.',
    tiny='',
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    if not self.ks or min(self.ks) < 1 or max(self.ks) > self.depth:
      yield (
        f'{path}.ks={self.ks}: must be numbers from 1 to '
        f'{path}.depth={self.depth}'
      )
    elif max(self.ks) > MOST_RANKS:
      yield f'{path}.ks={self.ks}: must be at most {MOST_RANKS:,}'
    a, b = (*self.propensity, -1, -1)[:2]
    if len(self.propensity) != 2 or a < 0 or b <= 0:
      yield (
        f'{path}.propensity={self.propensity}: must be two numbers, A of at '
        'least 0 and B above 0'
      )

  def criteria(self) -> 'Criteria':
    """Returns the criteria by which a run is judged."""
    from xjax.judge.criteria import Criteria

    return Criteria(ks=self.ks, propensity=self.propensity)


@dataclasses.dataclass
class Config(ConfigPart):
  """Holds all settings of one run."""

  seed: int = field(0, 'Seed of all random numbers.', SEED)
  data: DataConfig = field(SyntheticData, 'The corpus, and how it is read.')
  model: ModelConfig = field(_neural_model, 'The model, which scores labels.')
  train: TrainConfig = field(_neural_train, 'How the model is trained.')
  eval: EvalConfig = field(EvalConfig, 'How the model is judged.')
  mesh: MeshConfig = field(
    MeshConfig, 'The devices on which the model is trained.', may_change=True
  )


def shrink(config: Config) -> Config:
  """Returns a tiny copy of a config, for tests on synthetic data.

  The kinds of model, optimizer, losses and schedule stay the same, except that
  label trees stand for the runs of an ensemble. Every size is at most 16, and
  no file outside the workdir is read or written.
  """
  data = SyntheticData(
    n_train=16,
    n_dev=16,
    n_test=16,
    n_labels=16,
    hold_out_labels=min(config.data.hold_out_labels, 2),
    workers=1,
    tokens=config.data.tokens.tiny(),
  )
  tiny = dataclasses.replace(config.tiny(), data=data, mesh=MeshConfig())
  if isinstance(vectors := getattr(tiny.model, 'vectors', None), RunVectors):
    # A run without files of other runs trains an encoder of its own.
    from xjax.models.staged.stages_config import StageVectors

    stage = StageVectors(weight=vectors.weight).tiny()
    model = dataclasses.replace(tiny.model, vectors=stage)
    return dataclasses.replace(tiny, model=model)
  if isinstance(tiny.model, EnsembleModel):
    # Several label trees are an ensemble that needs no other runs.
    data = dataclasses.replace(data, tokens=TfidfConfig().tiny())
    model = TreeModel(n_trees=2).tiny()
    train = TreeTrain().tiny()
    return dataclasses.replace(tiny, data=data, model=model, train=train)
  if hasattr(tiny.model, 'shortlist'):
    return _with_own_proposer(tiny)
  return tiny


def _with_own_proposer(tiny: Config) -> Config:
  """Returns a config whose shortlists need no finished run."""
  # Only neural models have shortlists. Other models need no JAX, which these
  # modules import.
  from xjax.models.staged.stages_config import StageShortlist
  from xjax.networks.shortlists import RunShortlist

  lists = tiny.model.shortlist
  if isinstance(lists, RunShortlist):
    own = lists.size, lists.prior, lists.in_training
    stage = StageShortlist(*own).tiny()
    model = dataclasses.replace(tiny.model, shortlist=stage)
    return dataclasses.replace(tiny, model=model)
  return tiny
