r"""MiniLM with label-wise attention on EURLEX57K: header and recitals.

The head of BIGRU-LWAN in Chalkidis et al., "Large-Scale Multi-Label Text
Classification on EU Legislation", ACL 2019, https://aclanthology.org/P19-1636,
over the tokens of a pretrained encoder, as Chalkidis et al. 2020 have it over
BERT (https://aclanthology.org/2020.emnlp-main.607): all-MiniLM-L6-v2 (Wang et
al. 2020, https://arxiv.org/abs/2002.10957).

  python -m experiments.train \
    --config=experiments/configs/eurlex57k_minilm_lwan.py \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_minilm_lwan

with FOLDER as Hugging Face has it. Labels are the 4,271 that the three splits
use; without the test split, --config.data.labels=FILE names them.

Hardware: two CPU cores. Expected: the table in README.md. Time: 40 minutes, and
a few for judging.
"""

from xjax.config.optimizer import AdamW
from xjax.config.run import Config
from xjax.config.train import NeuralTrain, Schedule
from xjax.data.config import SubwordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.score.encoders.bert import BertConfig
from xjax.score.encoders.contract import NoEmbedding
from xjax.score.heads.label_attention import LabelAttentionConfig
from xjax.score.text_model import NeuralModel


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
