"""How a model is trained: neural ones, linear ones and trees, or not at all."""

from collections.abc import Iterator
import dataclasses
import difflib
import enum
import re
from typing import Any, ClassVar

from xjax.config.optimizer import (
  Adam,
  AverageConfig,
  NoAverage,
  OptimizerConfig,
)
from xjax.config.parameter_groups import is_glob, parse_rate
from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_0,
  AT_LEAST_1,
  POSITIVE,
  RATIO,
  SHARE,
  ConfigPart,
  at_most,
  field,
)
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.contract import kind_of
from xjax.judge.metrics.label_sums import BIN_NAMES
from xjax.judge.metrics.protocols import XJAX
from xjax.losses.bce import BCEConfig
from xjax.losses.contract import LabelWeightsConfig, LossConfig
from xjax.losses.label_weights import EvenWeights
from xjax.score.config import (
  ExactMatchModel,
  LinearModel,
  ModelConfig,
  TreeModel,
)
from xjax.score.heads.update import ByOptimizer, RowsConfig
from xjax.score.linear.problem import Loss, SolverConfig
from xjax.score.text_model import NeuralModel
from xjax.score.trees.training import Blocks

_SLICES = ('all', 'frequent', 'few', 'zero', 'held_out')


class Schedule(enum.Enum):
  CONSTANT = 'constant'
  LINEAR = 'linear'
  COSINE = 'cosine'
  SLANTED = 'slanted'


class Dtype(enum.Enum):
  FLOAT32 = 'float32'
  BFLOAT16 = 'bfloat16'


@dataclasses.dataclass
class TrainConfig(ConfigPart, abstract=True):
  """How a model is trained.

  Attributes:
    trains: the kinds of model that it is for.
    processes: whether several processes can train together.
    steps: optimizer steps; 0: it takes none.
    best_metric: 'slice/metric' of the best checkpoint; empty: there is one.
  """

  trains: ClassVar[tuple[type[ModelConfig], ...]] = ()
  processes: ClassVar[bool] = True
  steps = 0
  best_metric = ''


@dataclasses.dataclass
class NoTrain(TrainConfig):
  """Not at all: the model has nothing to learn."""

  earlier_kind = 'none'
  trains = (ExactMatchModel,)


def metric_faults(metric: str, ks: tuple[int, ...]) -> Iterator[str]:
  """Yields why a metric cannot choose the best checkpoint."""
  where = f'config.train.best_metric={metric!r}'
  slice_name, _, measure = metric.partition('/')
  kinds, kind = XJAX.simple_kinds, kind_of(measure)
  k = re.search(r'@([1-9]\d*)', measure)
  known_kind = kind in kinds and ('@k' in kind) == bool(k)
  if known_kind and k and '[' in measure:  # what is in brackets counts, too
    known_kind = measure in Criteria((int(k[1]),)).table(XJAX, [''], BIN_NAMES)
  if slice_name not in _SLICES or not known_kind:
    known = [name.replace('@k', f'@{k[1]}' if k else '@k') for name in kinds]
    near = difflib.get_close_matches(measure, known, 3)
    told = f'near are {", ".join(near)}' if near else ', '.join(known)
    yield (
      f'{where}: must be slice/metric, for example all/RP@5; {told} (of one of '
      'your own, --import its module)'
    )
  elif k and int(k[1]) not in ks:
    yield f'{where}: its k must be in config.eval.ks={ks}'


@dataclasses.dataclass
class NeuralTrain(TrainConfig):
  """Training by gradient steps."""

  earlier_kind = 'gradient'
  trains = (NeuralModel,)

  batch_size: int = field(
    64,
    'Documents per step, over all devices. The last batch of a bucket may have '
    'fewer, each of which counts as in a full one.',
    AT_LEAST_1,
    tiny=16,
  )
  accumulate: int = field(
    1,
    'Micro-batches a step is cut into (memory, not results).',
    AT_LEAST_1,
    tiny=at_most(2),
  )
  steps: int = field(
    1000,
    'Optimizer steps; the schedule ends there.',
    AT_LEAST_1,
    may_change=True,
    tiny=2,
  )
  learning_rate: float = field(1e-3, 'Peak.', POSITIVE)
  warmup: int = field(
    0, 'Steps of linear warm-up.', AT_LEAST_0, tiny=at_most(1)
  )
  schedule: Schedule = field(
    Schedule.CONSTANT,
    'How it falls after the warm-up: not, or to 0 after the last step; '
    'slanted: to peak / ratio, where its warm-up begins as well.',
  )
  ratio: float = field(
    32.0, 'Of the peak to the lowest rate of the slanted schedule.', RATIO
  )
  rates: tuple[str, ...] = field(
    (),
    'GLOB=FACTOR by which the learning rate of the parameters with such paths '
    "is multiplied, such as 'encoder/*=0.1'; the first that matches counts.",
  )
  layer_decay: float = field(
    1.0,
    'Factor from each encoder layer to the one below it, and from the lowest '
    "to the encoder's embeddings; times that of rates. Below 1 it needs a "
    'pretrained encoder.',
    SHARE,
  )
  freeze: tuple[str, ...] = field(
    (), 'Globs of the parameters that are not trained.'
  )
  optimizer: OptimizerConfig = field(
    Adam, 'The rule that makes a direction of a gradient.'
  )
  clip_value: float = field(
    0.0, 'Element-wise gradient clipping (paper: 5); 0: none.', AMOUNT
  )
  clip_norm: float = field(
    0.0, 'Global-norm gradient clipping; 0: none.', AMOUNT
  )
  rows: RowsConfig = field(
    ByOptimizer, 'How the label rows of OneVsAllConfig are trained.'
  )
  loss: LossConfig = field(BCEConfig, 'What is minimised.')
  label_weights: LabelWeightsConfig = field(
    EvenWeights, 'How much each label counts in it.'
  )
  average: AverageConfig = field(
    NoAverage, 'The mean of the parameters over steps, if any.'
  )
  compute_dtype: Dtype = field(
    Dtype.FLOAT32,
    'Of activations and products; parameters stay float32, label rows as '
    'model.head.storage says.',
  )
  log_every: int = field(
    50, 'Steps between log lines.', AT_LEAST_1, may_change=True, tiny=1
  )
  checkpoint_every: int = field(
    500, 'Steps between checkpoints.', AT_LEAST_1, tiny=1
  )
  keep: int = field(
    3,
    'Newest checkpoints to keep, beside the best.',
    AT_LEAST_1,
    may_change=True,
  )
  judge_every: int = field(
    500, 'Steps between judgings on dev.', AT_LEAST_1, tiny=1
  )
  best_metric: str = field(
    'all/RP@5',
    "'slice/metric' that chooses the best checkpoint; of the mean where there "
    'is one.',
  )
  patience: int = field(
    0,
    'Judgings without improvement before stopping; 0: never stop.',
    AT_LEAST_0,
  )
  init_from: str = field(
    '',
    'WORKDIR[@step] whose parameters warm-start this run. Words that both '
    "runs have get the other's vectors, whatever model.embedding.vectors says "
    'of them; so do pieces of pretrained encoders. A head that goes on from '
    'there has its descriptors made as they were there.',
    tiny='',
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    if self.batch_size % self.accumulate:
      yield (
        f'{path}.accumulate={self.accumulate}: must divide '
        f'{path}.batch_size={self.batch_size}'
      )
    if self.warmup > self.steps:
      yield (
        f'{path}.warmup={self.warmup}: must be at most '
        f'{path}.steps={self.steps}'
      )
    if self.ratio != NeuralTrain.ratio and self.schedule != Schedule.SLANTED:
      yield f'{path}.ratio={self.ratio}: needs {path}.schedule=Schedule.SLANTED'
    for entry in self.rates:
      if parse_rate(entry) is None:
        yield (
          f'{path}.rates={self.rates}: {entry!r} is not GLOB=FACTOR with '
          "a factor above 0, such as 'encoder/*=0.1'"
        )
    for glob in self.freeze:
      if not is_glob(glob):
        yield (
          f'{path}.freeze={self.freeze}: {glob!r} is no glob over the paths '
          "of parameters, such as 'encoder/*'"
        )
    yield from metric_faults(self.best_metric, config.eval.ks)

  @classmethod
  def from_earlier(cls, fields: dict[str, Any]) -> dict[str, Any]:
    """Adam's settings were fields of their own once."""
    rule = fields.get('optimizer', 'adam')
    if not isinstance(rule, str):
      return fields
    names = {'b1', 'b2', 'eps', 'weight_decay'}
    settings = {name: fields[name] for name in names & fields.keys()}
    if rule == 'adam':
      settings.pop('weight_decay', None)
    rest = {name: x for name, x in fields.items() if name not in names}
    return rest | {'optimizer': {'kind': rule, **settings}}


@dataclasses.dataclass
class LinearTrain(TrainConfig):
  """Training one classifier per label."""

  trains = (LinearModel,)

  loss: Loss = field(Loss.SQUARED_HINGE, 'Of a document.')
  c: float = field(
    1.0,
    "Weight of the losses beside the regulariser (LIBLINEAR's C).",
    POSITIVE,
  )
  threshold: float = field(0.01, 'Weights of a smaller size become 0.', AMOUNT)
  solver: SolverConfig = field(Blocks, 'What trains.')

  @property
  def processes(self) -> bool:
    return self.solver.processes


@dataclasses.dataclass
class TreeTrain(TrainConfig):
  """Training the classifiers of a label tree, a node's children at a time."""

  trains = (TreeModel,)
  processes = False

  loss: Loss = field(Loss.SQUARED_HINGE, 'Of a document.')
  c: float = field(
    1.0,
    "Weight of the losses beside the regulariser (LIBLINEAR's C).",
    POSITIVE,
  )
  eps: float = field(
    0.1,
    'Violation of the optimality conditions at which training ends, as of '
    'LIBLINEAR.',
    POSITIVE,
  )
  max_epochs: int = field(100, 'Visits of every document, at most.', AT_LEAST_1)
  threshold: float = field(0.1, 'Weights of a smaller size become 0.', AMOUNT)
  workers: int = field(2, 'Threads.', AT_LEAST_1, may_change=True)
