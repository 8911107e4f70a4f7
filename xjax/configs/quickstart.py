r"""Trains a small model on a synthetic corpus, in a minute and offline.

The model is a small BiGRU with label-wise attention (Chalkidis et al. 2019,
Figure 1c). The corpus is generated from a seed; it has 200 labels and 2,000
training documents.

  xjax train --config=quickstart \
    --workdir=runs/quickstart

To train another system, SYSTEM, which is one of the variants below:

  xjax train --config=quickstart:SYSTEM \
    --workdir=runs/quickstart_SYSTEM

Data: none, it is generated. Hardware: two CPU cores. Expected: dev RP@5 0.87.
Time: about a minute.
"""

import dataclasses

from xjax.configs import variants
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.tokens_config import SubwordsConfig, TfidfConfig, WordsConfig
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import Reduction
from xjax.losses.sequence import SequenceLossConfig
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.contract import Config, Model
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import (
  LevelShortlist,
  RunShortlist,
  ShortlistConfig,
  StageShortlist,
)
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import (
  names_proposer,
  neighbours_proposer,
  tree_proposer,
)
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.stage import StageConfig
from xjax.models.trees.joined_vectors import StageVectors
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig, BiLSTMConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.cascade import CascadeConfig, Chain
from xjax.networks.heads.descriptor_heads import UnifiedConfig, ZeroShotConfig
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.label_levels import LabelPretraining
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.label_graph import GraphLayers
from xjax.networks.pooling import SelfAttentionConfig
from xjax.networks.views.hierarchy_views import HierarchyViews
from xjax.train.neural_train import NeuralTrain
from xjax.train.train_config import NoTrain


@variants(
  'bigru_lwan exact_match bigru_att han cnn_lwan zero_cnn_lwan '
  'zero_bigru_lwan unified graph aplc attention_xml attention_xml_levels '
  'best cascadexml hbgl hgclr lightxml radar rerank rerank_run tree '
  'x_transformer xr_transformer'
)
def get_config(system: str) -> Config:
  others = {
    'best': _best,
    'hbgl': _hbgl,
    'tree': _tree,
    'x_transformer': _x_transformer,
    'xr_transformer': _xr_transformer,
  }
  if system in others:
    return others[system]()
  tokens = _tokens()
  tokens.by_zone = system == 'han'
  train = NoTrain() if system == 'exact_match' else _train()
  if system in ('aplc', 'cascadexml', 'lightxml', 'hgclr'):
    train.loss = BCEConfig(reduction=Reduction.MEAN_LABELS)  # as in the papers
  if system == 'radar':
    train.loss = SequenceLossConfig()
  data = SyntheticData(tokens=tokens)
  return Config(data=data, model=_model(system), train=train)


def _tokens() -> WordsConfig:
  return WordsConfig(128, (64, 128), min_count=1)


def _train(steps: int = 600) -> NeuralTrain:
  return NeuralTrain(
    batch_size=32,
    steps=steps,
    learning_rate=5e-3,
    log_every=100,
    checkpoint_every=200,
    judge_every=200,
  )


def _hbgl() -> Config:
  # The tiny encoder starts from random weights, so it needs more steps than
  # other systems, and no dropout.
  head = HBGLConfig(
    ranking=Ranking.FULL, pretraining=LabelPretraining(steps=50)
  )
  encoder = BertConfig(dropout=0.0, attention_dropout=0.0)
  train = _train(steps=1000)
  train.learning_rate = 1e-2
  return Config(
    data=SyntheticData(tokens=SubwordsConfig(128, (64, 128))),
    model=NeuralModel(NoEmbedding(), encoder, head=head),
    train=train,
  )


def _xr_transformer() -> Config:
  stage = _encoder_stage()
  stage.model.shortlist = LevelShortlist(
    _levels(), steps=(100,), kept=8, counted=True, bootstrap=True
  )
  config = _tree()
  config.model.vectors = StageVectors(stage=stage)
  config.train.matched = 8
  return config


def _x_transformer() -> Config:
  config = _tree()
  config.model = MatchedModel(_levels(), _encoder_stage(), kept=8)
  config.train.matched = 8
  return config


def _encoder_stage() -> StageConfig:
  train = _train(steps=300)
  train.loss = SquaredHingeConfig()
  return StageConfig(_tokens(), model=_model('bigru_att'), train=train)


def _tree() -> Config:
  return Config(
    data=SyntheticData(tokens=TfidfConfig()),
    model=TreeModel(_clusters()),
    train=TreeTrain(threshold=0.01),
  )


def _best() -> Config:
  config = _tree()
  tree = dataclasses.replace(
    tree_proposer(), model=config.model, train=config.train
  )
  proposers = tree, neighbours_proposer(), names_proposer()
  config.model = StackModel(
    proposers, ranker=BoostedTrees(trees=100, leaves=15)
  )
  config.train = StackTrain()
  return config


def _clusters() -> ClusterTree:
  return ClusterTree(arity=16, max_leaf=16)


def _levels() -> LevelsConfig:
  return LevelsConfig((16,), _clusters())


def _model(system: str) -> Model:
  words = EmbeddingConfig(dim=64, dropout=0.1, word_dropout=0.0)
  # These vectors are never trained, so a word has the same vector in label
  # descriptors and documents. With more dimensions, labels could be memorised.
  frozen = EmbeddingConfig(32, 0.1, 0.0, init_scale=1.0, frozen=True)
  bigru = BiGRUConfig(units=64, dropout=0.1)
  cnn = CNNConfig(filters=128)
  pooling = SelfAttentionConfig()
  match system:
    case 'exact_match':
      return ExactMatchModel()
    case 'bigru_att':
      return NeuralModel(words, bigru, pooling, OneVsAllConfig())
    case 'aplc':
      return NeuralModel(words, bigru, pooling, AdaptiveConfig())
    case 'han':
      han = HANConfig(units=64, zone_units=64, dropout=0.1)
      return NeuralModel(words, han, pooling, OneVsAllConfig())
    case 'cnn_lwan':
      return NeuralModel(words, cnn)
    case 'bigru_lwan':
      return NeuralModel(words, bigru)
    case 'zero_cnn_lwan':
      return NeuralModel(frozen, cnn, head=ZeroShotConfig())
    case 'zero_bigru_lwan':
      return NeuralModel(frozen, bigru, head=ZeroShotConfig())
    case 'unified':
      words.init_scale, words.dropout = 1.0, 0.3
      bigru.dropout = 0.3
      return NeuralModel(words, bigru, head=UnifiedConfig(hidden_labels=5))
    case 'graph':
      model = _model('unified')
      model.head.graph = GraphLayers()
      return model
    case 'attention_xml':
      bilstm = BiLSTMConfig(units=64, dropout=0.1)
      return NeuralModel(words, bilstm, head=AttentionMLPConfig(mlp=(64,)))
    case 'attention_xml_levels':
      model = _model('attention_xml')
      model.shortlist = LevelShortlist(_levels(), steps=(300,), kept=8)
      return model
    case 'lightxml':
      head = CascadeConfig(levels=_levels(), kept=(8,), hidden=(0, 64))
      return NeuralModel(words, bigru, pooling, head)
    case 'cascadexml':
      levels = LevelsConfig((4, 16), ClusterTree(arity=4, max_leaf=16))
      head = CascadeConfig(levels=levels, kept=(4, 8), chain=Chain.PARENT)
      return NeuralModel(words, bigru, pooling, head)
    case 'hgclr':
      model = _model('bigru_att')
      model.views = HierarchyViews(weight=0.005, heads=8)
      return model
    case 'radar':
      return NeuralModel(words, bigru, head=RadarConfig())
    case 'rerank' | 'rerank_run':
      return NeuralModel(words, bigru, shortlist=_shortlist(system))


def _shortlist(system: str) -> ShortlistConfig:
  """Returns the labels of a tree, which is a stage or another run."""
  if system == 'rerank_run':
    return RunShortlist(size=20, workdir='runs/tree')
  tree = _tree()
  stage = StageConfig(tree.data.tokens, (), tree.model, tree.train)
  return StageShortlist(size=20, stage=stage)
