"""A config as JSON and back, and the fields in which two configs differ."""

import dataclasses
import enum
import json
import os
import pathlib
import typing
from typing import Any

from xjax.config.run import (
  ByOptimizer,
  Config,
  EMAConfig,
  FusedAdagrad,
  FusedSGD,
  NeuralTrain,
  NoAverage,
  NoTrain,
  SWAConfig,
)
from xjax.config.sparse import LinearTrain, TreeTrain
from xjax.core.errors import ConfigError, DataError
from xjax.data.config import (
  Eurlex57kData,
  FeatureFilesConfig,
  GivenFeaturesConfig,
  HtcData,
  JsonlData,
  SubwordsConfig,
  SyntheticData,
  TfidfConfig,
  WordsConfig,
  XcFeaturesData,
  XcRepoData,
)
from xjax.losses.config import (
  BCEConfig,
  ClassBalancedWeights,
  EvenWeights,
  FocalConfig,
  PropensityWeights,
  SoftmaxConfig,
  SquaredHingeConfig,
)
from xjax.score.config import (
  BertConfig,
  BiGRUConfig,
  ClsConfig,
  CNNConfig,
  DescriptorConfig,
  EmbeddingConfig,
  ExactMatchModel,
  FeaturesConfig,
  HANConfig,
  LabelAttentionConfig,
  LinearModel,
  MeanConfig,
  NeuralModel,
  NoEmbedding,
  NoEncoder,
  NoPooling,
  OneVsAllConfig,
  SelfAttentionConfig,
  TreeModel,
  UnifiedConfig,
  ZeroShotConfig,
)
from xjax.score.linear.batched import OnDevices
from xjax.score.trees.clusters import ClusterTree
from xjax.score.trees.complete import CompleteTree
from xjax.score.trees.huffman import HuffmanTree
from xjax.score.trees.taxonomy import TaxonomyTree
from xjax.score.trees.training import Blocks

# Tags of config.json; a new kind of data, model or training adds a line.
KINDS = {
  'synthetic': SyntheticData,
  'eurlex57k': Eurlex57kData,
  'jsonl': JsonlData,
  'xc_repo': XcRepoData,
  'xc_features': XcFeaturesData,
  'htc': HtcData,
  'words': WordsConfig,
  'subwords': SubwordsConfig,
  'feature_files': FeatureFilesConfig,
  'tfidf': TfidfConfig,
  'given_features': GivenFeaturesConfig,
  'neural': NeuralModel,
  'embedding': EmbeddingConfig,
  'features': FeaturesConfig,
  'no_embedding': NoEmbedding,
  'no_encoder': NoEncoder,
  'bigru': BiGRUConfig,
  'cnn': CNNConfig,
  'han': HANConfig,
  'bert': BertConfig,
  'no_pooling': NoPooling,
  'mean': MeanConfig,
  'self_attention': SelfAttentionConfig,
  'cls': ClsConfig,
  'label_attention': LabelAttentionConfig,
  'one_vs_all': OneVsAllConfig,
  'descriptor': DescriptorConfig,
  'zero_shot': ZeroShotConfig,
  'unified': UnifiedConfig,
  'gradient': NeuralTrain,
  'bce': BCEConfig,
  'focal': FocalConfig,
  'squared_hinge': SquaredHingeConfig,
  'softmax': SoftmaxConfig,
  'by_optimizer': ByOptimizer,
  'fused_sgd': FusedSGD,
  'fused_adagrad': FusedAdagrad,
  'even_weights': EvenWeights,
  'class_balanced': ClassBalancedWeights,
  'propensity': PropensityWeights,
  'no_average': NoAverage,
  'ema': EMAConfig,
  'swa': SWAConfig,
  'exact_match': ExactMatchModel,
  'none': NoTrain,
  'linear': LinearModel,
  'linear_train': LinearTrain,
  'blocks': Blocks,
  'on_devices': OnDevices,
  'label_tree': TreeModel,
  'tree_train': TreeTrain,
  'cluster_tree': ClusterTree,
  'complete_tree': CompleteTree,
  'huffman_tree': HuffmanTree,
  'taxonomy_tree': TaxonomyTree,
}


def choices(kind: type) -> tuple[type, ...]:
  """The kinds among which a union chooses; none where kind is no union."""
  if kind in KINDS.values():
    return ()
  return tuple(one for one in KINDS.values() if issubclass(one, kind))


_KIND_OF = {cls: kind for kind, cls in KINDS.items()}


def to_json(value: Any) -> Any:
  """JSON values of a config; dataclasses of a union carry their "kind"."""
  if dataclasses.is_dataclass(value):
    fields = {
      f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)
    }
    kind = _KIND_OF.get(type(value))
    return {'kind': kind, **fields} if kind else fields
  if isinstance(value, enum.Enum):
    return value.value
  if isinstance(value, tuple | list):
    return [to_json(item) for item in value]
  return value


def from_json(value: Any, cls: type = Config) -> Any:
  """The config that to_json made; absent fields take their defaults.

  Args:
    value: the JSON object.
    cls: dataclass to build, where value has no "kind".

  Raises:
    ConfigError: an unknown kind or field, a union without its kind, or a value
      of the wrong type; the message names it by its dotted path.
  """
  return _dataclass(value, cls, '')


def load_config(path: str | os.PathLike) -> Config:
  """Reads a config.json.

  Raises:
    DataError: it is absent, damaged, or of another version of xjax.
  """
  try:
    return from_json(json.loads(pathlib.Path(path).read_text('utf-8')))
  except (OSError, ValueError, ConfigError) as error:
    raise DataError(f'{path}: not a config of xjax: {error}') from error


def _dataclass(value: Any, cls: type, path: str) -> Any:
  if not isinstance(value, dict):
    raise ConfigError(f'{path or "config"}: expected an object, got {value!r}')
  value = dict(value)
  kind = value.pop('kind', None)
  if kind == 'liblinear':  # a solver of earlier runs, which may be finished
    kind, value = 'blocks', {}
  if kind is not None:
    known = KINDS.get(kind)
    if known is None or not issubclass(known, cls):
      raise ConfigError(f'{path}: unknown kind {kind!r}')
    cls = known
  elif kinds := choices(cls):
    names = ', '.join(repr(_KIND_OF[one]) for one in kinds)
    raise ConfigError(f'{path}: has no "kind", which is one of {names}')
  hints = typing.get_type_hints(cls)
  if unknown := sorted(set(value) - set(hints)):
    raise ConfigError(f'unknown field {_join(path, unknown[0])!r}')
  return cls(
    **{k: _value(v, hints[k], _join(path, k)) for k, v in value.items()}
  )


def _value(value: Any, hint: Any, path: str) -> Any:
  if dataclasses.is_dataclass(hint):
    return _dataclass(value, hint, path)
  if typing.get_origin(hint) is tuple and isinstance(value, list):
    element = typing.get_args(hint)[0]
    return tuple(_value(item, element, path) for item in value)
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    try:
      return hint(value)
    except ValueError:
      choices = ', '.join(repr(member.value) for member in hint)
      raise ConfigError(f'{path}: {value!r} is none of {choices}') from None
  if hint is float and type(value) is int:
    return float(value)
  if isinstance(hint, type) and type(value) is hint:
    return value
  raise ConfigError(f'{path}: expected {hint}, got {value!r}')


def _join(path: str, name: str) -> str:
  return f'{path}.{name}' if path else name


@dataclasses.dataclass(frozen=True)
class Difference:
  """One field in which two configs differ.

  Attributes:
    path: dotted.
    old, new: JSON values; None where one side has no such field.
    may_change: whether a resumed run may differ here.
  """

  path: str
  old: Any
  new: Any
  may_change: bool

  def __str__(self) -> str:
    return f'{self.path}: {json.dumps(self.old)} -> {json.dumps(self.new)}'


def diff(old: Any, new: Any) -> list[Difference]:
  """The fields in which two configs differ, in their order.

  A field marked may_change makes all that lies below it changeable as well.
  """
  return _diff(old, new, '', False)


def _diff(old: Any, new: Any, path: str, may: bool) -> list[Difference]:
  if not dataclasses.is_dataclass(old) or not dataclasses.is_dataclass(new):
    left, right = to_json(old), to_json(new)
    return [] if left == right else [Difference(path, left, right, may)]
  found = []
  if type(old) is not type(new):
    kinds = (_KIND_OF.get(type(old)), _KIND_OF.get(type(new)))
    found.append(Difference(_join(path, 'kind'), *kinds, may))
  for name, field in _fields(old, new).items():
    below = may or bool(field.metadata.get('may_change'))
    left, right = getattr(old, name, None), getattr(new, name, None)
    found += _diff(left, right, _join(path, name), below)
  return found


def _fields(*configs: Any) -> dict[str, dataclasses.Field]:
  return {f.name: f for config in configs for f in dataclasses.fields(config)}
