r"""Trains one of seven small neural systems on EURLEX57K.

The systems read 128 words of header and recitals. They are the unified system
and the word-based systems in Table 2 of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). All systems except bigru_lwan start from
the same word vectors. The first command trains these vectors; run it only once.

  xjax embeddings --config=eurlex57k_bigru_lwan_l2v \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin
  xjax train --config=eurlex57k_small:SYSTEM \
    --config.data.dir=DIR --workdir=runs/eurlex57k_small/SYSTEM

SYSTEM is a key of SYSTEMS below. Without a test split, write the ids of all
4,271 labels to a file and set --config.data.labels=FILE. To judge the model on
unseen labels, hide 300 labels from training with
--config.data.hold_out_labels=300.

Data: EURLEX57K. Hardware: two CPU cores. Expected: the tables in
docs/results.md. Time: ten minutes of training and one minute of judging per
system.
"""

import dataclasses

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.head import DescriptorConfig, DescriptorWeights
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.train.neural_train import NeuralTrain, Schedule

# System -> number of training steps. All steps of a system together take about
# ten minutes. A step has 64 documents.
SYSTEMS = {
  'bigru_att': 7000,
  'han': 4000,
  'cnn_lwan': 1430,
  'bigru_lwan': 1350,
  'bigru_lwan_l2v': 1350,
  'zero_bigru_lwan': 2200,
  'unified': 1350,
}


def get_config(system: str = 'unified') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  tokens = WordsConfig(max_tokens=128, buckets=(32, 64, 96, 128))
  if system == 'han':
    tokens = WordsConfig(max_tokens=64, buckets=(32, 64), by_zone=True)
  steps = SYSTEMS[system]
  return Config(
    data=Eurlex57kData(zones=('header', 'recitals'), tokens=tokens),
    model=_model(system),
    train=NeuralTrain(
      batch_size=64,
      steps=steps,
      learning_rate=2e-3,
      warmup=100,
      schedule=Schedule.COSINE,
      clip_norm=20.0,
      checkpoint_every=steps,
      judge_every=steps,
    ),
  )


def _model(system: str) -> NeuralModel:
  vectors = EmbeddingConfig(
    dropout=0.2,
    word_dropout=0.02,
    vectors='runs/eurlex57k_l2v.bin',
    frozen=True,
  )
  bigru = BiGRUConfig(units=100, dropout=0.2)
  match system:
    case 'bigru_att':
      return NeuralModel(
        vectors, bigru, SelfAttentionConfig(), OneVsAllConfig()
      )
    case 'han':
      han = HANConfig(units=100, zone_units=100, dropout=0.2)
      return NeuralModel(vectors, han, SelfAttentionConfig(), OneVsAllConfig())
    case 'cnn_lwan':
      return NeuralModel(vectors, CNNConfig(filters=200, dropout=0.2))
    case 'bigru_lwan':
      trained = EmbeddingConfig(dropout=0.2, word_dropout=0.02)
      return NeuralModel(trained, bigru)
    case 'bigru_lwan_l2v':
      return NeuralModel(vectors, bigru)
    case 'zero_bigru_lwan':
      return NeuralModel(vectors, bigru, head=ZeroShotConfig())
    case 'unified':
      descriptor = DescriptorConfig(weights=DescriptorWeights.IDF)
      # The vectors of document words are trained further. Descriptors keep the
      # original vectors.
      tuned = dataclasses.replace(vectors, frozen=False)
      return NeuralModel(
        tuned, bigru, head=UnifiedConfig(descriptor=descriptor)
      )
