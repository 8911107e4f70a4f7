r"""Trains BIGRU-ATT on full documents of EURLEX57K, as in the paper.

This is row BIGRU-ATT of Table 2 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), with the sizes of Table 5. The embeddings
are trained from random values here; the paper uses frozen GloVe vectors.

  xjax train --config=eurlex57k_bigru_att \
    --config.data.dir=DIR --workdir=runs/eurlex57k_bigru_att

Data: EURLEX57K. Hardware: one GPU. Expected (the paper, on test): RP@5 0.758,
nDCG@5 0.789, micro-F1 0.689. Time: hours.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.train.neural_train import NeuralTrain

_EPOCH = 3750  # steps of 12 documents; train has 45,000 documents


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=WordsConfig(
        max_tokens=5000,
        buckets=(256, 384, 512, 768, 1024, 1536, 2048, 3072, 5000),
      ),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(dim=200, dropout=0.2, word_dropout=0.02),
      encoder=BiGRUConfig(units=300, dropout=0.2),
      pooling=SelfAttentionConfig(),
      head=OneVsAllConfig(),
    ),
    train=NeuralTrain(
      batch_size=12,
      steps=20 * _EPOCH,
      clip_value=5.0,
      checkpoint_every=_EPOCH,
      judge_every=_EPOCH,
      patience=3,
    ),
  )
