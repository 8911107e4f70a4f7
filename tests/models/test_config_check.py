"""Configs that cannot work are refused, field by field."""

from collections.abc import Iterator
import copy
import dataclasses

import pytest

from xjax.core.errors import ConfigError
from xjax.data.config import TfidfConfig, TokensConfig
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import ClassBalancedWeights
from xjax.losses.loss import LabelWeightsConfig, LossConfig
from xjax.models.config_check import check_config, field_fault
from xjax.models.contract import Config, Model
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import StageShortlist
from xjax.networks.encoders.encoder import EncoderConfig, InputConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.head import DescriptorHeadConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.label_graph import GraphLayers, Joining
from xjax.networks.pooling import MeanConfig, NoPooling, PoolingConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import (
  ByOptimizer,
  FusedAdagrad,
  FusedAdam,
  FusedSGD,
  RowUpdateConfig,
)
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import (
  Adam,
  AdamW,
  AverageConfig,
  EMAConfig,
  OptimizerConfig,
  SWAConfig,
)
from xjax.train.train_config import TrainConfig


def broken(path: str, value: object, whole: Config | None = None) -> Config:
  config = copy.deepcopy(whole or Config())
  *holders, name = path.split('.')
  holder = config
  for part in holders:
    holder = getattr(holder, part)
  setattr(holder, name, value)
  return config


FUSED = Config(
  model=NeuralModel(
    pooling=MeanConfig(),
    head=OneVsAllConfig(storage=Storage.FLOAT8, bottleneck=64),
  ),
  train=NeuralTrain(rows=FusedSGD(momentum=0.9)),
)


def listed(pooling, head, **options):
  shortlist = StageShortlist(**options)
  model = NeuralModel(pooling=pooling, head=head, shortlist=shortlist)
  return Config(model=model, train=NeuralTrain(rows=FusedAdam()))


LISTED = listed(NoPooling(), LabelAttentionConfig())
ADAPTIVE = listed(MeanConfig(), AdaptiveConfig())
ZERO_SHOT = listed(NoPooling(), ZeroShotConfig())
GRAPHIC = listed(NoPooling(), UnifiedConfig(graph=GraphLayers()))
GRAPH = GraphLayers(joining=Joining.CONCAT)
FAULTS = [
  ('seed', 1.5, 'must be int'),
  ('seed', True, 'must be int'),
  ('seed', -1, 'from 0 to 4294967295'),
  ('seed', 2**32, 'from 0 to 4294967295'),
  ('train.steps', 10**30, 'a finite number of at most 64 bits'),
  ('model.embedding.init_scale', float('inf'), 'at least 0'),
  ('eval.propensity', (float('nan'), 1.0), 'a finite number'),
  ('eval.propensity', (0.5,), 'must be two numbers, A of at least 0'),
  ('eval.propensity', (0.5, 0.0), 'must be two numbers, A of at least 0'),
  ('train.learning_rate', '0.1', 'must be float'),
  ('train.clip_value', True, 'must be float'),
  *(
    ('train.clip_outliers', ratio, 'must be 0 or at least 1')
    for ratio in (0.5, -1.0, float('inf'))
  ),
  ('train.learning_rate', 0.0, 'above 0'),
  ('train.learning_rate', float('nan'), 'above 0'),
  ('train.learning_rate', float('inf'), 'above 0'),
  ('train.optimizer.b2', 1.0, 'below 1'),
  ('train.steps', 0, 'at least 1'),
  ('train.optimizer', 'adam', 'must be OptimizerConfig'),
  ('train.accumulate', 3, 'must divide config.train.batch_size=64'),
  ('train.warmup', 2000, 'at most config.train.steps=1000'),
  ('train.optimizer', OptimizerConfig(), 'one of Adam, AdamW'),
  ('train.optimizer.weight_decay', 0.1, 'no such field'),
  ('train.best_metric', 'RP@5', 'slice/metric'),
  ('train.best_metric', 'all/RP5', 'slice/metric'),
  ('train.best_metric', 'tail/RP@5', 'slice/metric'),
  ('train.best_metric', 'all/RP@7', 'config.eval.ks'),
  ('train.best_metric', 'all/RP@05', 'slice/metric'),
  ('train.best_metric', 'all/macro-F1@k[]', 'slice/metric'),
  ('data.tokens', None, 'must be TokensConfig'),
  ('data', DataConfig(), 'one of Eurlex57kData, HtcData, '),
  (
    'data.tokens',
    TokensConfig(),
    'one of AutoTfidfConfig, FeatureFilesConfig, GivenFeaturesConfig, Sub',
  ),
  (
    'model',
    Model(),
    'one of AutoModel, EnsembleModel, ExactMatchModel, LinearModel',
  ),
  (
    'model.embedding',
    InputConfig(),
    'one of EmbeddingConfig, FeaturesConfig, ',
  ),
  ('model.encoder', EncoderConfig(), 'one of BertConfig, BiGRUConfig, '),
  ('model.pooling', PoolingConfig(), 'one of ClsConfig, MeanConfig, '),
  ('model.head', DescriptorHeadConfig(), 'of UnifiedConfig, ZeroShotConfig'),
  ('train', TrainConfig(), 'one of AutoTrain, LinearTrain, NeuralTrain'),
  ('train.loss', LossConfig(), 'one of BCEConfig, FocalConfig, S'),
  (
    'train.rows',
    RowUpdateConfig(),
    'one of ByOptimizer, FusedAdagrad, FusedAdam, FusedSGD',
  ),
  ('train.rows', FusedSGD(), 'needs config.model.head=OneVsAllConfig(...)'),
  (
    'train.label_weights',
    LabelWeightsConfig(),
    'one of ClassBalancedWeights, Even',
  ),
  ('train.average', AverageConfig(), 'one of EMAConfig, NoAverage, SWA'),
  ('data.tokens.buckets', (), 'ascending'),
  ('data.tokens.buckets', (64, 32, 512), 'ascending'),
  ('data.tokens.buckets', (64, 128), 'max_tokens=512'),
  ('data.tokens.buckets', (64, 512.0), 'a tuple of int'),
  ('data.tokens.buckets', 512, 'a tuple of int'),
  ('data.zones', 'header', 'a tuple of str'),
  ('data.zones', ('header', 'header'), 'a zone occurs twice'),
  ('data.labels', '', 'corpus, all, or a file'),
  ('data.hold_out_labels', -1, 'at least 0'),
  ('data.n_train', 0, 'at least 1'),
  ('model.embedding.dropout', 1.0, 'below 1'),
  ('model.head.chunk', 0, 'at least 1'),
  ('eval.ks', (5, 100), 'config.eval.depth=50'),
  ('eval.calibration', 'platt', 'Method.AUTO or NONE or TEMP'),
  ('mesh.label', 0, '-1 for the rest'),
  ('train.stepz', 3, 'did you mean steps'),
  ('data.directory', 'x', 'no such field; did you mean dir'),
  *(
    ('train.best_metric', metric, 'slice/metric')
    for metric in (
      *('all/ILD@5', 'all/weighted@5', 'all/P@k', 'all/macro-F1@5[bogus]'),
      *('all/micro-F1-tuned', 'all/coverage[a=0.9]@5'),
    )
  ),
  ('train.best_metric', 'all/PSP5', 'similar metrics are '),
  ('train.best_metric', 'all/macro-f1@5', 'similar metrics are macro-F1@5'),
  ('train.best_metric', 'all/Hit@7', 'config.eval.ks'),
  *(
    ('train.rates', rates, 'is not GLOB=FACTOR')
    for rates in (('encoder/*',), ('encoder/*=fast',), ('=0.1',))
  ),
  *(
    ('train.rates', (f'a/*={factor}',), 'a factor above 0')
    for factor in ('0', 'inf', 'nan')
  ),
  ('train.rates', 'a/*=0.1', 'a tuple of str'),
  ('train.layer_decay', 0.0, 'above 0 and at most 1'),
  ('train.layer_decay', 1.1, 'above 0 and at most 1'),
  ('train.ratio', 0.5, 'at least 1'),
  ('train.ratio', 16.0, 'Schedule.SLANTED'),
  ('train.loss', FocalConfig(gamma=-1.0), '.gamma=-1.0: must be at least 0'),
  ('train.loss', FocalConfig(alpha=1.0), '.alpha=1.0: must be'),
  ('train.label_weights', ClassBalancedWeights(beta=1.0), '.beta=1.0: must be'),
  ('train.average', EMAConfig(decay=1.0), '.decay=1.0: must be'),
  ('train.average', EMAConfig(start=-1), '.start=-1: must be at least 0'),
  ('train.average', SWAConfig(start=9, every=0), '.every=0: must be at least'),
  (
    'train.average',
    SWAConfig(start=1000),
    '.start=1000: must be below config.train.steps=1000',
  ),
  (
    'train.average',
    SWAConfig(start=900, every=101),
    'mean, 1001, is after config.train.steps=1000',
  ),
  (
    'model.head',
    UnifiedConfig(graph=GRAPH),
    '.graph.joining=concat: needs config.model.head=ZeroShotConfig',
  ),
  (
    'model.head',
    ZeroShotConfig(graph=dataclasses.replace(GRAPH, queries=True)),
    '.graph.queries=True: needs config.model.head.graph.joining=ad',
  ),
  ('model.head', UnifiedConfig(graph=GraphLayers(dropout=1.0)), 'dropout=1.0'),
  ('model.head', UnifiedConfig(graph=GraphLayers(width=-1)), 'graph.width=-1'),
  ('data', JsonlData(tokens=TfidfConfig()), 'NeuralModel(...) reads only Word'),
  (
    'data',
    XcFeaturesData(),
    '.tokens=GivenFeaturesConfig(...): NeuralModel(...) reads only WordsConfig'
    '(...) or SubwordsConfig(...) or FeatureFilesConfig(...)',
  ),
]
FAULTS_OF_FUSED = [
  ('train.rows', ByOptimizer(), 'trains only float32 weights'),
  ('train.accumulate', 2, 'rows are changed once per batch'),
  ('train.average', EMAConfig(), 'must be NoAverage()'),
  ('train.rows.learning_rate', 0.0, 'above 0'),
  ('train.rows.momentum', 1.0, 'from 0 to below 1'),
  ('train.rows.weight_decay', -0.1, 'at least 0'),
  ('train.rows', FusedAdagrad(eps=0.0), 'above 0'),
  ('model.head.storage', 'float8', 'Storage.FLOAT32 or BFLOAT16 or'),
  ('model.head.bottleneck', -1, 'at least 0'),
]
FAULTS_OF_ROWS = [
  (
    listed(NoPooling(), LabelAttentionConfig(), in_training=False),
    'only the labels on shortlists',
  ),
  (ADAPTIVE, 'AdaptiveConfig(...) has no rows'),
  (ZERO_SHOT, 'ZeroShotConfig(...) has no rows'),
  (GRAPHIC, 'must not read the parents of labels'),
]


@pytest.mark.parametrize(
  ('whole', 'path', 'value', 'says'),
  [
    *((Config(), *fault) for fault in FAULTS),
    *((FUSED, *fault) for fault in FAULTS_OF_FUSED),
    *((x, 'train.rows', FusedAdam(), says) for x, says in FAULTS_OF_ROWS),
  ],
)
def test_a_faulty_field_is_named(whole, path, value, says):
  with pytest.raises(ConfigError) as raised:
    check_config(broken(path, value, whole))
  message = str(raised.value)
  assert f'config.{path}' in message
  assert says in message
  assert '\n' not in message


RECIPE = NeuralTrain(
  schedule=Schedule.SLANTED,
  ratio=16.0,
  rates=('encoder/layers/[0-3]/*=0.1', 'pooling/*=.5', '*/bias=2e0'),
  freeze=('embedding/*',),
  average=SWAConfig(start=990, every=10),
  loss=FocalConfig(gamma=0.0, alpha=0.25),
)
METRICS = (
  *('all/PSP@5', 'few/macro-F1@5', 'all/macro-F1@5[1-9]', 'zero/Hit@1'),
  *('all/coverage@5', 'all/coverage[a=0.5]@5', 'all/R-Precision'),
  *('all/entropy@5', 'frequent/PSnDCG@10', 'all/weighted-F1'),
)
PASSING = [
  ('data', SyntheticData()),
  ('data', Eurlex57kData(dir='somewhere')),
  ('train', RECIPE),
  ('train.clip_value', 5),
  ('train.clip_value', 5.0),
  *(('train.clip_outliers', ratio) for ratio in (0.0, 1.0, 5.0)),
  *(('train.optimizer', x) for x in (Adam(), AdamW(), AdamW(weight_decay=0.1))),
  *(('train.best_metric', metric) for metric in METRICS),
]


@pytest.mark.parametrize(
  ('whole', 'path', 'value'),
  [
    *((Config(), *passing) for passing in PASSING),
    *(
      (broken('train.rows', rows, FUSED), 'model.head.storage', storage)
      for rows in (FusedSGD(), FusedAdagrad())
      for storage in Storage
    ),
    *((x, 'train.rows', ByOptimizer()) for x in (ADAPTIVE, ZERO_SHOT, GRAPHIC)),
    (LISTED, 'train.rows', FusedAdam()),
  ],
)
def test_what_passes(whole, path, value):
  check_config(broken(path, value, whole))


def numbers(holder: object, path: str = '') -> Iterator[str]:
  for field in dataclasses.fields(holder):
    value = getattr(holder, field.name)
    if dataclasses.is_dataclass(value):
      yield from numbers(value, f'{path}{field.name}.')
    elif isinstance(value, int | float):
      yield path + field.name


@pytest.mark.parametrize('path', list(numbers(Config())))
def test_every_number_has_a_range(path):
  with pytest.raises(ConfigError, match=f'config.{path}=-2'):
    check_config(broken(path, -2))


def test_every_fault_has_its_line():
  config = Config(seed=-1, data=SyntheticData(n_train=0))
  config.train.steps = 'many'
  with pytest.raises(ConfigError) as raised:
    check_config(config)
  assert len(str(raised.value).splitlines()) == 3


def test_not_a_config():
  with pytest.raises(ConfigError, match='must return a Config, not dict'):
    check_config({})


@pytest.mark.parametrize(
  ('path', 'says'),
  [
    ('train.learning_rat', 'did you mean learning_rate'),
    ('trian.steps', 'config.trian: no such field; did you mean train'),
    ('train.steps.more', 'config.train.steps has no fields of its own'),
    ('eval.qqqqqq', 'the fields are batch_size, depth, ks'),
    ('data.n_trian', 'did you mean n_train'),
    (
      'train.label_weights',
      'config.train.label_weights: another class can only be chosen',
    ),
    ('mesh', 'config.mesh: set its fields (data, label) one by one'),
  ],
)
def test_field_faults_are_told_their_neighbours(path, says):
  assert says in field_fault(Config(), path)


def test_weight_decay_is_for_adamw_alone():
  path = 'train.optimizer.weight_decay'
  assert 'no such field' in field_fault(broken('train.optimizer', Adam()), path)
  assert field_fault(broken('train.optimizer', AdamW()), path) is None


def test_known_fields_pass():
  config = Config()
  for field in dataclasses.fields(config.train):
    parts = dataclasses.is_dataclass(getattr(config.train, field.name))
    fault = field_fault(config, f'train.{field.name}')
    assert (fault is None) != parts
