r"""Trains BiGRU-LWAN on full documents of EURLEX57K, as in the paper.

This is BIGRU-LWAN of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). The embeddings are trained from random
values here; the paper uses frozen GloVe vectors.

  xjax train --config=eurlex57k_bigru_lwan \
    --config.data.dir=DIR --workdir=runs/eurlex57k_bigru_lwan

Data: EURLEX57K. Hardware: one GPU. Expected (the paper, on dev): RP@5 0.766,
nDCG@5 0.797, micro-F1 0.702. Time: hours.

To read only some zones, as in Table 4, add one of these flags to the command.
The numbers are the RP@5, nDCG@5 and micro-F1 of the paper on dev.

  --config.data.zones=header           0.747, 0.782, 0.688
  --config.data.zones=recitals         0.734, 0.765, 0.669
  --config.data.zones=header,recitals  0.765, 0.796, 0.701
  --config.data.zones=main_body        0.643, 0.674, 0.590
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
      embedding=EmbeddingConfig(dim=200, dropout=0.4, word_dropout=0.0),
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
