r"""Trains BiGRU-LWAN on your own documents (see own_linear for their form).

The model of Chalkidis et al. 2019 (https://aclanthology.org/P19-1636) reads the
first 256 words of all zones. With 27,000 labels, training needs less than 8 GiB
of memory.

  xjax train --config=own_bigru_lwan \
    --config.data.dir=DIR --workdir=runs/mine

Data: your own documents. Hardware: two CPU cores for small label sets, else a
GPU. Expected: metrics well above those of the popularity prior (both are
printed). Time: depends on the corpus.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.own.own import OwnData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  return Config(
    data=OwnData(
      tokens=WordsConfig(max_tokens=256, buckets=(32, 64, 128, 256)),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(dim=200),
      encoder=BiGRUConfig(units=200),
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=10_000,
      clip_value=5.0,
      checkpoint_every=1000,
      judge_every=1000,
      patience=3,
    ),
  )
