r"""Trains ZERO-CNN-LWAN on EURLEX57K; it scores labels by their names.

This is row ZERO-CNN-LWAN of Table 2 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), with the sizes of Table 5. The word vectors
are trained first, on the corpus itself (the paper uses GloVe vectors), and then
frozen. So are the label embeddings, which are computed from them.

  xjax embeddings --config=eurlex57k_zero_cnn_lwan \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin
  xjax train --config=eurlex57k_zero_cnn_lwan \
    --config.data.dir=DIR --workdir=runs/eurlex57k_zero_cnn_lwan

Data: EURLEX57K. Hardware: one GPU. Expected (the paper, on test): RP@5 0.684,
nDCG@5 0.717, micro-F1 0.618; zero-shot RP@5 0.321, nDCG@5 0.264. Time: hours.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
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
        dropout=0.1,
        word_dropout=0.0,
        vectors='runs/eurlex57k_l2v.bin',
        frozen=True,
      ),
      encoder=CNNConfig(filters=200, dropout=0.1),
      head=ZeroShotConfig(),
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
