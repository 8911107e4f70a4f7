r"""Trains BiGRU-LWAN with in-domain word vectors on full EURLEX57K documents.

This is row BIGRU-LWAN (L2V) of Table 2 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), with the sizes of Table 5. The word vectors
are trained first, on the corpus itself, and then frozen; the paper uses vectors
that were trained on more legislation (Chalkidis & Kampas 2018).

  xjax embeddings --config=eurlex57k_bigru_lwan_l2v \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin
  xjax train --config=eurlex57k_bigru_lwan_l2v \
    --config.data.dir=DIR --workdir=runs/eurlex57k_bigru_lwan_l2v

Data: EURLEX57K. Hardware: one GPU. Expected (the paper, on test): RP@5 0.775,
nDCG@5 0.804, micro-F1 0.711. Time: hours.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.train.neural_train import NeuralTrain

_EPOCH = 2813  # steps of 16 documents; train has 45,000 documents


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
      embedding=EmbeddingConfig(
        dim=200,
        dropout=0.4,
        word_dropout=0.0,
        vectors='runs/eurlex57k_l2v.bin',
        frozen=True,
      ),
      encoder=BiGRUConfig(units=300, dropout=0.4),
    ),
    train=NeuralTrain(
      batch_size=16,
      steps=20 * _EPOCH,
      clip_value=5.0,
      checkpoint_every=_EPOCH,
      judge_every=_EPOCH,
      patience=3,
    ),
  )
