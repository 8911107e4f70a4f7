"""The config of a run: typed, saved as JSON, compared on resume, shrunk."""

import dataclasses
import enum

from xjax.core.mesh import MeshConfig
from xjax.data.config import (
  MAY_CHANGE,
  DataConfig,
  FeatureFilesConfig,
  GivenFeaturesConfig,
  SubwordsConfig,
  SyntheticData,
  TfidfConfig,
  TokensConfig,
)
from xjax.judge.calibration import Method
from xjax.judge.criteria import PROPENSITY, Criteria
from xjax.losses.config import (
  BCEConfig,
  EvenWeights,
  LabelWeightsConfig,
  LossConfig,
)
from xjax.score.config import ModelConfig, NeuralModel, TreeModel


class Optimizer(enum.Enum):
  ADAM = 'adam'
  ADAMW = 'adamw'


class Schedule(enum.Enum):
  CONSTANT = 'constant'
  LINEAR = 'linear'
  COSINE = 'cosine'
  SLANTED = 'slanted'


class Dtype(enum.Enum):
  FLOAT32 = 'float32'
  BFLOAT16 = 'bfloat16'


@dataclasses.dataclass
class TrainConfig:
  """How a model is trained."""


@dataclasses.dataclass
class NoTrain(TrainConfig):
  """Not at all: the model has nothing to learn."""


@dataclasses.dataclass
class RowsConfig:
  """How the label rows of a one-vs-all head are trained."""


@dataclasses.dataclass
class ByOptimizer(RowsConfig):
  """As all else, by the optimizer, to which their gradient [L, D] is given."""


@dataclasses.dataclass
class FusedSGD(RowsConfig):
  """By SGD in the pass that finds their gradient, a chunk of labels at a time.

  No array as large as the rows is made, and with OneVsAllConfig's storage they
  take 1 or 2 bytes a weight. Clipping and rates are of all other parameters,
  and freeze must name none of the rows.

  Attributes:
    learning_rate: peak; it follows train.schedule.
    momentum: share of the last direction in the next; above 0 it takes 4 bytes
      a weight.
    weight_decay: decoupled; biases do not decay.
  """

  learning_rate: float = 0.05
  momentum: float = 0.0
  weight_decay: float = 0.0


@dataclasses.dataclass
class FusedAdagrad(RowsConfig):
  """As FusedSGD, by Adagrad with one sum of squares per label.

  Attributes:
    learning_rate, weight_decay: as of FusedSGD.
    eps: added to the root of the sum.
  """

  learning_rate: float = 0.05
  eps: float = 1e-8
  weight_decay: float = 0.0


@dataclasses.dataclass
class AverageConfig:
  """Which mean of the parameters over steps is kept beside them.

  The mean is judged beside the parameters; it is what best_metric chooses by,
  and what is loaded, predicts and is evaluated in the end. Up to its start it
  is the parameters themselves.
  """


@dataclasses.dataclass
class NoAverage(AverageConfig):
  """None: the parameters are used as they are."""


@dataclasses.dataclass
class EMAConfig(AverageConfig):
  """An exponential moving average.

  Attributes:
    decay: share of the mean that stays at a step.
    start: step whose parameters it begins with.
  """

  decay: float = 0.999
  start: int = 0


@dataclasses.dataclass
class SWAConfig(AverageConfig):
  """Stochastic weight averaging (Izmailov et al. 2018): the plain mean.

  Attributes:
    start: step whose parameters are the first of the mean.
    every: steps from one to the next; the second must be within the training.
  """

  start: int = 0
  every: int = 1


def averages(config: AverageConfig) -> bool:
  """Whether a mean is kept at all."""
  return not isinstance(config, NoAverage)


@dataclasses.dataclass
class NeuralTrain(TrainConfig):
  """Training by gradient steps.

  Attributes:
    batch_size: documents per step, over all devices. The last batch of a bucket
      may have fewer, each of which counts as in a full one.
    accumulate: micro-batches a step is cut into (memory, not results).
    steps: optimizer steps; the schedule ends there.
    learning_rate: peak.
    warmup: steps of linear warm-up.
    schedule: how it falls after the warm-up: not, or to 0 after the last step;
      slanted: to peak / ratio, where its warm-up begins as well.
    ratio: of the peak to the lowest rate of the slanted schedule.
    rates: GLOB=FACTOR by which the learning rate of the parameters with such
      paths is multiplied, such as 'encoder/*=0.1'; the first that matches
      counts.
    layer_decay: factor from each encoder layer to the one below it, and from
      the lowest to the encoder's embeddings; times that of rates. Below 1 it
      needs BertConfig as the encoder.
    freeze: globs of the parameters that are not trained.
    optimizer: Adam or AdamW (decoupled weight decay).
    weight_decay: of AdamW.
    b1, b2, eps: of Adam.
    clip_value: element-wise gradient clipping (paper: 5); 0: none.
    clip_norm: global-norm gradient clipping; 0: none.
    rows: how the label rows of OneVsAllConfig are trained.
    loss: what is minimised.
    label_weights: how much each label counts in it.
    average: the mean of the parameters over steps, if any.
    compute_dtype: of activations and products; parameters stay float32, label
      rows as model.head.storage says.
    log_every: steps between log lines.
    checkpoint_every: steps between checkpoints.
    keep: newest checkpoints to keep, beside the best.
    judge_every: steps between judgings on dev.
    best_metric: 'slice/metric' that chooses the best checkpoint; of the mean
      where there is one.
    patience: judgings without improvement before stopping; 0: never stop.
    init_from: WORKDIR[@step] whose parameters warm-start this run. Words that
      both runs have get the other's vectors, whatever model.embedding.vectors
      says of them; so do pieces of pretrained encoders. A head that goes on
      from there has its descriptors made as they were there.
  """

  batch_size: int = 64
  accumulate: int = 1
  steps: int = dataclasses.field(default=1000, metadata=MAY_CHANGE)
  learning_rate: float = 1e-3
  warmup: int = 0
  schedule: Schedule = Schedule.CONSTANT
  ratio: float = 32.0
  rates: tuple[str, ...] = ()
  layer_decay: float = 1.0
  freeze: tuple[str, ...] = ()
  optimizer: Optimizer = Optimizer.ADAM
  weight_decay: float = 0.0
  b1: float = 0.9
  b2: float = 0.999
  eps: float = 1e-8
  clip_value: float = 0.0
  clip_norm: float = 0.0
  rows: RowsConfig = dataclasses.field(default_factory=ByOptimizer)
  loss: LossConfig = dataclasses.field(default_factory=BCEConfig)
  label_weights: LabelWeightsConfig = dataclasses.field(
    default_factory=EvenWeights
  )
  average: AverageConfig = dataclasses.field(default_factory=NoAverage)
  compute_dtype: Dtype = Dtype.FLOAT32
  log_every: int = dataclasses.field(default=50, metadata=MAY_CHANGE)
  checkpoint_every: int = 500
  keep: int = dataclasses.field(default=3, metadata=MAY_CHANGE)
  judge_every: int = 500
  best_metric: str = 'all/RP@5'
  patience: int = 0
  init_from: str = ''


@dataclasses.dataclass
class EvalConfig:
  """Judging.

  Attributes:
    batch_size: documents at a time, over all devices.
    depth: length K of the saved lists.
    ks: cut-offs of the printed and saved metrics.
    propensity: A and B of the propensity formula: 0.55 and 1.5; for Amazon-670K
      and its kin 0.6 and 2.6; for Wikipedia 0.5 and 0.4.
    calibration: how the scores shown become probabilities, fitted on dev.
    recall: of the saved lists; below 1, TPUs look for them faster and miss
      some labels: the expected share that they find.
  """

  batch_size: int = 64
  depth: int = 50
  ks: tuple[int, ...] = (1, 3, 5, 10)
  propensity: tuple[float, ...] = PROPENSITY
  calibration: Method = Method.AUTO
  recall: float = 1.0

  def criteria(self) -> Criteria:
    """What a run is judged by."""
    return Criteria(ks=self.ks, propensity=self.propensity)


@dataclasses.dataclass
class Config:
  """One run."""

  seed: int = 0
  data: DataConfig = dataclasses.field(default_factory=SyntheticData)
  model: ModelConfig = dataclasses.field(default_factory=NeuralModel)
  train: TrainConfig = dataclasses.field(default_factory=NeuralTrain)
  eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)
  mesh: MeshConfig = dataclasses.field(
    default_factory=MeshConfig, metadata=MAY_CHANGE
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
    tokens=_shrink_tokens(config.data.tokens),
  )
  judging = dataclasses.replace(config.eval, batch_size=16, depth=16)
  return dataclasses.replace(
    config,
    data=data,
    model=_shrink_model(config.model),
    train=_shrink_train(config.train),
    eval=judging,
    mesh=MeshConfig(),
  )


def _shrink_tokens(tokens: TokensConfig) -> TokensConfig:
  match tokens:
    case FeatureFilesConfig(max_tokens=1):
      # In no file: the embedded corpus makes vectors of its words.
      return dataclasses.replace(tokens, dir='')
    case FeatureFilesConfig():
      sizes = {'dir': ''}
    case SubwordsConfig(packed=True):
      return dataclasses.replace(tokens, max_tokens=16, buckets=(16,))
    case SubwordsConfig():
      sizes = {}
    case GivenFeaturesConfig():
      # The embedded corpus is text.
      return _shrink_tokens(TfidfConfig())
    case TfidfConfig():
      return dataclasses.replace(
        tokens,
        max_ngram=min(tokens.max_ngram, 3),
        min_ngram=min(tokens.min_ngram, 3),
        max_features=64,
        min_count=1,
        max_share=1.0,
        first_words=min(tokens.first_words, 16),
      )
    case _:
      sizes = {'min_count': 1, 'max_words': 64}
  return dataclasses.replace(tokens, max_tokens=16, buckets=(8, 16), **sizes)


def _shrink_train(train: TrainConfig) -> TrainConfig:
  if not isinstance(train, NeuralTrain):
    return dataclasses.replace(train)
  return dataclasses.replace(
    train,
    batch_size=16,
    accumulate=min(train.accumulate, 2),
    steps=2,
    warmup=min(train.warmup, 1),
    log_every=1,
    checkpoint_every=1,
    judge_every=1,
    average=_shrink_average(train.average),
    init_from='',
  )


def _shrink_average(average: AverageConfig) -> AverageConfig:
  match average:
    case EMAConfig():
      return dataclasses.replace(average, start=min(average.start, 1))
    case SWAConfig():
      return SWAConfig(start=min(average.start, 1), every=1)
  return dataclasses.replace(average)


def _shrink_model(model: ModelConfig) -> ModelConfig:
  """Every size of every part, whatever its kind."""
  if isinstance(model, TreeModel):
    small = {'arity': 2, 'max_leaf': 4, 'file': ''}
    names = {field.name for field in dataclasses.fields(model.tree)}
    sizes = {name: small[name] for name in names & small.keys()}
    tree = dataclasses.replace(model.tree, **sizes)
    return dataclasses.replace(model, tree=tree)
  if not isinstance(model, NeuralModel):
    return dataclasses.replace(model)
  parts = {field.name for field in dataclasses.fields(model)}
  return dataclasses.replace(
    model, **{name: _shrink_part(getattr(model, name)) for name in parts}
  )


_SMALL = {'dim': 8, 'units': 8, 'zone_units': 8, 'filters': 8, 'chunk': 8}


def _shrink_part(part: object) -> object:
  names = {field.name for field in dataclasses.fields(part)}
  sizes = {name: size for name, size in _SMALL.items() if name in names}
  if 'hidden_labels' in names:
    sizes['hidden_labels'] = min(part.hidden_labels, 1)
  files = {name: '' for name in ('vectors', 'folder') if name in names}
  return dataclasses.replace(part, **sizes, **files)
