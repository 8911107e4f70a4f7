"""Defines how neural models are trained."""

from collections.abc import Iterator
import dataclasses
import difflib
import enum
import math
import re
from typing import Any

import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_0,
  AT_LEAST_1,
  POSITIVE,
  SHARE,
  Bound,
  field,
)
from xjax.core.mesh import has_bfloat16
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.label_sums import BINS
from xjax.judge.metrics.metric import metric_kind
from xjax.judge.metrics.protocols import XJAX
from xjax.losses.bce import BCEConfig
from xjax.losses.label_weights import EvenWeights
from xjax.losses.loss import LabelWeightsConfig, LossConfig
from xjax.networks.rows.update import ByOptimizer, RowUpdateConfig
from xjax.train.optimizer_config import (
  Adam,
  AverageConfig,
  NoAverage,
  OptimizerConfig,
)
from xjax.train.train_config import TrainConfig

# Below 1, all gradients would be clipped more and more.
_OUTLIERS = Bound(
  lambda ratio: ratio == 0 or 1 <= ratio < math.inf, '0 or at least 1'
)
_SLICES = ('all', 'frequent', 'few', 'zero', 'held_out')


class Schedule(enum.Enum):
  CONSTANT = 'constant'
  LINEAR = 'linear'
  COSINE = 'cosine'


class Dtype(enum.Enum):
  AUTO = 'auto'
  FLOAT32 = 'float32'
  BFLOAT16 = 'bfloat16'

  def on(self, mesh: Mesh | AbstractMesh) -> jnp.dtype:
    """Returns the dtype of products on the devices of a mesh."""
    if self is not Dtype.AUTO:
      return jnp.dtype(self.value)
    return jnp.dtype(jnp.bfloat16 if has_bfloat16(mesh) else jnp.float32)


def metric_faults(metric: str, ks: tuple[int, ...]) -> Iterator[str]:
  """Yields a fault if a 'slice/metric' cannot choose the best checkpoint."""
  where = f'config.train.best_metric={metric!r}'
  slice_name, _, measure = metric.partition('/')
  kinds, kind = XJAX.simple_kinds, metric_kind(measure)
  k = re.search(r'@([1-9]\d*)', measure)
  # kind_of also reads @0 and @05 as @k; these cut-offs do not exist.
  exists = kind in kinds and ('@k' in kind) == bool(k)
  if exists and k and '[' in measure:  # the text in brackets must exist, too
    exists = measure in Criteria((int(k[1]),)).table(XJAX, [''], BINS)
  if slice_name not in _SLICES or not exists:
    names = [name.replace('@k', f'@{k[1]}' if k else '@k') for name in kinds]
    similar = difflib.get_close_matches(measure, names, 3)
    hint = 'similar metrics are' if similar else 'the metrics are'
    yield (
      f'{where}: must be slice/metric, for example all/RP@5; {hint} '
      f'{", ".join(similar or names)}. For a metric of your own, give its '
      'module in --import'
    )
  elif k and int(k[1]) not in ks:
    yield f'{where}: its k must be in config.eval.ks={ks}'


def parse_rate(entry: str) -> tuple[str, float] | None:
  """Splits 'GLOB=FACTOR' into (glob, factor); returns None for other text."""
  glob, _, number = entry.rpartition('=')
  try:
    factor = float(number)
  except ValueError:
    return None
  return (glob, factor) if glob and 0 < factor < math.inf else None


@dataclasses.dataclass
class NeuralTrain(TrainConfig):
  """Configures the training of neural models by gradient steps."""

  batch_size: int = field(
    64,
    'Number of documents per step, over all devices. The last batch of a '
    'bucket may have fewer documents. A document in such a batch counts as '
    'much as a document in a full batch.',
    AT_LEAST_1,
  )
  accumulate: int = field(
    1,
    'Number of micro-batches into which each batch is divided. A larger number '
    'needs less memory and gives the same result.',
    AT_LEAST_1,
  )
  steps: int = field(
    1000,
    'Number of optimizer steps; the schedule ends at the last step. A resumed '
    'run must not have a smaller number than the steps that it has taken.',
    AT_LEAST_1,
    may_change=True,
  )
  learning_rate: float = field(1e-3, 'The highest learning rate.', POSITIVE)
  warmup: int = field(0, 'Number of steps of linear warm-up.', AT_LEAST_0)
  schedule: Schedule = field(
    Schedule.CONSTANT,
    'How the learning rate changes after the warm-up. With constant, it does '
    'not change. With linear and cosine, it falls and would be 0 in the step '
    'after the last step.',
  )
  rates: tuple[str, ...] = field(
    (),
    "GLOB=FACTOR, such as 'encoder/*=0.1': the learning rate of parameters "
    'whose path matches the glob is multiplied by the factor. If several globs '
    'match, only the first matching glob is used.',
    Bound(
      lambda rates: all(map(parse_rate, rates)),
      "GLOB=FACTOR with a factor above 0, such as 'encoder/*=0.1'",
    ),
  )
  layer_decay: float = field(
    1.0,
    'The learning rate of an encoder layer, divided by the rate of the layer '
    'above it. The embeddings count as a layer below the lowest layer. The '
    'factors of `rates` apply too. A value below 1 needs a pretrained encoder.',
    SHARE,
  )
  freeze: tuple[str, ...] = field(
    (), 'Globs of the paths of parameters that are not trained.'
  )
  optimizer: OptimizerConfig = field(
    Adam, 'The rule that computes the direction of a step from the gradient.'
  )
  clip_value: float = field(
    0.0,
    'The largest absolute value of an entry of the gradient. Larger entries '
    'are clipped to this value (Chalkidis et al. 2019 use 5). 0 means no '
    'clipping.',
    AMOUNT,
  )
  clip_norm: float = field(
    0.0,
    'The largest norm of the whole gradient. A larger gradient is scaled down '
    'to this norm. 0 means no clipping.',
    AMOUNT,
  )
  clip_outliers: float = field(
    0.0,
    'The largest norm of the whole gradient, divided by the largest norm of '
    'the last five gradients. A larger gradient is scaled down to this norm '
    '(AttentionXML uses 5). 0 means no clipping.',
    _OUTLIERS,
  )
  rows: RowUpdateConfig = field(
    ByOptimizer, 'How the label rows of the head are trained.'
  )
  loss: LossConfig = field(BCEConfig, 'The loss that training minimises.')
  label_weights: LabelWeightsConfig = field(
    EvenWeights, 'How much each label counts in the loss.'
  )
  average: AverageConfig = field(
    NoAverage, 'Whether and how a mean of the parameters over steps is kept.'
  )
  compute_dtype: Dtype = field(
    Dtype.AUTO,
    'The type of activations and of the factors of matrix products. auto is '
    'bfloat16 on TPUs and on GPUs with units for it (from the A100 on), and '
    'float32 on other devices. Sums, losses and scores are float32, and so are '
    'parameters, except label rows, whose type is model.head.storage.',
  )
  log_every: int = field(
    50, 'Steps between log lines.', AT_LEAST_1, may_change=True
  )
  checkpoint_every: int = field(500, 'Steps between checkpoints.', AT_LEAST_1)
  keep: int = field(
    3,
    'Number of newest checkpoints to keep, besides the best checkpoint.',
    AT_LEAST_1,
    may_change=True,
  )
  judge_every: int = field(
    500, 'Steps between two judgings on dev.', AT_LEAST_1
  )
  best_metric: str = field(
    'all/RP@5',
    "'slice/metric' that chooses the best checkpoint. If `average` keeps a "
    'mean of the parameters, the metric is computed with this mean.',
  )
  patience: int = field(
    0,
    'Training stops after this many judgings without improvement. 0 means that '
    'training takes all steps.',
    AT_LEAST_0,
  )
  init_from: str = field(
    '',
    'WORKDIR[@step] of another run. This run starts from the parameters of the '
    'other run. If a word or subword is in both runs, its vector comes from '
    'the other run, not from model.embedding.vectors. If the head starts from '
    'the other run, label descriptors are embedded in the same way as in the '
    'other run.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
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
    yield from metric_faults(self.best_metric, config.eval.ks)
