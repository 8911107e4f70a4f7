"""The config of a run: typed, saved as JSON, compared on resume, shrunk."""

from collections.abc import Iterator
import dataclasses
from typing import Any

from xjax import losses, score
from xjax.config.train import NeuralTrain, TrainConfig
from xjax.core.config_part import (
  AT_LEAST_0,
  AT_LEAST_1,
  SHARE,
  ConfigPart,
  field,
  import_modules,
)
from xjax.core.mesh import MeshConfig
from xjax.data import formats
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.judge import metrics
from xjax.judge.calibration import Method
from xjax.judge.criteria import PROPENSITY, Criteria
from xjax.score.config import ModelConfig
from xjax.score.text_model import NeuralModel

# Kinds are chosen by name among the parts that are imported: all of xjax's.
for _room in (formats, losses, metrics, score):
  import_modules(_room)


@dataclasses.dataclass
class EvalConfig(ConfigPart):
  """Judging."""

  batch_size: int = field(
    64, 'Documents at a time, over all devices.', AT_LEAST_1, tiny=16
  )
  depth: int = field(50, 'Length K of the saved lists.', AT_LEAST_1, tiny=16)
  ks: tuple[int, ...] = field(
    (1, 3, 5, 10), 'Cut-offs of the printed and saved metrics.'
  )
  propensity: tuple[float, ...] = field(
    PROPENSITY,
    'A and B of the propensity formula: 0.55 and 1.5; for Amazon-670K and its '
    'kin 0.6 and 2.6; for Wikipedia 0.5 and 0.4.',
  )
  calibration: Method = field(
    Method.AUTO, 'How the scores shown become probabilities, fitted on dev.'
  )
  recall: float = field(
    1.0,
    'Of the saved lists; below 1, TPUs look for them faster and miss some '
    'labels: the expected share that they find.',
    SHARE,
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    if not self.ks or min(self.ks) < 1 or max(self.ks) > self.depth:
      yield f'{path}.ks={self.ks}: must be from 1 to {path}.depth={self.depth}'

  def criteria(self) -> Criteria:
    """What a run is judged by."""
    return Criteria(ks=self.ks, propensity=self.propensity)


@dataclasses.dataclass
class Config(ConfigPart):
  """One run."""

  seed: int = field(0, 'Decides everything that is drawn.', AT_LEAST_0)
  data: DataConfig = field(SyntheticData, 'The corpus, and what is read of it.')
  model: ModelConfig = field(NeuralModel, 'What scores labels.')
  train: TrainConfig = field(NeuralTrain, 'How the model is trained.')
  eval: EvalConfig = field(EvalConfig, 'How it is judged.')
  mesh: MeshConfig = field(
    MeshConfig, 'The devices that it is trained on.', may_change=True
  )


def shrink(config: Config) -> Config:
  """A tiny twin of a config, for tests: two steps on the embedded corpus.

  The kinds of model, optimizer, losses and schedule stay; every size is at
  most 16, and nothing is read from or written to outside the workdir.
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
  return dataclasses.replace(config.tiny(), data=data, mesh=MeshConfig())
