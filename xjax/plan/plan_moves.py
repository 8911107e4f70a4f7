"""What a run can be made to hold less by."""

from collections.abc import Callable
from typing import Any

from xjax.config.parameter_groups import in_group
from xjax.config.run import ByOptimizer, Config, FusedSGD, NeuralTrain
from xjax.score.config import BertConfig, OneVsAllConfig
from xjax.score.heads.storage import Storage
from xjax.train.average import NoAverage, averages

_LEAST_BOTTLENECK = 64

Fields = dict[str, Any]  # values to set, by the path of their field
# Of a config that can be changed so, what is set; else nothing.
Move = Callable[[Config], Fields]


def fused(config: Config) -> Fields:
  """Rows that train themselves, which takes one pass and keeps no mean."""
  train = config.train
  if not isinstance(config.model.head, OneVsAllConfig):
    return {}
  if not isinstance(train.rows, ByOptimizer) or _groups_rows(train):
    return {}
  fields = {'train.rows': FusedSGD()}
  if train.accumulate != 1:
    fields['train.accumulate'] = 1
  if averages(train.average):
    fields['train.average'] = NoAverage()
  return fields


def _groups_rows(train: NeuralTrain) -> bool:
  """Whether a group of the optimizer's parameters has label rows."""
  globs = [*train.freeze, *(entry.rpartition('=')[0] for entry in train.rates)]
  return any(in_group(f'head/{name}', globs) for name in ('kernel', 'bias'))


def _narrower_storage(config: Config) -> Fields:
  head = config.model.head
  if not isinstance(head, OneVsAllConfig):
    return {}
  if isinstance(config.train.rows, ByOptimizer):
    return {}
  for storage in (Storage.BFLOAT16, Storage.FLOAT8):
    if storage.bytes < head.storage.bytes:
      return {'model.head.storage': storage}
  return {}


def _no_momentum(config: Config) -> Fields:
  if not getattr(config.train.rows, 'momentum', 0.0):
    return {}
  return {'train.rows.momentum': 0.0}


def _remat(config: Config) -> Fields:
  encoder = config.model.encoder
  if not isinstance(encoder, BertConfig) or encoder.remat:
    return {}
  return {'model.encoder.remat': True}


def _smaller_batch(config: Config) -> Fields:
  """Micro-batches where there may be some, which change no result."""
  batch, micro = config.train.batch_size, config.train.accumulate
  if isinstance(config.train.rows, ByOptimizer) and batch % (2 * micro) == 0:
    return {'train.accumulate': 2 * micro}
  if batch % 2:
    return {}
  return {'train.batch_size': batch // 2}


def _smaller_chunk(config: Config) -> Fields:
  chunk = config.model.head.chunk
  return {'model.head.chunk': chunk // 4} if chunk >= 128 else {}


def narrower_features(config: Config) -> Fields:
  """A head that reads fewer features: another model."""
  head = config.model.head
  if not isinstance(head, OneVsAllConfig):
    return {}
  size = head.bottleneck // 2 if head.bottleneck else 4 * _LEAST_BOTTLENECK
  return {'model.head.bottleneck': size} if size >= _LEAST_BOTTLENECK else {}


MOVES: tuple[Move, ...] = (
  fused,
  _narrower_storage,
  _no_momentum,
  _remat,
  _smaller_batch,
  _smaller_chunk,
)
