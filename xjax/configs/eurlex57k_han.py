r"""Trains HAN on full documents of EURLEX57K, as in the paper.

This is row HAN of Table 2 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), with the sizes of Table 5. It reads the
first 2,000 words of each zone. Gradients are clipped to +-2, as in the authors'
code for HAN. The embeddings are trained from random values here; the paper uses
frozen GloVe vectors.

  xjax train --config=eurlex57k_han \
    --config.data.dir=DIR --workdir=runs/eurlex57k_han

Data: EURLEX57K. Hardware: one GPU. Expected (the paper, on test): RP@5 0.746,
nDCG@5 0.778, micro-F1 0.680. Time: hours.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.train.neural_train import NeuralTrain

_EPOCH = 2813  # steps of 16 documents; train has 45,000 documents


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=WordsConfig(
        max_tokens=2000,
        buckets=(96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2000),
        by_zone=True,
      ),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(dim=200, dropout=0.3, word_dropout=0.02),
      encoder=HANConfig(units=300, zone_units=300, dropout=0.3),
      pooling=SelfAttentionConfig(),
      head=OneVsAllConfig(),
    ),
    train=NeuralTrain(
      batch_size=16,
      steps=20 * _EPOCH,
      clip_value=2.0,
      checkpoint_every=_EPOCH,
      judge_every=_EPOCH,
      patience=3,
    ),
  )
