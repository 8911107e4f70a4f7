r"""Trains BiGRU-LWAN on data for hierarchical text classification.

DIR has files like wos_train.json, and a taxonomy file. Each line of
wos_train.json is a JSON object with the keys doc_token and doc_label. Each line
of the taxonomy file has a label and its children, separated by tabs.
--config.data.htc.labels=leaves uses only the labels at the bottom of the
taxonomy, as methods for extreme multi-label classification do (Bertalis et al.,
App. B). The model is by Chalkidis et al. 2019
(https://aclanthology.org/P19-1636).

  xjax train --config=htc_bigru_lwan \
    --config.data.dir=DIR --workdir=runs/htc

Data: HTC files. Hardware: a GPU, or two CPU cores for small corpora. Expected:
not run yet. Time: depends on the corpus.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.htc import HtcData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  return Config(
    data=HtcData(
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
