r"""Trains AttentionXML on header and recitals of EURLEX57K, on two CPU cores.

This is the flat system of You et al., NeurIPS 2019
(https://arxiv.org/abs/1811.01727): a BiLSTM, attention of each label, an MLP
that all labels share, and a mean of the weights. Sizes are smaller than in the
paper. It starts from the word vectors of eurlex57k_small, which the first
command trains on the corpus.

  xjax embeddings --config=eurlex57k_bigru_lwan_l2v \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin
  xjax train --config=eurlex57k_attention_xml \
    --config.data.dir=DIR --workdir=runs/eurlex57k_attention_xml

To start from random vectors, set --config.model.embedding.vectors= and
--config.model.embedding.frozen=False.

Data: EURLEX57K. Hardware: two CPU cores. Expected: dev RP@5 0.655 after 2,500
steps; see docs/results.md. Time: an hour for 2,500 steps.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bilstm import BiLSTMConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer_config import SWAConfig


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals'),
      tokens=WordsConfig(max_tokens=128, buckets=(32, 64, 96, 128)),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(
        dropout=0.2,
        word_dropout=0.0,
        vectors='runs/eurlex57k_l2v.bin',
        frozen=True,
      ),
      encoder=BiLSTMConfig(units=128, dropout=0.3),
      head=AttentionMLPConfig(mlp=(128,)),
    ),
    train=NeuralTrain(
      batch_size=64,
      steps=6000,
      learning_rate=2e-3,
      warmup=100,
      clip_outliers=5.0,
      average=SWAConfig(start=3000, every=100),
      checkpoint_every=1000,
      judge_every=1000,
    ),
  )
