r"""Trains XR-Transformer's ranker on TIB-SID, with a frozen encoder.

The system is by Zhang et al. 2021, as in eurlex57k_xr_transformer.py, but the
encoder is all-MiniLM-L6-v2 as it is. A stage of the run computes the mean of
the vectors of each document's word pieces. Its only step trains no weight of
the encoder.

  xjax train --config=tib_sid_xr_transformer \
    --config.data.dir=DIR \
    --config.model.vectors.stage.model.encoder.folder=FOLDER \
    --workdir=runs/tib_sid_xr_transformer

FOLDER is a copy of the Hugging Face model all-MiniLM-L6-v2. The tree is as in
tib_sid_xr_linear.py.

Data: TIB-SID, as JSON lines. Hardware: two CPU cores. Expected on dev: the
table in docs/results.md. Time: 20 minutes.
"""

import dataclasses

from xjax.configs import tib_sid_xr_linear
from xjax.data.config import SubwordsConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.stage_config import StageConfig
from xjax.models.trees.vectors import StageVectors
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  config = tib_sid_xr_linear.get_config()
  stage = StageConfig(
    tokens=SubwordsConfig(max_tokens=128, buckets=(32, 64, 96, 128)),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), MeanConfig(), OneVsAllConfig()
    ),
    train=NeuralTrain(
      steps=1, freeze=('encoder/*',), checkpoint_every=1, judge_every=1
    ),
  )
  model = dataclasses.replace(config.model, vectors=StageVectors(stage=stage))
  return dataclasses.replace(config, model=model)
