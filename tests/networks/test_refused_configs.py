"""Configs that heads and views cannot work with are refused."""

import dataclasses
import re

import numpy as np
import pytest

from tests.fixtures.shrink import changed, shrink
from xjax.configs import quickstart
from xjax.core.errors import ConfigError
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.schema import Label, LabelSpace
from xjax.data.tokens_config import (
  FeatureFilesConfig,
  SubwordsConfig,
  WordsConfig,
)
from xjax.losses.bce import BCEConfig
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import PropensityWeights
from xjax.losses.sequence import SequenceLossConfig
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import check_hierarchy
from xjax.models.neural.shortlists import RunShortlist
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding, NoEncoder
from xjax.networks.encoders.feature_vectors import FeaturesConfig
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.encoders.xlnet import XLNetConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import (
  ClsConfig,
  MeanConfig,
  NoPooling,
  SelfAttentionConfig,
)
from xjax.networks.rows.update import FusedSGD
from xjax.networks.views.hierarchy_views import NoViews
from xjax.run.fit import fit
from xjax.train.neural_train import NeuralTrain
from xjax.train.workdir import Workdir

WORDS = SyntheticData(tokens=WordsConfig())
PIECES = SyntheticData(tokens=SubwordsConfig(max_tokens=64, buckets=(64,)))
ATTENTION = Config(data=WORDS, model=NeuralModel(head=LabelAttentionConfig()))
ADAPTIVE = Config(
  data=WORDS,
  model=NeuralModel(pooling=SelfAttentionConfig(), head=AdaptiveConfig()),
)
RADAR = Config(
  data=WORDS,
  model=NeuralModel(head=RadarConfig()),
  train=NeuralTrain(loss=SequenceLossConfig()),
)
HBGL = Config(
  data=PIECES, model=NeuralModel(NoEmbedding(), BertConfig(), head=HBGLConfig())
)
VIEWS = quickstart.get_config('hgclr')
XLNET_VIEWS = Config(
  data=PIECES,
  model=dataclasses.replace(
    VIEWS.model, embedding=NoEmbedding(), encoder=XLNetConfig()
  ),
)
ATTENDING_VIEWS = Config(
  data=VIEWS.data,
  model=dataclasses.replace(VIEWS.model, head=LabelAttentionConfig()),
)
ONE_VS_ALL = NeuralModel(pooling=SelfAttentionConfig(), head=OneVsAllConfig())
BY_ZONE = Config(
  data=SyntheticData(tokens=WordsConfig(by_zone=True)),
  model=dataclasses.replace(ONE_VS_ALL, encoder=HANConfig()),
)
FROZEN = Config(
  data=SyntheticData(tokens=FeatureFilesConfig()),
  model=NeuralModel(
    *(FeaturesConfig(), NoEncoder()), *(MeanConfig(), OneVsAllConfig())
  ),
)
ITS_HEAD = 'config.model.head='


@pytest.mark.parametrize(
  ('whole', 'path', 'value', 'says'),
  [
    (BY_ZONE, 'data.tokens.by_zone', False, 'must be True with'),
    (BY_ZONE, 'model.encoder.zone_units', 0, '=0: must be at least 1'),
    (ADAPTIVE, 'data.tokens.by_zone', True, 'and False with every other'),
    (ADAPTIVE, 'model.head', LabelAttentionConfig(), 'needs NoPooling'),
    (FROZEN, 'data.tokens', WordsConfig(), 'model.embedding=FeaturesConfig'),
    (ADAPTIVE, 'data.tokens', FeatureFilesConfig(), 'ing=EmbeddingConfig'),
    (FROZEN, 'model.embedding.dim', 0, '=0: must be at least 1'),
    (FROZEN, 'model.embedding.dropout', 1.0, '=1.0: must be from 0 to below'),
    (FROZEN, 'model.pooling', NoPooling(), 'needs a pooling'),
    (FROZEN, 'data.tokens', FeatureFilesConfig(max_tokens=2), 'buckets'),
    (ADAPTIVE, 'model.head.cutoffs', (0, 4), '=(0, 4): must ascend, from at'),
    (ADAPTIVE, 'model.head.cutoffs', (4, 4), '=(4, 4): must ascend'),
    (ADAPTIVE, 'model.head.last_width', -1, '=-1: must be at least 0'),
    (ADAPTIVE, 'model.pooling', NoPooling(), 'needs a pooling'),
    (ADAPTIVE, 'train.loss', FocalConfig(), 'AdaptiveConfig(...) needs BCECon'),
    (ADAPTIVE, 'train.label_weights', PropensityWeights(), 'needs EvenWeights'),
    (ADAPTIVE, 'train.rows', FusedSGD(), f'needs {ITS_HEAD}OneVsAllConfig'),
    (RADAR, 'model.pooling', MeanConfig(), 'needs NoPooling()'),
    (RADAR, 'model.shortlist', RunShortlist(), 'must be AllLabels()'),
    (
      RADAR,
      'train.loss',
      BCEConfig(),
      f'{ITS_HEAD}RadarConfig(...) needs SequenceLossConfig(...)',
    ),
    (
      ATTENTION,
      'train.loss',
      SequenceLossConfig(),
      f'needs {ITS_HEAD}RadarConfig(...)',
    ),
    (RADAR, 'train.label_weights', PropensityWeights(), 'needs EvenWeights()'),
    (RADAR, 'train.rows', FusedSGD(), f'needs {ITS_HEAD}OneVsAllConfig'),
    (RADAR, 'model.head.most_symbols', 0, '=0: must be at least 1'),
    (HBGL, 'model.encoder', BiGRUConfig(), 'needs BertConfig()'),
    (HBGL, 'model.encoder.joined', (1, 2), 'needs ()'),
    (HBGL, 'model.pooling', ClsConfig(), 'needs NoPooling()'),
    (HBGL, 'model.shortlist', RunShortlist(), 'must be AllLabels()'),
    (HBGL, 'train.loss', FocalConfig(), 'needs BCEConfig()'),
    (HBGL, 'data.tokens.packed', True, 'needs False'),
    (
      ATTENDING_VIEWS,
      'model.pooling',
      NoPooling(),
      'needs a config.model.pooling',
    ),
    (XLNET_VIEWS, 'data.tokens.packed', True, 'by_zone=True or packed=True'),
    (
      XLNET_VIEWS,
      'model.pooling',
      ClsConfig(),
      'needs config.model.encoder=BertConfig(...) or ',
    ),
    (VIEWS, 'data.tokens.by_zone', True, 'one row of words or pieces for each'),
    (VIEWS, 'train.rows', FusedSGD(), 'needs config.train.rows=ByOptimizer()'),
  ],
)
def test_what_does_not_suit_is_refused(whole, path, value, says):
  with pytest.raises(ConfigError) as raised:
    check_config(changed(whole, path, value))
  has_views = not isinstance(whole.model.views, NoViews)
  subject = 'model.views=HierarchyViews' if has_views else path
  line = f'config.{re.escape(subject)}.*{re.escape(says)}'
  assert re.search(line, str(raised.value))
  if has_views:
    assert 'must not read the parents of labels' not in str(raised.value)


# Only with a corpus is it known that these cutoffs are beyond the labels.
BEYOND = changed(ADAPTIVE, 'model.head.cutoffs', (4, 300))


@pytest.mark.parametrize(
  'whole', [ADAPTIVE, BEYOND, RADAR, HBGL, VIEWS, BY_ZONE, FROZEN]
)
def test_the_same_without_the_fault_passes(whole):
  check_config(whole)


@pytest.mark.parametrize(
  ('system', 'path', 'value', 'says'),
  [
    ('hgclr', 'views.heads', 7, 'must divide'),
    ('hgclr', 'views.segment', 1, 'must be at least .* path down to'),
    ('radar', 'head.heads', 7, 'must divide'),
    ('hbgl', 'head.pretraining.segment', 1, 'must be at least .* down to'),
  ],
)
def test_a_wrong_size_leaves_no_config(system, path, value, says, tmp_path):
  config = shrink(quickstart.get_config(system))
  config.train = dataclasses.replace(config.train, rates=(), layer_decay=1.0)
  config = changed(config, f'model.{path}', value)
  with pytest.raises(ConfigError, match=f'config.model.{path}={value}: {says}'):
    fit(config, tmp_path)
  workdir = Workdir.at(tmp_path)
  assert not workdir.config.exists() and not workdir.corpus.exists()


def model_of(system):
  return shrink(quickstart.get_config(system)).model


def space_of(labels, concepts=()):
  """Makes a label space; `'ab'` is a label a with the parent b."""
  labels, concepts = (
    [Label(x[0], x[0], parents=tuple(x[1:])) for x in part]
    for part in (labels, concepts)
  )
  n = len(labels)
  return LabelSpace(labels, np.ones(n, int), 5, n, concepts=concepts)


@pytest.mark.parametrize(
  ('system', 'part', 'instead'),
  [
    ('hbgl', 'head', 'another head'),
    ('radar', 'head', 'another head'),
    ('hgclr', 'views', r'NoViews\(\)'),
    ('graph', 'head.graph', r'NoGraph\(\)'),
  ],
)
def test_parents_of_concepts_are_no_parents_of_labels(system, part, instead):
  model = model_of(system)
  check_hierarchy(model, space_of(['ax', 'b'], ['x']))
  says = f'config.model.{part}=.* no label that the model scores has a parent; '
  says += f'.* set config.model.{part} to {instead}'
  with pytest.raises(ConfigError, match=says):
    check_hierarchy(model, space_of(['a', 'b'], ['x', 'yx']))


def test_only_a_graph_reads_children_that_are_concepts():
  space = space_of(['a', 'b'], ['ya'])
  check_hierarchy(model_of('graph'), space)
  with pytest.raises(ConfigError, match='no label that the model scores has a'):
    check_hierarchy(model_of('radar'), space)
