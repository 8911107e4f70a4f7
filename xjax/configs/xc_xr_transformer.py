r"""Trains XR-Transformer on raw text of the Extreme Classification Repository.

This is the system of Zhang et al., NeurIPS 2021
(https://arxiv.org/abs/2110.00685), with the sizes of the authors' parameter
files. An encoder is trained level by level, from coarse clusters of labels down
to the labels. Its vectors are joined to TF-IDF features, and a tree of linear
classifiers on these features ranks the labels.

  xjax train --config=xc_xr_transformer \
    --config.data.dir=DIR \
    --config.model.vectors.stage.model.encoder.folder=FOLDER \
    --workdir=runs/xr_transformer

SYSTEMS below has the variants. The encoder of the last three learns clusters
only: at most 32,768 of them. DIR is as in xc_attention_xml.py. FOLDER is a copy
of bert-base-uncased; for RoBERTa or XLNet, edit the config file.

The paper averages three runs: three encoders, or three seeds. Train them, and
average them with --config=ensemble --config.model.combine=softmax
(wiki10_31k, amazon_3m: rank; wiki_500k: sigmoid).

Differs from the paper: the label trees of the authors' code have other numbers
of clusters, because here the nodes of all depths have about as many children.
The mean of the loss is over the scored labels alone; theirs counts padding too,
and they score at most 500 labels of a document (eurlex_4k and wiki10_31k:
1,000; amazoncat_13k: 10,000). The classifiers from which label rows start have
C = 1 instead of 100. All classifiers of the ranker have the C of the lowest
level. Their ranker weighs a document by the number of its labels in a cluster
(not for eurlex_4k and amazon_670k).

Data: text files of the XC repository. Hardware: a GPU (add
--config.model.vectors.stage.train.compute_dtype=bfloat16). Expected: not run
yet. Time: not measured.
"""

from typing import NamedTuple

from xjax.data.config import SubwordsConfig, TfidfConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.losses.loss import Reduction
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import LevelShortlist
from xjax.models.stage_config import StageConfig
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.models.trees.vectors import StageVectors
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.batches.candidates import Candidates
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

SYSTEMS = (
  'eurlex_4k',
  'wiki10_31k',
  'amazoncat_13k',
  'amazon_670k',
  'amazon_3m',
  'wiki_500k',
)


class _Sizes(NamedTuple):
  levels: tuple[int, ...]  # largest numbers of clusters that the encoder learns
  arity: int  # children of a node of the encoder's tree
  max_leaf: int  # labels of a cluster of the encoder's tree
  steps: tuple[int, ...]  # of these levels, then of the labels if learnt
  warmup: int
  learning_rate: float
  max_tokens: int
  kept: int  # proposed clusters of a document that go on to the next level
  ranker: tuple[int, int]  # arity and max_leaf of the ranker's tree
  costs: tuple[float, float]  # C, and its factor for documents with the label
  beam: int
  threshold: float = 1e-3
  eps: float = 0.1
  dropout: float = 0.1


_SLOW, _FAST = 5e-5, 1e-4
_EURLEX = (16, 256), 16, 16, (600, 800, 1200), 100, _SLOW, 128
_WIKI10 = (256, 2048), 16, 16, (1000, 1000, 400), 100, _SLOW, 256
_CAT = (256, 1024), 8, 16, (5000, 10_000, 30_000), 1000, _SLOW, 256
_670K = (256, 2048, 2**15), 16, 32, (4000, 4000, 12_000), 200, _FAST, 128
_3M = (256, 4096, 2**15), 16, 100, (10_000,) * 3, 1000, _FAST, 128
_WIKI = (64, 512, 4096, 2**15), 8, 16, (10_000, 10_000, 20_000, 20_000)
_SIZES = {
  'eurlex_4k': _Sizes(*_EURLEX, 5, (8, 16), (4, 0.5), 75),
  'wiki10_31k': _Sizes(*_WIKI10, 20, (16, 16), (1, 4), 100),
  'amazoncat_13k': _Sizes(
    *_CAT, 50, (8, 16), (0.5, 0.5), 100, threshold=1e-4, eps=0.01, dropout=0.05
  ),
  'amazon_670k': _Sizes(*_670K, 5, (32, 100), (1, 1), 75),
  'amazon_3m': _Sizes(*_3M, 20, (32, 100), (1, 8), 50),
  'wiki_500k': _Sizes(*_WIKI, 5000, _FAST, 128, 5, (32, 100), (1, 4), 50),
}


def get_config(system: str = 'eurlex_4k') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  sizes = _SIZES[system]
  arity, max_leaf = sizes.ranker
  c, positive_weight = sizes.costs
  return Config(
    data=XcRepoData(tokens=TfidfConfig()),
    model=TreeModel(
      ClusterTree(arity=arity, max_leaf=max_leaf),
      beam=sizes.beam,
      vectors=StageVectors(
        stage=_stage(sizes), labels=len(sizes.steps) > len(sizes.levels)
      ),
    ),
    train=TreeTrain(
      c=c,
      positive_weight=positive_weight,
      eps=sizes.eps,
      threshold=sizes.threshold,
      matched=sizes.beam,
    ),
    eval=EvalConfig(ks=(1, 3, 5)),
  )


def _stage(sizes: _Sizes) -> StageConfig:
  tree = ClusterTree(arity=sizes.arity, max_leaf=sizes.max_leaf)
  n = len(sizes.levels)
  shortlist = LevelShortlist(
    levels=LevelsConfig(sizes.levels, tree),
    steps=sizes.steps[:n],
    kept=sizes.kept,
    candidates=Candidates.UNION,
    counted=True,
    bootstrap=True,
    chained=False,
  )
  longest = sizes.max_tokens
  return StageConfig(
    tokens=SubwordsConfig(max_tokens=longest, buckets=(longest // 2, longest)),
    model=NeuralModel(
      NoEmbedding(),
      BertConfig(),
      ClsConfig(dropout=sizes.dropout, pooler=True),
      OneVsAllConfig(),
      shortlist,
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=sizes.steps[-1],
      learning_rate=sizes.learning_rate,
      warmup=sizes.warmup,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.0),
      loss=SquaredHingeConfig(reduction=Reduction.MEAN_LABELS),
      clip_norm=1.0,
      checkpoint_every=min(sizes.steps) // 2,
      judge_every=min(sizes.steps) // 2,
    ),
  )
