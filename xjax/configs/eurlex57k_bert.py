r"""Trains BERT-BASE with a dense [CLS] layer on EURLEX57K, as in the paper.

This is BERT-BASE of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). It is trained as in Appendix B.

  xjax train --config=eurlex57k_bert \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_bert

FOLDER is a copy of the Hugging Face model bert-base-uncased.
There are 4,271 labels: all labels that occur in train, dev or test.

Data: EURLEX57K. Hardware: a GPU (add --config.train.compute_dtype=bfloat16).
Expected: not run yet; the paper has RP@5 .796 and nDCG@5 .823 on test. Time:
not known; an epoch has 5,625 steps.
"""

from xjax.data.config import SubwordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      tokens=SubwordsConfig(max_tokens=512, buckets=(128, 256, 512)),
    ),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), ClsConfig(dropout=0.1), OneVsAllConfig()
    ),
    train=NeuralTrain(
      batch_size=8,
      steps=9 * 5625,
      learning_rate=5e-5,
      checkpoint_every=5625,
      judge_every=5625,
      patience=1,
    ),
  )
