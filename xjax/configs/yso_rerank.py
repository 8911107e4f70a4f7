r"""Ranks the labels that another run lists again, by a BiGRU, on YSO.

The other run lists 50 labels of each document, as in eurlex57k_rerank.py. The
encoder, that of BIGRU-ATT (Chalkidis et al. 2019), reads words and is trained
from scratch.

  xjax train --config=yso_xr_linear \
    --config.data.dir=DIR --workdir=runs/yso_tree
  xjax train --config=yso_rerank \
    --config.data.dir=DIR --config.model.shortlist.workdir=runs/yso_tree \
    --workdir=runs/yso_rerank

A shortlist of 50 labels must have room for all gold labels of a document. So
that it also has at least ten wrong labels to learn from, remove the documents
with more than 40 labels from the training file first (120 of 587,947).

Data: YSO, as JSON lines. Hardware: two CPU cores. Expected on dev: the table in
docs/results.md. Time: 7 minutes.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import RunShortlist
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.networks.rows.update import FusedAdam
from xjax.train.neural_train import NeuralTrain, Schedule


def get_config() -> Config:
  return Config(
    data=JsonlData(
      labels='all', tokens=WordsConfig(max_tokens=32, buckets=(8, 16, 32))
    ),
    model=NeuralModel(
      EmbeddingConfig(dim=128, dropout=0.2, word_dropout=0.0),
      BiGRUConfig(units=128, dropout=0.2),
      SelfAttentionConfig(),
      OneVsAllConfig(),
      RunShortlist(50, 3.0, workdir='runs/yso_tree'),
    ),
    train=NeuralTrain(
      batch_size=128,
      steps=3000,
      learning_rate=2e-3,
      schedule=Schedule.LINEAR,
      rows=FusedAdam(learning_rate=2e-3),
      clip_norm=1.0,
      checkpoint_every=1000,
      judge_every=3000,
    ),
    eval=EvalConfig(batch_size=512),
  )
