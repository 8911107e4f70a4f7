r"""Trains LightXML or CascadeXML with MiniLM on EURLEX57K.

The systems are by Jiang et al. 2021 (https://arxiv.org/abs/2101.03305) and
Kharbanda et al. 2022 (https://arxiv.org/abs/2211.00640), as in xc_lightxml.py
and xc_cascadexml.py, but with the small encoder all-MiniLM-L6-v2 (Wang et al.
2020, https://arxiv.org/abs/2002.10957). Documents are read as in
eurlex57k_minilm.py (header and recitals).

  xjax train --config=eurlex57k_cascade \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_lightxml
  xjax train --config=eurlex57k_cascade:cascadexml \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_cascadexml

FOLDER is a copy of the Hugging Face model. LightXML (the default) reads the
token [CLS] of the last five layers. In CascadeXML, coarse clusters read lower
layers than labels do. The variant lightxml_flat is LightXML as the paper trains
it on small datasets: a dense layer scores all labels, without clusters.

Differs from the papers: the schedule, the weight decay, the number of epochs
and the encoder's learning rate are those of eurlex57k_minilm.py. The losses of
levels are sums over clusters and labels, as there, instead of means: a mean
over 64 clusters would outweigh the mean over 2,144 labels. Dropout is lower,
and LightXML does not average the weights.

Data: EURLEX57K. Hardware: two CPU cores. Expected: after 300 steps from a
half-trained encoder, the table "Two stages" in docs/results.md. Time: about
that of eurlex57k_minilm.
"""

import dataclasses

from xjax.configs import eurlex57k_minilm
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.cascade import CascadeConfig, Chain
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig

SYSTEMS = ('lightxml', 'lightxml_flat', 'cascadexml')

# Rows that read five layers have a fifth of the learning rate of rows that read
# one layer. Otherwise a step would change their scores five times as much. A
# layer that all labels share has even less.
RATES = {
  'lightxml': {
    'learning_rate': 1e-2,
    'rates': ('encoder/*=0.02', 'head/clusters/*=0.2', 'head/reading/*=0.05'),
  },
  'lightxml_flat': {'learning_rate': 2e-3, 'rates': ('encoder/*=0.1',)},
  'cascadexml': {
    'learning_rate': 1e-2,
    'rates': ('encoder/*=0.02', 'head/clusters/0/reading/*=0.1'),
  },
}


def get_config(system: str = 'lightxml') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  config = eurlex57k_minilm.get_config()
  joined = (3, 4, 5, 6) if system == 'cascadexml' else (-5, -4, -3, -2, -1)
  heads = {
    'lightxml': _lightxml,
    'lightxml_flat': OneVsAllConfig,
    'cascadexml': _cascadexml,
  }
  model = NeuralModel(
    NoEmbedding(),
    BertConfig(joined=joined),
    ClsConfig(dropout=0.2 if system == 'lightxml_flat' else 0.0),
    heads[system](),
  )
  train = dataclasses.replace(config.train, **RATES[system])
  return dataclasses.replace(config, model=model, train=train)


def _lightxml() -> CascadeConfig:
  return CascadeConfig(
    levels=LevelsConfig((64,), ClusterTree(arity=64, max_leaf=67)),
    kept=(32,),
    hidden=(0, 400),
    dropout=(0.2,),
  )


def _cascadexml() -> CascadeConfig:
  return CascadeConfig(
    levels=LevelsConfig((64, 512), ClusterTree(arity=2, max_leaf=9)),
    kept=(32, 64),
    hidden=(384, 0, 0),
    dropout=(0.1, 0.1, 0.2),
    parts=('0+1', '2', '3'),
    chain=Chain.PARENT,
  )
