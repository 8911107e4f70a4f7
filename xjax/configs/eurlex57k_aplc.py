r"""Trains MiniLM with adaptive label clusters (APLC) on EURLEX57K.

This is the head of Ye et al., ICML 2020 (https://arxiv.org/abs/2007.02439), but
with the small encoder all-MiniLM-L6-v2 (Wang et al. 2020,
https://arxiv.org/abs/2002.10957) instead of XLNet. The half of the labels that
is rare has rows of half the width. Documents are read as in eurlex57k_minilm.py
(header and recitals).

  xjax train --config=eurlex57k_aplc \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_aplc

FOLDER is a copy of the Hugging Face model all-MiniLM-L6-v2. Without a test
split, write the ids of all 4,271 labels to a file and set
--config.data.labels=FILE.

Differs from the paper: there is no pooler, a dense layer with tanh, and the
loss is a sum over labels instead of a mean. The head has no biases, so all
probabilities start at .5, and the first gradients are large. Those of the sum
are clipped. Those of a mean would not be, and Adam would remember them for
hundreds of steps.

Data: EURLEX57K. Hardware: two CPU cores. Expected: the table "Two stages" in
docs/results.md. Time: about that of eurlex57k_minilm.
"""

from xjax.data.config import SubwordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals'),
      tokens=SubwordsConfig(max_tokens=128, buckets=(64, 96, 128)),
    ),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), ClsConfig(), AdaptiveConfig()
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=2400,
      learning_rate=1e-2,
      rates=('encoder/*=0.02',),
      warmup=100,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.0),
      clip_norm=1.0,
      checkpoint_every=600,
      judge_every=1200,
    ),
  )
