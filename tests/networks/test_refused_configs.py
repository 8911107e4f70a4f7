"""Configs that heads and views cannot work with are refused."""

import copy
import dataclasses
import functools
import re

import pytest

from xjax.configs import quickstart
from xjax.core.errors import ConfigError
from xjax.data.config import SubwordsConfig, WordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.losses.bce import BCEConfig
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import PropensityWeights
from xjax.losses.sequence import SequenceLossConfig
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import RunShortlist
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.xlnet import XLNetConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.pooling import (
  ClsConfig,
  MeanConfig,
  NoPooling,
  SelfAttentionConfig,
)
from xjax.networks.rows.update import FusedSGD
from xjax.networks.views.hierarchy_views import NoViews
from xjax.train.neural_train import NeuralTrain

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
ITS_HEAD = 'config.model.head='


def changed(whole, path, value):
  config = copy.deepcopy(whole)
  *holders, name = path.split('.')
  setattr(functools.reduce(getattr, holders, config), name, value)
  return config


@pytest.mark.parametrize(
  ('whole', 'path', 'value', 'says'),
  [
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
    (
      ATTENDING_VIEWS,
      'model.pooling',
      NoPooling(),
      'needs a config.model.pooling',
    ),
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


@pytest.mark.parametrize('whole', [ADAPTIVE, BEYOND, RADAR, HBGL, VIEWS])
def test_the_same_without_the_fault_passes(whole):
  check_config(whole)
