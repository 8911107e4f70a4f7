r"""Trains AttentionXML on raw text of the Extreme Classification Repository.

This is the system of You et al., NeurIPS 2019
(https://arxiv.org/abs/1811.01727), with the sizes and the training of its
public code: a BiLSTM, attention of each label, an MLP that all labels share,
and a mean of the weights.

  xjax train --config=xc_attention_xml \
    --config.data.dir=DIR --workdir=runs/attention_xml
  xjax train --config=xc_attention_xml:amazoncat_13k \
    --config.data.dir=DIR --workdir=runs/attention_xml_amazoncat

The variants are the keys of SYSTEMS below. The last three are trained level by
level, from clusters of labels to the labels. DIR has trn.json, dev.json and
tst.json, and the labels' names in lbl.json or Y.txt. Move some documents from
trn.json to dev.json: the public code takes 200 (amazoncat_13k: 4,000). The word
vectors are GloVe's 840B vectors of size 300; give their file as
--config.model.embedding.vectors=FILE.

Differs from the paper: one run has one tree. The paper adds up the scores of
three (train three seeds, and average them with --config=ensemble). In
wiki_500k, a document keeps all clusters that have its gold labels; the public
code keeps at most 15 of them.

Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
Time: not measured.
"""

import dataclasses

from xjax.data.config import WordsConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import Reduction
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import (
  AllLabels,
  LevelShortlist,
  ShortlistConfig,
)
from xjax.networks.encoders.bilstm import BiLSTMConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.train.batches.candidates import Candidates
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer_config import Adam, SWAConfig


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Holds the sizes of a dataset's system."""

  epoch: int  # steps
  epochs: int = 30
  mean_from: int = 10  # epoch after which the mean of the weights starts
  batch_size: int = 40
  units: int = 256  # of one direction
  mlp: tuple[int, ...] = (256,)  # hidden layers
  frozen: bool = True  # whether word vectors stay as they are
  levels: tuple[int, ...] = ()  # numbers of clusters, from the top
  leaf: int = 8  # labels of a cluster, at most
  kept: int = 160  # clusters of a document whose labels are scored


_LARGE = {
  'mean_from': 2,
  'batch_size': 200,
  'units': 512,
  'mlp': (512, 256),
  'frozen': False,
}
SYSTEMS = {
  'eurlex_4k': Sizes(epoch=382),
  'wiki10_31k': Sizes(epoch=349, mean_from=4),
  'amazoncat_13k': Sizes(epoch=5912, epochs=10, **_LARGE),
  'amazon_670k': Sizes(
    epoch=2433, epochs=10, levels=(2**11, 2**14, 2**17), **_LARGE
  ),
  'wiki_500k': Sizes(
    epoch=8880, epochs=5, levels=(2**13,), leaf=64, kept=15, **_LARGE
  ),
  'amazon_3m': Sizes(
    epoch=8590, epochs=5, levels=(2**13, 2**16, 2**19), **_LARGE
  ),
}


def get_config(system: str = 'eurlex_4k') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  sizes = SYSTEMS[system]
  return Config(
    data=XcRepoData(
      tokens=WordsConfig(
        max_tokens=500,
        buckets=(100, 200, 300, 400, 500),
        min_count=1,
        max_words=500_000,
      ),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(
        dim=300,
        dropout=0.2,
        word_dropout=0.0,
        vectors='glove.840B.300d.txt',
        frozen=sizes.frozen,
      ),
      encoder=BiLSTMConfig(units=sizes.units, dropout=0.5),
      head=AttentionMLPConfig(mlp=sizes.mlp),
      shortlist=_shortlist(sizes),
    ),
    train=NeuralTrain(
      loss=BCEConfig(reduction=Reduction.MEAN_LABELS),
      batch_size=sizes.batch_size,
      steps=sizes.epochs * sizes.epoch,
      learning_rate=1e-3,
      optimizer=Adam(),
      clip_outliers=5.0,
      clip_norm=5.0,
      average=SWAConfig(start=sizes.mean_from * sizes.epoch, every=100),
      checkpoint_every=1000,
      judge_every=100,
      best_metric='all/nDCG@5',
      patience=50,
    ),
  )


def _shortlist(sizes: Sizes) -> ShortlistConfig:
  """Returns how labels are reached: all at once, or level by level."""
  if not sizes.levels:
    return AllLabels()
  tree = ClusterTree(arity=2, max_leaf=sizes.leaf, max_features=0)
  steps = (sizes.epochs * sizes.epoch,) * len(sizes.levels)
  return LevelShortlist(
    LevelsConfig(sizes.levels, tree),
    steps,
    sizes.kept,
    candidates=Candidates.GOLD_FIRST_RANDOM,
  )
