r"""Trains XR-Transformer and X-Transformer, trees on an encoder's vectors.

XR-Transformer (Zhang et al., NeurIPS 2021, https://arxiv.org/abs/2110.00685)
joins the TF-IDF features of a document and its vector, each of length 1. A tree
of linear classifiers on these features ranks the labels. X-Transformer (Chang
et al., KDD 2020, https://arxiv.org/abs/1905.02331) has an encoder, the matcher,
that chooses clusters of labels. Linear classifiers on TF-IDF features and the
encoder's vectors rank the labels of these clusters.

  xjax train --config=NAME --config.data.dir=DIR \
    --config.model.vectors.stage.model.encoder.folder=FOLDER \
    --workdir=runs/NAME

For X-Transformer, the folder is that of
--config.model.matcher.model.encoder.folder. FOLDER is a copy of a Hugging Face
model: for EURLEX57K and TIB-SID of all-MiniLM-L6-v2 (Wang et al. 2020,
https://arxiv.org/abs/2002.10957), else of a BERT model. For RoBERTa or XLNet,
set the encoder in a config of your own.

Configs whose names start with xc_ have the sizes of the papers. DIR is as in
xc_attention_xml. The papers average several runs; average yours with
--config=ensemble.

Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
Time: not measured.
"""

from typing import NamedTuple

from xjax.configs import variants
from xjax.configs.eurlex57k_encoders import eurlex57k_minilm
from xjax.configs.linear_models import eurlex57k_xr_linear, tib_sid_xr_linear
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.tokens_config import SubwordsConfig, TfidfConfig
from xjax.losses.loss import Reduction
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import LevelShortlist
from xjax.models.stage import StageConfig
from xjax.models.trees.joined_vectors import RunVectors, StageVectors
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig, MeanConfig
from xjax.train.batches.candidates import Candidates
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW


@variants('ranker full')
def eurlex57k_xr_transformer(system: str) -> Config:
  """Trains XR-Transformer, a label tree on TF-IDF and an encoder's vectors.

  The vectors come from a finished run of any neural model:
  --config.model.vectors.workdir=runs/eurlex57k_minilm. The variant full needs
  FOLDER instead. It trains the encoder as the paper does, as a stage of the
  run: level by level, from coarse clusters of labels to the labels, with costs
  for clusters that have several gold labels.

  The tree is as in eurlex57k_xr_linear:large. In training, the negatives of a
  classifier are documents with labels of the same cluster. The paper adds
  documents for which the tree predicts the cluster: --config.train.matched=20.
  This helps frequent labels only.

  Differs from the paper: the encoder is smaller. The classifiers of the tree
  have C = 1 for all documents, instead of 2 for documents with the label and 4
  for others (the paper's values for EURLex-4K). The classifiers from which
  label rows start in the variant full have C = 1 instead of 100.

  Data: EURLEX57K. Hardware: two CPU cores. Expected on dev: the table in
  docs/results.md. Time: 10 minutes beyond the run of the encoder.
  """
  config = eurlex57k_xr_linear('large')
  config.model.vectors = RunVectors(workdir='runs/eurlex57k_minilm')
  if system == 'full':
    stage = _minilm_stage()
    levels = LevelsConfig((16, 256), ClusterTree(arity=16, max_leaf=17))
    stage.model.shortlist = LevelShortlist(
      levels, candidates=Candidates.UNION, counted=True, bootstrap=True
    )
    train = stage.train
    train.learning_rate = 2e-4  # more would forget the bootstrapped rows
    train.rates = ()
    train.steps, train.checkpoint_every, train.judge_every = 1200, 600, 600
    config.model.vectors = StageVectors(stage=stage)
  return config


def eurlex57k_x_transformer() -> Config:
  """Trains X-Transformer with MiniLM on EURLEX57K.

  The encoder starts from the finished run of eurlex57k_minilm, with
  --config.model.matcher.train.init_from=runs/eurlex57k_minilm. It can also
  start from the weights in FOLDER: set --config.model.matcher.train.steps=2400
  --config.model.matcher.train.learning_rate=1e-2.

  Data: EURLEX57K. Hardware: two CPU cores. Expected: with 300 steps from a
  half-trained encoder, the table "Two stages" in docs/results.md. Time: 40
  minutes beyond the run of eurlex57k_minilm (an estimate).
  """
  matcher = _minilm_stage()
  train = matcher.train
  train.learning_rate = 2e-3  # the encoder is trained already
  train.steps, train.checkpoint_every, train.judge_every = 800, 400, 400
  config = eurlex57k_xr_linear()
  levels = LevelsConfig((64,), ClusterTree(arity=2, max_leaf=100))
  config.model = MatchedModel(levels, matcher)
  config.train = TreeTrain(threshold=0.01, matched=10)
  return config


def _minilm_stage() -> StageConfig:
  """Returns eurlex57k_minilm as a stage, with squared hinge loss."""
  encoder = eurlex57k_minilm()
  encoder.train.loss = SquaredHingeConfig(reduction=Reduction.MEAN_LABELS)
  data = encoder.data
  return StageConfig(data.tokens, data.zones, encoder.model, encoder.train)


def tib_sid_xr_transformer() -> Config:
  """Trains XR-Transformer's ranker on TIB-SID, with a frozen encoder.

  A stage of the run computes the mean of the vectors of each document's word
  pieces. Its only step trains no weight of the encoder. The tree is as in
  tib_sid_xr_linear.

  Data: TIB-SID, as JSON lines. Hardware: two CPU cores. Expected on dev: the
  table in docs/results.md. Time: 20 minutes.
  """
  stage = StageConfig(
    tokens=SubwordsConfig(128, (32, 64, 96, 128)),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), MeanConfig(), OneVsAllConfig()
    ),
    train=NeuralTrain(
      steps=1, freeze=('encoder/*',), checkpoint_every=1, judge_every=1
    ),
  )
  config = tib_sid_xr_linear()
  config.model.vectors = StageVectors(stage=stage)
  return config


class _MatcherSizes(NamedTuple):
  clusters: int  # at most 100 labels each
  steps: int
  warmup: int
  learning_rate: float


_MATCHERS = {
  'eurlex_4k': _MatcherSizes(64, 1000, 100, 5e-5),
  'wiki10_31k': _MatcherSizes(512, 1400, 100, 5e-5),
  'amazoncat_13k': _MatcherSizes(256, 20_000, 2000, 8e-5),
  'wiki_500k': _MatcherSizes(8192, 80_000, 1000, 6e-5),
}


@variants(*_MATCHERS)
def xc_x_transformer(dataset: str) -> Config:
  """Trains X-Transformer on raw text of the Extreme Classification Repository.

  The paper has large models such as bert-large-uncased-whole-word-masking.
  Labels are clustered by the TF-IDF features of their documents. The paper
  averages 1 / rank over nine runs: three encoders, each with three clusterings.
  Choose other clusters with --config.model.levels.tree.features=...

  Differs from the paper: two of its clusterings, by the encoder's vectors and
  by label texts, are not here. A classifier of the ranker also learns from the
  ten clusters that the matcher chooses, in all variants.
  """
  sizes = _MATCHERS[dataset]
  levels = LevelsConfig((sizes.clusters,), ClusterTree(arity=2, max_leaf=100))
  train = _encoder_train(sizes.steps, sizes.learning_rate, sizes.warmup)
  train.batch_size = 256
  train.checkpoint_every = train.judge_every = sizes.steps // 10
  matcher = StageConfig(
    tokens=SubwordsConfig(128, (64, 128)), model=_encoder(0.1), train=train
  )
  return Config(
    data=XcRepoData(tokens=TfidfConfig()),
    model=MatchedModel(levels, matcher),
    train=TreeTrain(threshold=0.01, matched=10),
    eval=EvalConfig(ks=(1, 3, 5)),
  )


class _XrSizes(NamedTuple):
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
  'eurlex_4k': _XrSizes(*_EURLEX, 5, (8, 16), (4, 0.5), 75),
  'wiki10_31k': _XrSizes(*_WIKI10, 20, (16, 16), (1, 4), 100),
  'amazoncat_13k': _XrSizes(
    *_CAT, 50, (8, 16), (0.5, 0.5), 100, threshold=1e-4, eps=0.01, dropout=0.05
  ),
  'amazon_670k': _XrSizes(*_670K, 5, (32, 100), (1, 1), 75),
  'amazon_3m': _XrSizes(*_3M, 20, (32, 100), (1, 8), 50),
  'wiki_500k': _XrSizes(*_WIKI, 5000, _FAST, 128, 5, (32, 100), (1, 4), 50),
}


@variants(*_SIZES)
def xc_xr_transformer(dataset: str) -> Config:
  """Trains XR-Transformer on raw text of the Extreme Classification Repository.

  The sizes are those of the authors' parameter files. An encoder
  (bert-base-uncased) is trained level by level, from coarse clusters of labels
  down to the labels; that of the last three variants learns clusters only: at
  most 32,768 of them.

  The paper averages three runs: three encoders, or three seeds. Average yours
  with --config=ensemble --config.model.combine=SOFTMAX (wiki10_31k, amazon_3m:
  RANK; wiki_500k: SIGMOID).

  Differs from the paper: the label trees of the authors' code have other
  numbers of clusters, because here the nodes of all depths have about as many
  children. The mean of the loss is over the scored labels alone; theirs counts
  padding too, and they score at most 500 labels of a document (eurlex_4k and
  wiki10_31k: 1,000; amazoncat_13k: 10,000). The classifiers from which label
  rows start have C = 1 instead of 100. All classifiers of the ranker have the C
  of the lowest level. Their ranker weighs a document by the number of its
  labels in a cluster (not for eurlex_4k and amazon_670k).

  Hardware: a GPU.
  """
  sizes = _SIZES[dataset]
  arity, max_leaf = sizes.ranker
  c, positive_weight = sizes.costs
  labels = len(sizes.steps) > len(sizes.levels)
  return Config(
    data=XcRepoData(tokens=TfidfConfig()),
    model=TreeModel(
      ClusterTree(arity=arity, max_leaf=max_leaf),
      beam=sizes.beam,
      vectors=StageVectors(stage=_stage(sizes), labels=labels),
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


def _stage(sizes: _XrSizes) -> StageConfig:
  tree = ClusterTree(arity=sizes.arity, max_leaf=sizes.max_leaf)
  model = _encoder(sizes.dropout)
  model.shortlist = LevelShortlist(
    LevelsConfig(sizes.levels, tree),
    steps=sizes.steps[: len(sizes.levels)],
    kept=sizes.kept,
    candidates=Candidates.UNION,
    counted=True,
    bootstrap=True,
    chained=False,
  )
  train = _encoder_train(sizes.steps[-1], sizes.learning_rate, sizes.warmup)
  train.batch_size = 32
  train.checkpoint_every = train.judge_every = min(sizes.steps) // 2
  longest = sizes.max_tokens
  tokens = SubwordsConfig(longest, (longest // 2, longest))
  return StageConfig(tokens=tokens, model=model, train=train)


def _encoder(dropout: float) -> NeuralModel:
  pooling = ClsConfig(dropout=dropout, pooler=True)
  return NeuralModel(NoEmbedding(), BertConfig(), pooling, OneVsAllConfig())


def _encoder_train(
  steps: int, learning_rate: float, warmup: int
) -> NeuralTrain:
  return NeuralTrain(
    steps=steps,
    learning_rate=learning_rate,
    warmup=warmup,
    schedule=Schedule.LINEAR,
    optimizer=AdamW(weight_decay=0.0),
    loss=SquaredHingeConfig(reduction=Reduction.MEAN_LABELS),
    clip_norm=1.0,
  )
