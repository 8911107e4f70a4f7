"""Configs that cannot work are refused, field by field; others pass."""

from collections.abc import Iterator
import dataclasses

import pytest

from tests.fixtures.kinds import KINDS
from tests.fixtures.shrink import changed
from xjax.core.errors import ConfigError
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.label_trees.clusters import Clusters, ClusterTree
from xjax.data.label_trees.label_features import LabelFeatures, RandomWalks
from xjax.data.label_trees.taxonomy import TaxonomyTree
from xjax.data.tokens_config import (
  FeatureFilesConfig,
  GivenFeaturesConfig,
  OnError,
  SubwordsConfig,
  TextVectorsConfig,
  TfidfConfig,
)
from xjax.losses.focal import FocalConfig
from xjax.models.config_check import check_config, field_fault
from xjax.models.contract import Config, Model
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.lookup.names import NamesModel, Units
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import RunShortlist, StageShortlist
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import names_proposer, tree_proposer
from xjax.models.stage import StageConfig
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.descriptor_heads import UnifiedConfig, ZeroShotConfig
from xjax.networks.heads.head import DescriptorHeadConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.label_graph import GraphLayers, Joining
from xjax.networks.pooling import MeanConfig, NoPooling
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import (
  ByOptimizer,
  FusedAdagrad,
  FusedAdam,
  FusedSGD,
)
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import (
  Adam,
  AdamW,
  EMAConfig,
  OptimizerConfig,
  SWAConfig,
)
from xjax.train.train_config import NoTrain


def listed(pooling, head, **options):
  shortlist = StageShortlist(**options)
  model = NeuralModel(pooling=pooling, head=head, shortlist=shortlist)
  return Config(model=model, train=NeuralTrain(rows=FusedAdam()))


def tfidf(**changed):
  return JsonlData(tokens=TfidfConfig(**changed))


def given(**changed):
  return XcFeaturesData(**{'tokens': GivenFeaturesConfig(), **changed})


FUSED = Config(
  model=NeuralModel(
    pooling=MeanConfig(),
    head=OneVsAllConfig(storage=Storage.FLOAT8, bottleneck=64),
  ),
  train=NeuralTrain(rows=FusedSGD(momentum=0.9)),
)
ADAPTIVE = listed(MeanConfig(), AdaptiveConfig())
ZERO_SHOT = listed(NoPooling(), ZeroShotConfig())
GRAPHIC = listed(NoPooling(), UnifiedConfig(graph=GraphLayers()))
GRAPH = GraphLayers(joining=Joining.CONCAT)
NEURAL = Config()
KIND = {kind: make(['a', 'b']) for kind, make in KINDS.items()}
MATCH, NAMES, LINEAR = KIND['exact_match'], KIND['names'], KIND['linear']
ENSEMBLE, STACK, MATCHED = KIND['ensemble'], KIND['stack'], KIND['matched']
LEVELS, JOINED = KIND['levelled'], KIND['joined']
PROTOTYPES = KIND['prototypes']
TREE = changed(KIND['tree'], 'model.tree', ClusterTree())
OF_ROWS = changed(TREE, 'data', given())
HALVED = ClusterTree(arity=12, clusters=Clusters.TWO_MEANS)
NAMED = names_proposer('a')
SCORED = dataclasses.replace(NAMED, scored=3)
OF_SUBWORDS = dataclasses.replace(tree_proposer(), tokens=SubwordsConfig())
OF_TREE = StageConfig(TfidfConfig(), (), TreeModel(), TreeTrain())
NAMED_LABELS = dataclasses.replace(
  MATCHED.model.matcher.model, head=ZeroShotConfig(), pooling=NoPooling()
)
ALIKE = BoostedTrees(feature_share=1.0, pair_share=1.0)
NO_PARTS = PrototypesModel(names=False, centroids=False)
SHORT = TextVectorsConfig(folder='x', max_tokens=2)
JOINS = UnifiedConfig(graph=GRAPH)
ASKS = ZeroShotConfig(graph=dataclasses.replace(GRAPH, queries=True))
LISTED = listed(NoPooling(), LabelAttentionConfig(), in_training=False)
LATE, RARE = SWAConfig(start=1000), SWAConfig(start=900, every=101)
STAGE = 'model.vectors.stage'
NO_METRICS = (
  *('RP@5', 'all/RP5', 'tail/RP@5', 'all/RP@05', 'all/macro-F1@k[]'),
  *('all/ILD@5', 'all/P@k', 'all/micro-F1-tuned'),
)

FAULTS = [
  # Types, and numbers that are none.
  (NEURAL, 'seed', True, 'must be int'),
  (NEURAL, 'seed', 2**32, 'from 0 to 4294967295'),
  (NEURAL, 'train.steps', 10**30, 'a finite number of at most 64 bits'),
  (NEURAL, 'eval.propensity', (float('nan'), 1.0), 'a finite number'),
  (NEURAL, 'eval.propensity', (0.5, 0.0), 'must be two numbers, A of at least'),
  (NEURAL, 'train.learning_rate', '0.1', 'must be float'),
  (NEURAL, 'train.optimizer', OptimizerConfig(), 'one of Adam, AdamW'),
  (NEURAL, 'train.optimizer.weight_decay', 0.1, 'no such field'),
  (NEURAL, 'data.tokens', None, 'must be TokensConfig'),
  (NEURAL, 'data', DataConfig(), 'one of Eurlex57kData, HtcData, '),
  (NEURAL, 'model', Model(), 'one of AutoModel, EnsembleModel, ExactMatchMode'),
  (NEURAL, 'model.head', DescriptorHeadConfig(), 'of UnifiedConfig, ZeroShotC'),
  (NEURAL, 'data.zones', 'header', 'a tuple of str'),
  (TREE, 'train.loss', 'logistic', 'Loss.SQUARED_HINGE or LOGISTIC'),
  (NEURAL, 'train.stepz', 3, 'did you mean steps'),
  (NEURAL, 'data.directory', 'x', 'no such field; did you mean dir'),
  # Data and tokens.
  (NEURAL, 'data.tokens.buckets', (64, 32, 512), 'ascending'),
  (NEURAL, 'data.tokens.buckets', (64, 128), 'max_tokens=512'),
  (NEURAL, 'data.zones', ('header', 'header'), 'a zone occurs twice'),
  (NEURAL, 'data.labels', '', 'corpus, all, or a file'),
  (NEURAL, 'eval.ks', (5, 100), 'config.eval.depth=50'),
  (NEURAL, 'data', tfidf(), 'NeuralModel(...) reads only WordsConfig(...) or '),
  (LINEAR, 'data', SyntheticData(), 'reads only TfidfConfig(...) or Given'),
  (LINEAR, 'data', tfidf(min_ngram=3), 'm=3: must be at most config.data.tok'),
  (LINEAR, 'data.tokens', GivenFeaturesConfig(), 'needs config.data=XcFeat'),
  (LINEAR, 'data', given(tokens=TfidfConfig()), 'needs config.data.tokens=Giv'),
  (
    LINEAR,
    'data',
    given(zones=('a',)),
    "s=('a',): must be (), as features have",
  ),
  (LINEAR, 'data', given(on_error=OnError.SKIP), 'ids, which would change'),
  (MATCH, 'data.tokens.by_zone', True, 'reads zones as one text'),
  (MATCH, 'data.tokens', FeatureFilesConfig(), 'Model(...) reads only Words'),
  (PROTOTYPES, 'data.tokens', SHORT, '.max_tokens=2: must be at least 3'),
  # Training.
  (MATCH, 'train', NeuralTrain(), 'does not go with'),
  (LINEAR, 'train', TreeTrain(), 'does not go with'),
  (TREE, 'train', NoTrain(), 'does not go with'),
  (NEURAL, 'train', NoTrain(), 'does not go with'),
  (NEURAL, 'train.clip_outliers', 0.5, 'must be 0 or at least 1'),
  (NEURAL, 'train.accumulate', 3, 'must divide config.train.batch_size=64'),
  (NEURAL, 'train.warmup', 2000, 'at most config.train.steps=1000'),
  *((NEURAL, 'train.best_metric', name, 'slice/metric') for name in NO_METRICS),
  (NEURAL, 'train.best_metric', 'all/RP@7', 'config.eval.ks'),
  (NEURAL, 'train.best_metric', 'all/macro-f1@5', 'metrics are macro-F'),
  (NEURAL, 'train.rates', ('encoder/*',), 'must be GLOB=FACTOR'),
  (NEURAL, 'train.rates', ('encoder/*=fast',), 'must be GLOB=FACTOR'),
  (NEURAL, 'train.rates', ('=0.1',), 'must be GLOB=FACTOR'),
  (NEURAL, 'train.rates', ('a/*=nan',), 'a factor above 0'),
  (NEURAL, 'train.average', LATE, '.start=1000: must be below'),
  (NEURAL, 'train.average', RARE, '1001, is after config.train.steps=1000'),
  # Heads and their rows.
  (NEURAL, 'model.head', JOINS, 'joining=concat: needs config.model.head=Zero'),
  (NEURAL, 'model.head', ASKS, '.queries=True: needs config.model.head.graph.'),
  (NEURAL, 'train.rows', FusedSGD(), 'needs config.model.head=OneVsAllConfig('),
  (FUSED, 'train.rows', ByOptimizer(), 'trains only float32 weights'),
  (FUSED, 'train.accumulate', 2, 'rows are changed once per batch'),
  (FUSED, 'train.average', EMAConfig(), 'must be NoAverage()'),
  (LISTED, 'train.rows', FusedAdam(), 'only the labels on shortlists'),
  (ZERO_SHOT, 'train.rows', FusedAdam(), 'ZeroShotConfig(...) has no rows'),
  (GRAPHIC, 'train.rows', FusedAdam(), 'must not read the parents of labels'),
  # Kinds of models.
  (NAMES, 'model.language', 'klingon', "='klingon'"),
  (PROTOTYPES, 'model', NO_PARTS, 'names or centroids must be True'),
  (PROTOTYPES, 'data', given(), 'config.model.names=True: config.data=XcFeat'),
  (TREE, 'model.tree', HALVED, 'tree.arity=12: must be a power of 2'),
  (OF_ROWS, 'model.tree.features', LabelFeatures.NAMES, 'NAMES: needs texts'),
  (ENSEMBLE, 'model.workdirs', (), 'workdirs=(): set it to'),
  (ENSEMBLE, 'model.weights', (1.0,), 'must be empty, or have a weight for ea'),
  (ENSEMBLE, 'model.weights', (1.0, 0.0), 'must be above 0'),
  (MATCHED, 'model.levels.sizes', (4, 8), '=(4, 8): must be one number'),
  (MATCHED, 'model.matcher.model', NAMED_LABELS, 'head without label names'),
  (MATCHED, 'model.matcher', OF_TREE, 'model.matcher.model=TreeModel'),
  (LEVELS, 'model.shortlist.steps', (3,), '=(3,): must have'),
  (LEVELS, 'model.shortlist.levels.sizes', (), 'must have at least one number'),
  (LEVELS, 'train.average', SWAConfig(start=3), 'below the steps of a level=3'),
  (LEVELS, 'model.shortlist', RunShortlist(), ".workdir='': set it to"),
  (JOINED, f'{STAGE}.train.accumulate', 7, f'must divide config.{STAGE}.train'),
  (JOINED, f'{STAGE}.tokens', TfidfConfig(), f'config.{STAGE}.tokens=TfidfCon'),
  (JOINED, f'{STAGE}.model', ExactMatchModel(), 'must be NeuralModel'),
  (STACK, 'model.encoder', 'minilm', 'is not used'),
  (TREE, 'data.tokens.pattern', '(', 'is no regular expression'),
  (TREE, 'data.tokens.pattern', '(a|b)', 'may have no groups'),
  (TREE, 'data.tokens.pattern', 'a*', 'matches an empty text'),
  (
    STACK,
    'model.linear.reads',
    ('names',),
    "'names' is no proposer that reads",
  ),
  (STACK, 'model.linear.c', 0.0, 'above 0'),
  (STACK, 'model.ranker', ALIKE, 'ranker.models=4: must be 1'),
  (STACK, 'model.proposers', (NAMED, NAMED), 'another proposer has this name'),
  (STACK, 'model.proposers', (names_proposer('A b'),), "[0].name='A b': "),
  (STACK, 'model.proposers', (names_proposer('fold_0_a'),), 'this name itself'),
  (STACK, 'model.proposers', (SCORED,), '[0].scored=3: must be at least'),
  (STACK, 'model.proposers', (OF_SUBWORDS,), '[0].tokens=SubwordsConfig(.'),
]


@pytest.mark.parametrize(('whole', 'path', 'value', 'says'), FAULTS)
def test_a_faulty_field_is_named(whole, path, value, says):
  with pytest.raises(ConfigError) as raised:
    check_config(changed(whole, path, value))
  message = str(raised.value)
  assert f'config.{path}' in message and says in message


RECIPE = NeuralTrain(
  schedule=Schedule.COSINE,
  rates=('encoder/layers/[0-3]/*=0.1', 'pooling/*=.5', '*/bias=2e0'),
  freeze=('embedding/*',),
  average=SWAConfig(start=990, every=10),
  loss=FocalConfig(gamma=0.0, alpha=0.25),
)
METRICS = (
  *('all/PSP@5', 'few/macro-F1@5', 'all/macro-F1@5[1-9]', 'zero/Hit@1'),
  *('all/coverage[a=0.5]@5', 'all/R-Precision', 'all/weighted-F1'),
)
SMOOTH = {'features': LabelFeatures.JOINT, 'smoothing': RandomWalks()}
TREES = [
  ClusterTree(clusters=Clusters.UNBALANCED, **SMOOTH),
  ClusterTree(arity=16, clusters=Clusters.TWO_MEANS),
  TaxonomyTree('x'),
]
PASSING = [
  (NEURAL, 'train', RECIPE),
  (NEURAL, 'train.clip_value', 5),
  *((NEURAL, 'train.clip_outliers', ratio) for ratio in (0.0, 1.0, 5.0)),
  *((NEURAL, 'train.best_metric', metric) for metric in METRICS),
  *(
    (changed(FUSED, 'train.rows', rows), 'model.head.storage', storage)
    for rows in (FusedSGD(), FusedAdagrad())
    for storage in Storage
  ),
  *((x, 'train.rows', ByOptimizer()) for x in (ADAPTIVE, ZERO_SHOT, GRAPHIC)),
  (listed(NoPooling(), LabelAttentionConfig()), 'train.rows', FusedAdam()),
  *((x, 'model.tree', tree) for x in (TREE, OF_ROWS) for tree in TREES),
  *((x, 'data', given()) for x in (LINEAR, ENSEMBLE)),
  (NAMES, 'model', NamesModel(language='german')),
  (NAMES, 'model', NamesModel(units=Units.CHARACTERS, language='klingon')),
  *((config, 'seed', 1) for config in KIND.values()),
]


@pytest.mark.parametrize(('whole', 'path', 'value'), PASSING)
def test_what_passes(whole, path, value):
  check_config(changed(whole, path, value))


def numbers(holder: object, path: str = '') -> Iterator[str]:
  for field in dataclasses.fields(holder):
    value = getattr(holder, field.name)
    if dataclasses.is_dataclass(value):
      yield from numbers(value, f'{path}{field.name}.')
    elif isinstance(value, int | float):
      yield path + field.name


@pytest.mark.parametrize('kind', KIND)
def test_every_number_has_a_range(kind):
  for path in numbers(KIND[kind]):
    with pytest.raises(ConfigError, match=f'config.{path}=-2'):
      check_config(changed(KIND[kind], path, -2))


def test_every_fault_has_its_line():
  config = Config(seed=-1, data=SyntheticData(n_train=0))
  config.train.steps = 'many'
  with pytest.raises(ConfigError) as raised:
    check_config(config)
  assert len(str(raised.value).splitlines()) == 3
  with pytest.raises(ConfigError, match='must return a Config, not dict'):
    check_config({})


@pytest.mark.parametrize(
  ('path', 'says'),
  [
    ('train.learning_rat', 'did you mean learning_rate'),
    ('trian.steps', 'config.trian: no such field; did you mean train'),
    ('train.steps.more', 'config.train.steps has no fields of its own'),
    ('eval.qqqqqq', 'the fields are batch_size, depth, ks'),
    ('train.label_weights', 'label_weights: another class can only be chosen'),
    ('mesh', 'config.mesh: set its fields (data, label, slices) one by one'),
  ],
)
def test_field_faults_are_told_their_neighbours(path, says):
  assert says in field_fault(Config(), path)


def test_known_fields_pass():
  path = 'train.optimizer.weight_decay'
  assert field_fault(changed(NEURAL, 'train.optimizer', AdamW()), path) is None
  assert 'no such field' in field_fault(
    changed(NEURAL, 'train.optimizer', Adam()), path
  )
  config = Config()
  for field in dataclasses.fields(config.train):
    parts = dataclasses.is_dataclass(getattr(config.train, field.name))
    fault = field_fault(config, f'train.{field.name}')
    assert (fault is None) != parts
