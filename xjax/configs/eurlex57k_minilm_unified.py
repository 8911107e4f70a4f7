r"""Trains MiniLM with the unified head on EURLEX57K (header and recitals).

The head, with label-wise attention, also scores labels without training
documents. Each label has an embedding of its name. A label with training
documents also has trained weights, except 50 rare labels that training treats
as unseen (model.head.hidden_labels). The pretrained sentence encoder
all-MiniLM-L6-v2 (Wang et al. 2020, https://arxiv.org/abs/2002.10957; Reimers
and Gurevych 2019, https://aclanthology.org/D19-1410) embeds documents and
names. A label starts from the embedding of its name, so names can be compared
with documents even before training. The documents are those of Chalkidis et
al., ACL 2019, https://aclanthology.org/P19-1636.

  xjax train --config=eurlex57k_minilm_unified \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_minilm_unified

The variant eurlex57k_minilm_unified:graph adds a graph of labels (Chalkidis et
al., EMNLP 2020, https://aclanthology.org/2020.emnlp-main.607): the vector of a
label also depends on the names of its parents and children in EUROVOC. With it,
the RP@5 of hidden labels is .628; without it, it is .595 in the same version.

FOLDER is a copy of the Hugging Face model all-MiniLM-L6-v2. Without a test
split, write the ids of all 4,271 labels to a file and set
--config.data.labels=FILE. To judge the model on unseen labels, hide 300 labels
from training with --config.data.hold_out_labels=300.

Data: EURLEX57K. Hardware: two CPU cores. Expected: the tables in
docs/results.md. Time: 40 minutes of training and a few minutes of judging.
"""

from xjax.data.config import SubwordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.head import NoGraph
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.label_graph import GraphLayers
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

SYSTEMS = ('names', 'graph')


def get_config(system: str = 'names') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  graph = GraphLayers() if system == 'graph' else NoGraph()
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals'),
      tokens=SubwordsConfig(max_tokens=128, buckets=(64, 96, 128)),
    ),
    model=NeuralModel(
      NoEmbedding(),
      BertConfig(),
      head=UnifiedConfig(aligned=True, graph=graph),
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=1850,
      learning_rate=2e-3,
      rates=('encoder/*=0.1',),
      warmup=100,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.01),
      clip_norm=1.0,
      checkpoint_every=925,
      judge_every=925,
    ),
  )
