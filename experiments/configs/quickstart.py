r"""The embedded corpus: everything works, in a minute, without any download.

A small BiGRU with label-wise attention (Chalkidis et al. 2019, Figure 1c) on a
corpus made from a seed: 200 labels, 2,000 training documents.

  python -m experiments.train --config=experiments/configs/quickstart.py \
    --workdir=runs/quickstart

Hardware: two CPU cores. Expected: dev RP@5 0.86. Time: about a minute.
"""

from xjax.data.config import SyntheticData, WordsConfig
from xjax.models.config import (
  BiGRUConfig,
  EmbeddingConfig,
  LabelAttentionConfig,
  NeuralModel,
)
from xjax.train.config import Config, NeuralTrain


def get_config() -> Config:
  return Config(
    data=SyntheticData(
      tokens=WordsConfig(max_tokens=128, buckets=(64, 128), min_count=1)
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(dim=64, dropout=0.1, word_dropout=0.0),
      encoder=BiGRUConfig(units=64, dropout=0.1),
      head=LabelAttentionConfig(),
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=600,
      learning_rate=5e-3,
      log_every=100,
      checkpoint_every=200,
      judge_every=200,
    ),
  )
