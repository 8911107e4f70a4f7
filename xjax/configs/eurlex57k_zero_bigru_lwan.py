r"""Trains ZERO-BIGRU-LWAN on EURLEX57K; it scores labels by their names.

This is row ZERO-BIGRU-LWAN of Table 2 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), with the sizes of Table 5. The word vectors
are trained first, on the corpus itself (the paper uses GloVe vectors), and then
frozen. So are the label embeddings, which are computed from them.

  xjax embeddings --config=eurlex57k_zero_bigru_lwan \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin
  xjax train --config=eurlex57k_zero_bigru_lwan \
    --config.data.dir=DIR --workdir=runs/eurlex57k_zero_bigru_lwan

The variant eurlex57k_zero_bigru_lwan:graph adds a graph of labels, as the
scores "concat" of Chalkidis et al., EMNLP 2020
(https://aclanthology.org/2020.emnlp-main.607). It is not measured yet.

Data: EURLEX57K. Hardware: one GPU. Expected (the paper, on test): RP@5 0.718,
nDCG@5 0.752, micro-F1 0.652; zero-shot RP@5 0.438, nDCG@5 0.345. Time: hours.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.head import NoGraph
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.label_graph import GraphLayers, Joining
from xjax.train.neural_train import NeuralTrain

SYSTEMS = ('names', 'graph')

_EPOCH = 2813  # steps of 16 documents; train has 45,000 documents


def get_config(system: str = 'names') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  graph = NoGraph()
  if system == 'graph':
    graph = GraphLayers(joining=Joining.CONCAT)
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
      encoder=BiGRUConfig(units=100, dropout=0.1),
      head=ZeroShotConfig(graph=graph),
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
