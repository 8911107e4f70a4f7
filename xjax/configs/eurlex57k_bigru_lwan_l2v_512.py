r"""Trains BiGRU-LWAN with in-domain word vectors on 512 words per document.

The documents are those of EURLEX57K. The model is row "BIGRU-LWAN (L2V) *" (the
first 512 words) of Table 2 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), with the sizes of Table 5. The word vectors
are trained first, on the corpus itself, and then frozen.

  xjax embeddings --config=eurlex57k_bigru_lwan_l2v_512 \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin
  xjax train --config=eurlex57k_bigru_lwan_l2v_512 \
    --config.data.dir=DIR --workdir=runs/eurlex57k_bigru_lwan_l2v_512

Data: EURLEX57K. Hardware: one GPU. Expected (the paper, on test): RP@5 0.770,
nDCG@5 0.796, micro-F1 0.709. Time: hours.
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
      tokens=WordsConfig(max_tokens=512, buckets=(128, 256, 384, 512)),
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
