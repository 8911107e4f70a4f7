r"""Trains a dense layer on one fixed vector per document.

Compute a vector for each document with any encoder. Save the vectors as
DIR/{split}.npy and the document ids as DIR/{split}.ids.txt (see docs/data.md),
next to {split}.jsonl, or let `xjax embed` do so. Only the output layer is
trained. Chalkidis et al. 2019 (https://aclanthology.org/P19-1636, Section 4)
use the same output layer on top of BERT-BASE. To use label-wise attention and a
vector per token, edit this file: set max_tokens and buckets of
FeatureFilesConfig, replace MeanConfig() with NoPooling(), and replace
OneVsAllConfig() with LabelAttentionConfig().

  xjax train --config=frozen_features --config.data.dir=DIR \
    --config.model.embedding.dim=768 --workdir=runs/frozen

Data: your own vectors and labels. Hardware: two CPU cores. Expected: depends on
the encoder. Time: minutes.
"""

from xjax.data.config import FeatureFilesConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.features import FeaturesConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  return Config(
    data=JsonlData(labels='all', tokens=FeatureFilesConfig()),
    model=NeuralModel(
      embedding=FeaturesConfig(dim=768, dropout=0.1),
      encoder=NoEncoder(),
      pooling=MeanConfig(),
      head=OneVsAllConfig(),
    ),
    train=NeuralTrain(
      batch_size=64,
      steps=10_000,
      checkpoint_every=1000,
      judge_every=1000,
      patience=3,
    ),
  )
