r"""Trains CascadeXML on raw text of the Extreme Classification Repository.

This is the system of Kharbanda et al., NeurIPS 2022
(https://arxiv.org/abs/2211.00640), with the sizes of its public code. Coarse
clusters of labels read the token [CLS] of lower layers, and labels that of the
last layer. In training, each level scores only the children of the best
clusters of the level above. All levels are trained at once.

  xjax train --config=xc_cascadexml \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/cascadexml

SYSTEMS below has the variants. DIR is as in xc_attention_xml.py. FOLDER is a
copy of a BERT model such as bert-base-uncased.

Differs from the paper: after one epoch of warm-up, the learning rate falls
along a cosine. In the paper, it also stays constant before it falls in the last
epochs. The weight decay is 0.01, not 0.05 for the encoder and 0.005 for label
rows. The public code reports the best epoch on test; this config chooses by
dev.

Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
Time: not measured.
"""

from typing import NamedTuple

from xjax.data.config import SubwordsConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.label_trees.clusters import Clusters, ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.data.label_trees.walks import RandomWalks
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import Reduction
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.cascade import CascadeConfig, Chain
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

SYSTEMS = ('wiki10_31k', 'amazon_670k', 'wiki_500k')


class _Sizes(NamedTuple):
  documents: int  # of train
  max_tokens: int
  clusters: tuple[int, ...]
  kept: tuple[int, ...]
  joined: tuple[int, ...]  # layers; the first level reads the first two
  dropout: tuple[float, ...]
  chain: Chain


_LARGE = (5, 6, 8, 10, 12)
_SIZES = {
  'wiki10_31k': _Sizes(
    14_146,
    256,
    (2**10, 2**13),
    (64, 64),
    (7, 8, 10, 12),
    (0.3, 0.3, 0.4),
    Chain.PARENT,
  ),
  'amazon_670k': _Sizes(
    490_449,
    128,
    (2**10, 2**13, 2**16),
    (128, 256, 400),
    _LARGE,
    (0.2, 0.25, 0.4, 0.5),
    Chain.PARENT,
  ),
  'wiki_500k': _Sizes(
    1_779_881,
    128,
    (2**10, 2**13, 2**16),
    (128, 256, 512),
    _LARGE,
    (0.2, 0.25, 0.35, 0.5),
    Chain.LAST,
  ),
}


def get_config(system: str = 'wiki10_31k') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  sizes = _SIZES[system]
  epoch, longest = -(-sizes.documents // 64), sizes.max_tokens
  tree = ClusterTree(
    arity=2, max_leaf=2, clusters=Clusters.TWO_MEANS, smoothing=RandomWalks()
  )
  levels = len(sizes.clusters)
  return Config(
    data=XcRepoData(
      tokens=SubwordsConfig(
        max_tokens=longest, buckets=(longest // 4, longest // 2, longest)
      ),
    ),
    model=NeuralModel(
      NoEmbedding(),
      BertConfig(joined=sizes.joined),
      ClsConfig(dropout=0.0),
      CascadeConfig(
        levels=LevelsConfig(sizes.clusters, tree),
        kept=sizes.kept,
        hidden=(768, *[0] * levels),
        dropout=sizes.dropout,
        parts=('0+1', *map(str, range(2, 2 + levels))),
        chain=sizes.chain,
      ),
    ),
    train=NeuralTrain(
      loss=BCEConfig(reduction=Reduction.MEAN_LABELS),
      batch_size=64,
      steps=15 * epoch,
      learning_rate=1e-3,
      rates=('encoder/*=0.1',),
      warmup=epoch,
      schedule=Schedule.COSINE,
      optimizer=AdamW(weight_decay=0.01),
      checkpoint_every=epoch,
      judge_every=epoch,
    ),
    eval=EvalConfig(ks=(1, 3, 5)),
  )
