"""Plans of runs whose models are trained one after the other."""

import dataclasses

import pytest

from xjax.core.errors import ConfigError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.tokens_config import TfidfConfig, WordsConfig
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import (
  AllLabels,
  LevelShortlist,
  StageShortlist,
)
from xjax.models.stage import StageConfig
from xjax.models.trees.joined_vectors import StageVectors
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.plan.sizes import assumed_sizes, trained_models
from xjax.train.train_config import NoTrain

LEVELS = LevelShortlist(LevelsConfig((64, 512)), (3, 4), kept=10)


def neural(shortlist=None):
  return NeuralModel(
    EmbeddingConfig(dim=8),
    BiGRUConfig(units=4),
    SelfAttentionConfig(),
    OneVsAllConfig(),
    shortlist or AllLabels(),
  )


def config_of(model, train=None):
  """Returns the config of a run on texts."""
  tokens = TfidfConfig() if train else WordsConfig(max_tokens=64, buckets=(64,))
  config = Config(data=JsonlData(tokens=tokens), model=model)
  return dataclasses.replace(config, train=train) if train else config


def stage_of(shortlist=None):
  tokens = WordsConfig(max_tokens=16, buckets=(16,))
  return StageConfig(tokens, (), neural(shortlist))


def described(config):
  """Returns the folder and the number of clusters of each model."""
  return [(x.folder, x.clusters) for x in trained_models(config)]


def test_levels_are_planned_from_the_coarsest_to_the_labels():
  models = trained_models(config_of(neural(LEVELS)))
  assert [(x.folder, x.clusters) for x in models] == [
    ('stages/level/stages/level', 64),
    ('stages/level', 512),
    ('', None),
  ]
  sizes = [assumed_sizes(x.config, 10_000, 500, x.clusters) for x in models]
  assert [x.labels for x in sizes] == [64, 512, 10_000]
  assert [x.longest.listed for x in sizes] == [0, 80, 200]
  assert [x.config.train.steps for x in models[:2]] == [3, 4]
  assert 'about 200 of 10,000 labels' in models[2].title(sizes[2])


def test_stages_of_trees_are_planned():
  vectors = StageVectors(stage=stage_of(LEVELS))
  config = config_of(TreeModel(vectors=vectors), TreeTrain())
  levels = [
    ('stages/encoder/stages/level/stages/level', 64),
    ('stages/encoder/stages/level', 512),
    ('stages/encoder', None),
    ('', None),
  ]
  assert described(config) == levels
  models = trained_models(config)
  assert [x.planned for x in models] == [True, True, True, False]
  assert models[2].config.data.tokens.max_tokens == 16
  assert models[3].title().endswith('trained on CPUs and not planned')
  config.model.vectors.labels = False  # the encoder learns clusters alone
  assert described(config) == [
    ('stages/encoder/stages/level', 64),
    ('stages/encoder', 512),
    ('', None),
  ]


def test_a_matcher_and_a_ranker_are_planned():
  matched = MatchedModel(LevelsConfig((64,)), stage_of())
  assert described(config_of(matched, TreeTrain())) == [
    ('stages/matcher', 64),
    ('', None),
  ]
  vectors = StageVectors(stage=stage_of())
  tree = TreeModel(vectors=vectors)
  proposer = StageConfig(TfidfConfig(), (), tree, TreeTrain())
  reranker = config_of(neural(StageShortlist(50, stage=proposer)))
  assert described(reranker) == [
    ('stages/proposer/stages/encoder', None),
    ('stages/proposer', None),
    ('', None),
  ]
  assert assumed_sizes(reranker, 10_000, 500).longest.listed == 50


@pytest.mark.parametrize('model', [ExactMatchModel(), TreeModel()])
def test_runs_without_neural_models_cannot_be_planned(model):
  with pytest.raises(ConfigError, match='only neural models can be planned'):
    trained_models(config_of(model, NoTrain()))
