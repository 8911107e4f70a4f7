r"""Trains a small BiGRU-LWAN on the header zone of EURLEX57K, on a CPU.

The system can be compared with row H in Table 4 of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636).

  xjax train --config=eurlex57k_bigru_lwan_header \
    --config.data.dir=DIR --workdir=runs/eurlex57k_bigru_lwan_header

Data: EURLEX57K. Hardware: two CPU cores. Expected: dev RP@5 0.765, nDCG@5
0.798, micro-F1 0.713 (the paper: 0.747, 0.782, 0.688). Time: 67 minutes on
cores that also did other work; a step takes 0.35 to 1 s.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.train.neural_train import NeuralTrain, Schedule

_EPOCH = 704  # steps of 64 documents; train has 45,000 documents


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header',),
      tokens=WordsConfig(max_tokens=96, buckets=(32, 48, 64, 96)),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(dim=200, dropout=0.3, word_dropout=0.02),
      encoder=BiGRUConfig(units=200, dropout=0.4),
    ),
    train=NeuralTrain(
      batch_size=64,
      steps=10 * _EPOCH,
      learning_rate=2e-3,
      warmup=300,
      schedule=Schedule.COSINE,
      clip_norm=20.0,
      checkpoint_every=_EPOCH,
      judge_every=_EPOCH,
    ),
  )
