"""Values that the fields of a config may have, each for itself."""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

from xjax.config.run import (
  Config,
  EMAConfig,
  EvalConfig,
  FusedAdagrad,
  FusedSGD,
  NeuralTrain,
  SWAConfig,
)
from xjax.config.sparse import LinearTrain, TreeTrain
from xjax.core.mesh import MeshConfig
from xjax.data.config import (
  DataConfig,
  PaddedConfig,
  SubwordsConfig,
  SyntheticData,
  TfidfConfig,
  WordsConfig,
)
from xjax.losses.config import ClassBalancedWeights, FocalConfig
from xjax.score.config import (
  BertConfig,
  BiGRUConfig,
  ClsConfig,
  CNNConfig,
  DescriptorConfig,
  EmbeddingConfig,
  FeaturesConfig,
  HANConfig,
  HeadConfig,
  OneVsAllConfig,
  TreeModel,
  UnifiedConfig,
)
from xjax.score.linear.batched import OnDevices
from xjax.score.trees.clusters import ClusterTree
from xjax.score.trees.complete import CompleteTree
from xjax.score.trees.huffman import HuffmanTree
from xjax.score.trees.training import Blocks


@dataclasses.dataclass(frozen=True)
class Allowed:
  """Values a field may have."""

  holds: Callable[[Any], bool]
  text: str


_COUNT = Allowed(lambda v: v >= 1, 'at least 1')
_PLURAL = Allowed(lambda v: v >= 2, 'at least 2')
_NATURAL = Allowed(lambda v: v >= 0, 'at least 0')
_RATE = Allowed(lambda v: 0 <= v < 1, 'from 0 to below 1')
_SHARE = Allowed(lambda v: 0 < v <= 1, 'above 0, to 1')
_POSITIVE = Allowed(lambda v: 0 < v < math.inf, 'above 0')
_AMOUNT = Allowed(lambda v: 0 <= v < math.inf, 'at least 0')
_RATIO = Allowed(lambda v: 1 <= v < math.inf, 'at least 1')
_AXIS = Allowed(lambda v: v == -1 or v >= 1, 'at least 1, or -1: the rest')

# By the class that has the field; a field of a base holds for all its kinds.
RANGES: dict[type, dict[str, Allowed]] = {
  PaddedConfig: {'max_tokens': _COUNT},
  SubwordsConfig: {
    'max_tokens': Allowed(
      lambda v: v >= 3, 'at least 3: two are special tokens'
    )
  },
  WordsConfig: {
    'min_count': _COUNT,
    'max_words': _COUNT,
  },
  TfidfConfig: {
    'min_ngram': _COUNT,
    'max_ngram': _COUNT,
    'max_features': _COUNT,
    'min_count': _COUNT,
    'max_share': _SHARE,
    'first_words': _NATURAL,
  },
  DataConfig: {'hold_out_labels': _NATURAL, 'workers': _NATURAL},
  SyntheticData: {
    'n_train': _COUNT,
    'n_dev': _NATURAL,
    'n_test': _NATURAL,
    'n_labels': _COUNT,
    'corpus_seed': _NATURAL,
    'verbatim': _SHARE,
  },
  EmbeddingConfig: {
    'dim': _COUNT,
    'dropout': _RATE,
    'word_dropout': _RATE,
    'init_scale': _AMOUNT,
  },
  FeaturesConfig: {'dim': _COUNT, 'dropout': _RATE},
  BiGRUConfig: {'units': _COUNT, 'layers': _COUNT, 'dropout': _RATE},
  CNNConfig: {'filters': _COUNT, 'width': _COUNT, 'dropout': _RATE},
  HANConfig: {
    'units': _COUNT,
    'layers': _COUNT,
    'zone_units': _COUNT,
    'dropout': _RATE,
  },
  BertConfig: {'dropout': _RATE, 'attention_dropout': _RATE},
  ClsConfig: {'dropout': _RATE},
  DescriptorConfig: {'max_words': _COUNT},
  UnifiedConfig: {'row_dropout': _RATE, 'hidden_labels': _NATURAL},
  HeadConfig: {'chunk': _COUNT},
  OneVsAllConfig: {'bottleneck': _NATURAL},
  FusedSGD: {
    'learning_rate': _POSITIVE,
    'momentum': _RATE,
    'weight_decay': _AMOUNT,
  },
  FusedAdagrad: {
    'learning_rate': _POSITIVE,
    'eps': _POSITIVE,
    'weight_decay': _AMOUNT,
  },
  NeuralTrain: {
    'batch_size': _COUNT,
    'accumulate': _COUNT,
    'steps': _COUNT,
    'learning_rate': _POSITIVE,
    'warmup': _NATURAL,
    'ratio': _RATIO,
    'layer_decay': _SHARE,
    'weight_decay': _AMOUNT,
    'b1': _RATE,
    'b2': _RATE,
    'eps': _POSITIVE,
    'clip_value': _AMOUNT,
    'clip_norm': _AMOUNT,
    'log_every': _COUNT,
    'checkpoint_every': _COUNT,
    'keep': _COUNT,
    'judge_every': _COUNT,
    'patience': _NATURAL,
  },
  FocalConfig: {'gamma': _AMOUNT, 'alpha': _RATE},
  ClassBalancedWeights: {'beta': _RATE},
  EMAConfig: {'decay': _RATE, 'start': _NATURAL},
  SWAConfig: {'start': _NATURAL, 'every': _COUNT},
  LinearTrain: {'c': _POSITIVE, 'threshold': _AMOUNT},
  Blocks: {'eps': _POSITIVE, 'max_epochs': _COUNT, 'workers': _COUNT},
  OnDevices: {
    'tolerance': _POSITIVE,
    'max_steps': _COUNT,
    'chunk': _COUNT,
  },
  TreeTrain: {
    'c': _POSITIVE,
    'eps': _POSITIVE,
    'max_epochs': _COUNT,
    'threshold': _AMOUNT,
    'workers': _COUNT,
  },
  TreeModel: {'n_trees': _COUNT, 'beam': _COUNT},
  ClusterTree: {
    'arity': _PLURAL,
    'max_leaf': _COUNT,
    'max_features': _NATURAL,
  },
  CompleteTree: {'arity': _PLURAL},
  HuffmanTree: {'arity': _PLURAL},
  EvalConfig: {'batch_size': _COUNT, 'depth': _COUNT, 'recall': _SHARE},
  MeshConfig: {'data': _AXIS, 'label': _AXIS},
  Config: {'seed': _NATURAL},
}
