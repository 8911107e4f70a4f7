r"""Trains LightXML on raw text of the Extreme Classification Repository.

This is the system of Jiang et al., AAAI 2021
(https://arxiv.org/abs/2101.03305), with the sizes of its public code. The
document's vector joins the token [CLS] of the last five layers. On small
datasets a dense layer scores all labels. On large datasets, clusters of labels
are scored first, and then the labels of the best clusters, in one model.

  xjax train --config=xc_lightxml \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/lightxml

SYSTEMS below has the variants; amazon_670k and wiki_500k are large. DIR is as
in xc_attention_xml.py. FOLDER is a copy of a BERT model such as
bert-base-uncased; for RoBERTa or XLNet, edit the config file. The paper
averages the probabilities of three encoders, or of three clusterings: train
several runs, and average them with --config=ensemble.

Differs from the paper: the public code switches dropout off in a part of each
epoch, and chooses the best epoch on test. This config does neither: give a
split dev.

Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
Time: not measured.
"""

from typing import NamedTuple

from xjax.data.config import SubwordsConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import Reduction
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.cascade import CascadeConfig
from xjax.networks.heads.head import HeadConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer_config import AdamW, SWAConfig

SYSTEMS = (
  'eurlex_4k',
  'wiki10_31k',
  'amazoncat_13k',
  'amazon_670k',
  'wiki_500k',
)


class _Sizes(NamedTuple):
  documents: int  # of train
  epochs: int
  batch_size: int
  max_tokens: int
  mean_from: int  # epoch after which the mean of the weights starts
  mean_every: int  # steps
  kept: int = 0  # clusters whose labels are scored; 0 scores all labels
  hidden: int = 0  # size of the layer before the rows of labels


_SIZES = {
  'eurlex_4k': _Sizes(15_449, 20, 16, 512, 10, 200),
  'wiki10_31k': _Sizes(14_146, 30, 16, 512, 10, 300),
  'amazoncat_13k': _Sizes(1_186_239, 5, 16, 512, 2, 10_000),
  'amazon_670k': _Sizes(490_449, 15, 16, 128, 4, 3000, 75, 400),
  'wiki_500k': _Sizes(1_779_881, 10, 32, 128, 4, 3000, 32, 500),
}


def get_config(system: str = 'eurlex_4k') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  sizes = _SIZES[system]
  epoch, longest = -(-sizes.documents // sizes.batch_size), sizes.max_tokens
  return Config(
    data=XcRepoData(
      tokens=SubwordsConfig(
        max_tokens=longest, buckets=(longest // 4, longest // 2, longest)
      ),
    ),
    model=NeuralModel(
      NoEmbedding(),
      BertConfig(joined=(-5, -4, -3, -2, -1)),
      ClsConfig(dropout=0.0 if sizes.kept else 0.5),
      _head(sizes),
    ),
    train=NeuralTrain(
      loss=BCEConfig(reduction=Reduction.MEAN_LABELS),
      batch_size=sizes.batch_size,
      steps=sizes.epochs * epoch,
      learning_rate=1e-4,
      optimizer=AdamW(weight_decay=0.01),
      average=SWAConfig(sizes.mean_from * epoch, sizes.mean_every),
      checkpoint_every=epoch,
      judge_every=epoch,
    ),
    eval=EvalConfig(ks=(1, 3, 5)),
  )


def _head(sizes: _Sizes) -> HeadConfig:
  if not sizes.kept:
    return OneVsAllConfig()
  return CascadeConfig(
    levels=LevelsConfig((2**13,), ClusterTree(arity=2, max_leaf=100)),
    kept=(sizes.kept,),
    hidden=(0, sizes.hidden),
    dropout=(0.5,),
  )
