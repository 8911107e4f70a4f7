r"""Trains flat and hierarchical systems with MiniLM on arXiv abstracts.

The labels are 118 categories of arXiv and their 18 archives, so there are two
levels. Bertalis et al. (2025) compare systems for hierarchical text
classification with systems for extreme classification on such corpora. The
encoder is all-MiniLM-L6-v2 (Wang et al. 2020, https://arxiv.org/abs/2002.10957).

  xjax train --config=arxiv:SYSTEM \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/arxiv_SYSTEM

FOLDER is a copy of the Hugging Face model. SYSTEM is one of:

- flat (the default): the token [CLS] and a dense layer.
- cascadexml: 16 clusters of labels are scored first, and then the labels of the
  best clusters (Kharbanda et al. 2022, https://arxiv.org/abs/2211.00640).
- hbgl: the labels are generated level by level, from label vectors that are
  trained on the hierarchy first (Jiang et al. 2022,
  https://arxiv.org/abs/2205.02613).
- hgclr: as flat, with views of documents that keep the words which matter for
  the labels (Wang et al. 2022, https://aclanthology.org/2022.acl-long.491). A
  step takes about twice as long.
- radar: a decoder writes the archives and then the categories, with the
  sizes of RADAr++ (Yousef et al. 2025, https://arxiv.org/abs/2501.13598;
  Bertalis et al. 2025).
- xr_linear: a label tree on TF-IDF (Yu et al. 2022), without an encoder.
- xr_transformer: a label tree on TF-IDF and the vectors of a finished run, here
  of flat (Zhang et al. 2021, https://arxiv.org/abs/2110.00685). It needs
  --config.model.vectors.workdir=runs/arxiv_flat instead of FOLDER.

DIR has train.jsonl, dev.jsonl and labels.jsonl; each line of a split has id,
text and labels, and each line of labels.jsonl has id, name and parents. All
neural systems read the first 128 pieces of a document.

Data: arXiv abstracts, as JSON lines. Hardware: two CPU cores; hgclr needs 12 GB
of memory. Expected on dev: the table in docs/hierarchies.md; cascadexml and
radar are not run yet. Time: training takes 21 minutes for flat and 38 for
hgclr; hbgl takes less than 40 minutes, xr_transformer 8 minutes after flat, and
xr_linear a minute.
"""

import dataclasses

from xjax.configs import variants
from xjax.configs.eurlex57k_encoders import eurlex57k_minilm
from xjax.data.formats.jsonl import JsonlData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.tokens_config import TfidfConfig
from xjax.losses.sequence import SequenceLossConfig
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.trees.joined_vectors import (
  NoVectors,
  RunVectors,
  VectorsConfig,
)
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.networks.heads.cascade import CascadeConfig, Chain
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.label_levels import LabelPretraining
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.pooling import NoPooling
from xjax.networks.views.hierarchy_views import HierarchyViews

KS = (1, 2, 3, 5, 10, 20)  # the cut-offs of Bertalis et al.


@variants('flat cascadexml hbgl hgclr radar xr_linear xr_transformer')
def get_config(system: str) -> Config:
  if system == 'xr_linear':
    return _tree(NoVectors())
  if system == 'xr_transformer':
    return _tree(RunVectors(workdir='runs/arxiv_flat'))
  config = _flat()
  model, train = config.model, config.train
  match system:
    case 'hgclr':
      # The loss is the sum over 136 labels, so this weight is 0.005 for the
      # mean. With 0.05, as for WoS, a small BiGRU was worse than without views.
      model.views = HierarchyViews(weight=0.7)
      train.rates += ('views/*=0.02',)
    case 'cascadexml':
      model.encoder.joined = (4, 5, 6)
      model.pooling.dropout = 0.0
      model.head = CascadeConfig(
        levels=LevelsConfig((16,), ClusterTree(arity=2, max_leaf=9)),
        kept=(12,),
        hidden=(384, 0),
        dropout=(0.1, 0.2),
        parts=('0+1', '2'),
        chain=Chain.PARENT,
      )
      train.rates += ('head/clusters/0/reading/*=0.1',)
    case 'hbgl':
      # Lists have all labels, so that ranking metrics compare.
      model.pooling = NoPooling()
      model.head = HBGLConfig(
        max_levels=2,
        ranking=Ranking.FULL,
        pretraining=LabelPretraining(steps=30, batch=8),
      )
      # The vectors of labels are also what the encoder reads, so their rate is
      # lower than that of label rows elsewhere.
      train.learning_rate, train.rates = 1e-3, ('encoder/*=0.2',)
    case 'radar':
      # RADAr++, with learning rates for fewer steps than in the paper.
      model.pooling = NoPooling()
      model.head = RadarConfig(ranking=Ranking.FULL)
      train.loss = SequenceLossConfig()
      train.learning_rate, train.rates = 1e-3, ('encoder/*=0.2',)
      train.clip_norm = 10.0  # about that of htc_bert
      train.best_metric = 'all/micro-F1'
  return config


def _flat() -> Config:
  config = eurlex57k_minilm()
  config.data = JsonlData(labels='all', tokens=config.data.tokens)
  config.train = dataclasses.replace(
    config.train, steps=1200, checkpoint_every=300, judge_every=600
  )
  config.eval = EvalConfig(ks=KS)
  return config


def _tree(vectors: VectorsConfig) -> Config:
  return Config(
    data=JsonlData(labels='all', tokens=TfidfConfig()),
    model=TreeModel(vectors=vectors),
    train=TreeTrain(),
    eval=EvalConfig(batch_size=512, ks=KS),
  )
