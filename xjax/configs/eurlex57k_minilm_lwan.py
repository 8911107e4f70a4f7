r"""Trains MiniLM with label-wise attention on EURLEX57K (header and recitals).

The head is taken from BIGRU-LWAN of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). Here the head attends to the tokens of the
pretrained encoder all-MiniLM-L6-v2 (Wang et al. 2020,
https://arxiv.org/abs/2002.10957). Chalkidis et al. 2020 use the same head with
BERT (https://aclanthology.org/2020.emnlp-main.607).

  xjax train --config=eurlex57k_minilm_lwan \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_minilm_lwan

FOLDER is a copy of the Hugging Face model all-MiniLM-L6-v2. Without a test
split, write the ids of all 4,271 labels to a file and set
--config.data.labels=FILE.

Data: EURLEX57K. Hardware: two CPU cores. Expected: the tables in
docs/results.md. Time: 40 minutes of training and a few minutes of judging.
"""

from xjax.data.config import SubwordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals'),
      tokens=SubwordsConfig(max_tokens=128, buckets=(64, 96, 128)),
    ),
    model=NeuralModel(NoEmbedding(), BertConfig(), head=LabelAttentionConfig()),
    train=NeuralTrain(
      batch_size=32,
      steps=1800,
      learning_rate=1e-2,
      rates=('encoder/*=0.02',),
      warmup=100,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.01),
      clip_norm=1.0,
      checkpoint_every=900,
      judge_every=1800,
    ),
  )
