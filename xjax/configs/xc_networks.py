r"""Trains networks on raw text of the Extreme Classification Repository.

The systems have the sizes of their papers or public code.

  xjax train --config=NAME:DATASET \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/NAME

DATASET is a variant. DIR is the folder of the dataset, with trn.json[.gz],
tst.json[.gz], maybe dev.json[.gz], and the labels' names in lbl.json[.gz] or
Y.txt. To choose the best checkpoint, move some documents from trn.json to
dev.json. FOLDER is a copy of a BERT model such as bert-base-uncased
(Devlin et al. 2019, https://aclanthology.org/N19-1423).

Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
Time: not measured.
"""

import dataclasses
from typing import NamedTuple

from xjax.configs import variants
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.label_trees.clusters import Clusters, ClusterTree
from xjax.data.label_trees.label_features import RandomWalks
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.tokens_config import SubwordsConfig, WordsConfig
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import Reduction
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import AllLabels, LevelShortlist
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiLSTMConfig
from xjax.networks.encoders.xlnet import XLNetConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.cascade import CascadeConfig, Chain
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD
from xjax.train.batches.candidates import Candidates
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import Adam, AdamW, SWAConfig

_DOCUMENTS = {  # of train
  'eurlex_4k': 15_449,
  'wiki10_31k': 14_146,
  'amazoncat_13k': 1_186_239,
  'amazon_670k': 490_449,
  'wiki_500k': 1_779_881,
}


def _config(
  dataset: str, max_tokens: int, batch_size: int, epochs: int
) -> Config:
  """Returns a config that lacks the model and has the sizes of a dataset."""
  epoch = -(-_DOCUMENTS[dataset] // batch_size)
  buckets = max_tokens // 4, max_tokens // 2, max_tokens
  return Config(
    data=XcRepoData(tokens=SubwordsConfig(max_tokens, buckets)),
    train=NeuralTrain(
      loss=BCEConfig(reduction=Reduction.MEAN_LABELS),
      batch_size=batch_size,
      steps=epochs * epoch,
      checkpoint_every=epoch,
      judge_every=epoch,
    ),
    eval=EvalConfig(ks=(1, 3, 5)),
  )


class _AplcSizes(NamedTuple):
  epochs: int
  batch_size: int
  max_tokens: int
  learning_rate: float  # of the head
  rates: tuple[str, ...]
  cutoffs: tuple[int, ...] = ()  # if empty, labels are cut into halves
  last_width: int = 0  # of the rows of the last tail


_670K = (167_522, 335_045, 502_566)
_FAST = 'encoder/*=0.025', 'pooling/*=0.05'
_SLOW = 'encoder/*=0.01', 'pooling/*=0.1'
_APLC = {
  'eurlex_4k': _AplcSizes(8, 12, 512, 2e-3, _FAST),
  'wiki10_31k': _AplcSizes(6, 12, 512, 1e-3, _SLOW),
  'amazoncat_13k': _AplcSizes(8, 48, 192, 2e-3, _FAST),
  'amazon_670k': _AplcSizes(25, 32, 128, 2e-3, _FAST, _670K, 512),
  'wiki_500k': _AplcSizes(12, 64, 256, 2e-3, _FAST, (167_000, 334_000)),
}


@variants(
  'eurlex_4k wiki10_31k amazoncat_13k eurlex_4k_xlnet wiki10_31k_xlnet '
  'amazoncat_13k_xlnet amazon_670k_xlnet wiki_500k_xlnet'
)
def xc_aplc(system: str) -> Config:
  """Trains adaptive label clusters (APLC) on texts of the XC repository.

  APLC-XLNet is the system of Ye et al., ICML 2020
  (https://arxiv.org/abs/2007.02439). The variants whose names end in _xlnet
  have its encoder, XLNet-base: FOLDER is a copy of xlnet-base-cased. The other
  variants are APLC-BERT. The head, the sizes and the three learning rates (of
  the encoder, the pooler and the head) are those of the authors' code for the
  dataset. The rare half of the labels has rows of half the width;
  amazon_670k_xlnet and wiki_500k_xlnet cut the labels into more parts. The
  learning rates of these two are those of amazoncat_13k.

  Differs from the paper: the authors chose the best checkpoint on test. Here,
  it is chosen on dev if there is this split; if not, the last checkpoint is
  used. The learning rate falls linearly, as in the authors' code.

  Hardware: a GPU. Expected: not run yet; the paper has P@1 .8772
  (eurlex_4k_xlnet), .8944 (wiki10_31k_xlnet) and .9456 (amazoncat_13k_xlnet) on
  test.
  """
  dataset = system.removesuffix('_xlnet')
  sizes = _APLC[dataset]
  config = _config(dataset, sizes.max_tokens, sizes.batch_size, sizes.epochs)
  config.model = NeuralModel(
    NoEmbedding(),
    BertConfig() if dataset == system else XLNetConfig(),
    ClsConfig(pooler=True),
    AdaptiveConfig(cutoffs=sizes.cutoffs, last_width=sizes.last_width),
  )
  train = config.train
  train.learning_rate, train.rates = sizes.learning_rate, sizes.rates
  train.schedule, train.optimizer = Schedule.LINEAR, AdamW(weight_decay=0.0)
  train.clip_norm = 1.0
  return config


class _LightSizes(NamedTuple):
  epochs: int
  batch_size: int
  max_tokens: int
  mean_from: int  # epoch after which the mean of the weights starts
  mean_every: int  # steps
  kept: int = 0  # clusters whose labels are scored; 0 scores all labels
  hidden: int = 0  # size of the layer before the rows of labels


_LIGHTXML = {
  'eurlex_4k': _LightSizes(20, 16, 512, 10, 200),
  'wiki10_31k': _LightSizes(30, 16, 512, 10, 300),
  'amazoncat_13k': _LightSizes(5, 16, 512, 2, 10_000),
  'amazon_670k': _LightSizes(15, 16, 128, 4, 3000, 75, 400),
  'wiki_500k': _LightSizes(10, 32, 128, 4, 3000, 32, 500),
}


@variants(*_LIGHTXML)
def xc_lightxml(dataset: str) -> Config:
  """Trains LightXML on raw text of the Extreme Classification Repository.

  This is the system of Jiang et al., AAAI 2021
  (https://arxiv.org/abs/2101.03305), with the sizes of its public code. The
  document's vector joins the token [CLS] of the last five layers. On small
  datasets a dense layer scores all labels. On large datasets (amazon_670k and
  wiki_500k), clusters of labels are scored first, and then the labels of the
  best clusters, in one model. The paper averages the probabilities of three
  encoders, or of three clusterings: train several runs, and average them with
  --config=ensemble.

  Differs from the paper: the public code switches dropout off in a part of each
  epoch, and chooses the best epoch on test. This config does neither: give a
  split dev.
  """
  sizes = _LIGHTXML[dataset]
  config = _config(dataset, sizes.max_tokens, sizes.batch_size, sizes.epochs)
  encoder = BertConfig(joined=(-5, -4, -3, -2, -1))
  pooling, head = ClsConfig(dropout=0.5), OneVsAllConfig()
  if sizes.kept:
    levels = LevelsConfig((2**13,), ClusterTree(arity=2, max_leaf=100))
    head = CascadeConfig(
      levels=levels,
      kept=(sizes.kept,),
      hidden=(0, sizes.hidden),
      dropout=(0.5,),
    )
    pooling.dropout = 0.0
  config.model = NeuralModel(NoEmbedding(), encoder, pooling, head)
  train = config.train
  train.learning_rate, train.optimizer = 1e-4, AdamW(weight_decay=0.01)
  start = sizes.mean_from * train.judge_every
  train.average = SWAConfig(start, sizes.mean_every)
  return config


class _CascadeSizes(NamedTuple):
  max_tokens: int
  clusters: tuple[int, ...]
  kept: tuple[int, ...]
  joined: tuple[int, ...]  # layers; the first level reads the first two
  dropout: tuple[float, ...]
  chain: Chain = Chain.PARENT


_10K, _500K = (2**10, 2**13), (2**10, 2**13, 2**16)
_LAYERS_10K, _LAYERS_500K = (7, 8, 10, 12), (5, 6, 8, 10, 12)
_CASCADEXML = {
  'wiki10_31k': _CascadeSizes(
    256, _10K, (64, 64), _LAYERS_10K, (0.3, 0.3, 0.4)
  ),
  'amazon_670k': _CascadeSizes(
    128, _500K, (128, 256, 400), _LAYERS_500K, (0.2, 0.25, 0.4, 0.5)
  ),
  'wiki_500k': _CascadeSizes(
    *(128, _500K, (128, 256, 512), _LAYERS_500K, (0.2, 0.25, 0.35, 0.5)),
    chain=Chain.LAST,
  ),
}


@variants(*_CASCADEXML)
def xc_cascadexml(dataset: str) -> Config:
  """Trains CascadeXML on raw text of the Extreme Classification Repository.

  This is the system of Kharbanda et al., NeurIPS 2022
  (https://arxiv.org/abs/2211.00640), with the sizes of its public code. Coarse
  clusters of labels read the token [CLS] of lower layers, and labels that of
  the last layer. In training, each level scores only the children of the best
  clusters of the level above. All levels are trained at once.

  Differs from the paper: after one epoch of warm-up, the learning rate falls
  along a cosine. In the paper, it also stays constant before it falls in the
  last epochs. The weight decay is 0.01, not 0.05 for the encoder and 0.005 for
  label rows. The public code reports the best epoch on test; this config
  chooses by dev.
  """
  sizes = _CASCADEXML[dataset]
  config = _config(dataset, sizes.max_tokens, batch_size=64, epochs=15)
  tree = ClusterTree(
    arity=2, max_leaf=2, clusters=Clusters.TWO_MEANS, smoothing=RandomWalks()
  )
  levels = len(sizes.clusters)
  config.model = NeuralModel(
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
  )
  train = config.train
  train.learning_rate, train.rates = 1e-3, ('encoder/*=0.1',)
  train.warmup, train.schedule = train.judge_every, Schedule.COSINE
  train.optimizer = AdamW(weight_decay=0.01)
  return config


@dataclasses.dataclass(frozen=True)
class _AttentionSizes:
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


_LARGE = 2, 200, 512, (512, 256), False  # mean_from, ..., frozen
_ATTENTION_XML = {
  'eurlex_4k': _AttentionSizes(382),
  'wiki10_31k': _AttentionSizes(349, mean_from=4),
  'amazoncat_13k': _AttentionSizes(5912, 10, *_LARGE),
  'amazon_670k': _AttentionSizes(2433, 10, *_LARGE, (2**11, 2**14, 2**17)),
  'wiki_500k': _AttentionSizes(8880, 5, *_LARGE, (2**13,), leaf=64, kept=15),
  'amazon_3m': _AttentionSizes(8590, 5, *_LARGE, (2**13, 2**16, 2**19)),
}


@variants(*_ATTENTION_XML)
def xc_attention_xml(dataset: str) -> Config:
  """Trains AttentionXML on raw text of the Extreme Classification Repository.

  This is the system of You et al., NeurIPS 2019
  (https://arxiv.org/abs/1811.01727), with the sizes and the training of its
  public code: a BiLSTM, attention of each label, an MLP that all labels share,
  and a mean of the weights. The last three variants are trained level by level,
  from clusters of labels to the labels. There is no FOLDER: the word vectors
  are GloVe's 840B vectors of size 300; give their file as
  --config.model.embedding.vectors=FILE. The public code takes 200 documents
  for dev (amazoncat_13k: 4,000).

  Differs from the paper: one run has one tree. The paper adds up the scores of
  three (train three seeds, and average them with --config=ensemble). In
  wiki_500k, a document keeps all clusters that have its gold labels; the public
  code keeps at most 15 of them.
  """
  sizes = _ATTENTION_XML[dataset]
  steps = sizes.epochs * sizes.epoch
  shortlist = AllLabels()
  if sizes.levels:
    tree = ClusterTree(arity=2, max_leaf=sizes.leaf, max_features=0)
    shortlist = LevelShortlist(
      LevelsConfig(sizes.levels, tree),
      (steps,) * len(sizes.levels),
      sizes.kept,
      candidates=Candidates.GOLD_FIRST_RANDOM,
    )
  buckets = (100, 200, 300, 400, 500)
  tokens = WordsConfig(500, buckets, min_count=1, max_words=500_000)
  vectors = 'glove.840B.300d.txt'
  return Config(
    data=XcRepoData(tokens=tokens),
    model=NeuralModel(
      EmbeddingConfig(300, 0.2, 0.0, vectors=vectors, frozen=sizes.frozen),
      BiLSTMConfig(units=sizes.units, dropout=0.5),
      head=AttentionMLPConfig(mlp=sizes.mlp),
      shortlist=shortlist,
    ),
    train=NeuralTrain(
      loss=BCEConfig(reduction=Reduction.MEAN_LABELS),
      batch_size=sizes.batch_size,
      steps=steps,
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


def amazon_3m_like() -> Config:
  """Trains BERT-base with a one-vs-all head on Amazon-3M or similar data.

  Amazon-3M has 2,812,281 labels and 1,717,899 training documents, with 36
  labels per document (manikvarma.org/downloads/XC/XMLRepository.html). The
  encoder reads the first 128 subwords of a document. The head scores all labels
  at every step (Renee, Jain et al. 2023). Its weights have 2 bytes, and plain
  SGD updates them in the pass that computes their gradient (ELMO, ICML 2025).
  For 1 byte, set --config.model.head.storage=FLOAT8.

  Hardware: one GPU, or several GPUs or TPUs, which share the labels. Expected:
  not run yet; the learning rates are guesses. Time: not known; an epoch has
  3,356 steps.
  """
  epoch = 3356
  return Config(
    data=XcRepoData(tokens=SubwordsConfig(128, (32, 64, 128))),
    model=NeuralModel(
      NoEmbedding(),
      # Without attention dropout, GPUs use a flash attention kernel.
      BertConfig(attention_dropout=0.0),
      ClsConfig(),
      OneVsAllConfig(storage=Storage.BFLOAT16),
    ),
    train=NeuralTrain(
      batch_size=512,
      steps=30 * epoch,
      learning_rate=1e-4,
      warmup=5000,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.01),
      rows=FusedSGD(learning_rate=0.05),
      checkpoint_every=epoch,
      judge_every=epoch,
      patience=3,
    ),
    eval=EvalConfig(batch_size=512, ks=(1, 3, 5), propensity=(0.6, 2.6)),
  )
