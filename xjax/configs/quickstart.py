r"""Trains a small model on a synthetic corpus, in a minute and offline.

The model is a small BiGRU with label-wise attention (Chalkidis et al. 2019,
Figure 1c). The corpus is generated from a seed; it has 200 labels and 2,000
training documents.

  xjax train --config=quickstart \
    --workdir=runs/quickstart

To train another system, for example the unified system:

  xjax train --config=quickstart:SYSTEM \
    --workdir=runs/quickstart_SYSTEM

SYSTEM is one of the names in SYSTEMS below.

Data: none, it is generated. Hardware: two CPU cores. Expected: dev RP@5 0.87.
Time: about a minute.
"""

import dataclasses

from xjax.config.neural_train import NeuralTrain
from xjax.config.run import Config
from xjax.config.train import NoTrain
from xjax.data.config import WordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.score.config import ExactMatchModel, ModelConfig
from xjax.score.encoders.bigru import BiGRUConfig
from xjax.score.encoders.bilstm import BiLSTMConfig
from xjax.score.encoders.cnn import CNNConfig
from xjax.score.encoders.han import HANConfig
from xjax.score.encoders.layers import EmbeddingConfig
from xjax.score.heads.adaptive import AdaptiveConfig
from xjax.score.heads.attention_mlp import AttentionMLPConfig
from xjax.score.heads.ova import OneVsAllConfig
from xjax.score.heads.unified import UnifiedConfig
from xjax.score.heads.zero_shot import ZeroShotConfig
from xjax.score.pooling import SelfAttentionConfig
from xjax.score.text_model import NeuralModel

SYSTEMS = (
  'exact_match',
  'bigru_att',
  'han',
  'cnn_lwan',
  'bigru_lwan',
  'zero_cnn_lwan',
  'zero_bigru_lwan',
  'unified',
  'aplc',
  'attention_xml',
)


def get_config(system: str = 'bigru_lwan') -> Config:
  """Returns the config of a system, which is one of SYSTEMS."""
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  tokens = WordsConfig(
    max_tokens=128,
    buckets=(64, 128),
    min_count=1,
    by_zone=system == 'han',
  )
  train = NeuralTrain(
    batch_size=32,
    steps=600,
    learning_rate=5e-3,
    log_every=100,
    checkpoint_every=200,
    judge_every=200,
  )
  return Config(
    data=SyntheticData(tokens=tokens),
    model=_model(system),
    train=NoTrain() if system == 'exact_match' else train,
  )


def _model(system: str) -> ModelConfig:
  words = EmbeddingConfig(dim=64, dropout=0.1, word_dropout=0.0)
  # These vectors are random and are never trained. So a word keeps the same
  # vector in label descriptors and in documents. With more dimensions, the
  # model could simply memorise the few labels.
  frozen = EmbeddingConfig(
    dim=32, dropout=0.1, word_dropout=0.0, init_scale=1.0, frozen=True
  )
  bigru = BiGRUConfig(units=64, dropout=0.1)
  cnn = CNNConfig(filters=128, dropout=0.1)
  match system:
    case 'exact_match':
      return ExactMatchModel()
    case 'bigru_att':
      return NeuralModel(words, bigru, SelfAttentionConfig(), OneVsAllConfig())
    case 'aplc':
      return NeuralModel(words, bigru, SelfAttentionConfig(), AdaptiveConfig())
    case 'han':
      han = HANConfig(units=64, zone_units=64, dropout=0.1)
      return NeuralModel(words, han, SelfAttentionConfig(), OneVsAllConfig())
    case 'cnn_lwan':
      return NeuralModel(words, cnn)
    case 'bigru_lwan':
      return NeuralModel(words, bigru)
    case 'zero_cnn_lwan':
      return NeuralModel(frozen, cnn, head=ZeroShotConfig())
    case 'zero_bigru_lwan':
      return NeuralModel(frozen, bigru, head=ZeroShotConfig())
    case 'unified':
      tuned = dataclasses.replace(words, init_scale=1.0, dropout=0.3)
      bigru = dataclasses.replace(bigru, dropout=0.3)
      return NeuralModel(tuned, bigru, head=UnifiedConfig(hidden_labels=5))
    case 'attention_xml':
      bilstm = BiLSTMConfig(units=64, dropout=0.1)
      return NeuralModel(words, bilstm, head=AttentionMLPConfig(mlp=(64,)))
