"""Configs of the kinds of models: what passes, is refused, and shrinks."""

import dataclasses

import pytest

from tests.fixtures.kinds import KINDS
from tests.fixtures.shortlist_runs import by_levels
from tests.fixtures.shrink import shrink
from tests.models.test_config_check import broken
from xjax.core.errors import ConfigError
from xjax.data.config import (
  FeatureFilesConfig,
  GivenFeaturesConfig,
  Norm,
  OnError,
  SubwordsConfig,
  TfidfConfig,
  WordsConfig,
)
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.label_trees.clusters import Clusters, ClusterTree
from xjax.data.label_trees.label_features import LabelFeatures
from xjax.data.label_trees.label_tree import TreeConfig
from xjax.data.label_trees.simple_trees import (
  CompleteTree,
  FrequencyTree,
  HuffmanTree,
)
from xjax.data.label_trees.taxonomy import TaxonomyTree
from xjax.data.label_trees.walks import RandomWalks
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.ensemble.ensemble_model import EnsembleModel
from xjax.models.linear.batched import OnDevices
from xjax.models.linear.linear_model import LinearModel, LinearTrain
from xjax.models.linear.problem import SolverConfig
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.lookup.names import NamesModel, Units
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import RunShortlist
from xjax.models.stack.proposers import names_proposer, tree_proposer
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.trees.training import Blocks
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.pooling import NoPooling
from xjax.train.neural_train import NeuralTrain
from xjax.train.train_config import NoTrain

TEXTS = SyntheticData(tokens=TfidfConfig())
ROWS = XcFeaturesData(tokens=GivenFeaturesConfig())
TREES = [
  ClusterTree(),
  ClusterTree(
    clusters=Clusters.UNBALANCED,
    features=LabelFeatures.JOINT,
    smoothing=RandomWalks(),
  ),
  CompleteTree(),
  FrequencyTree((3, 9)),
  HuffmanTree(),
  TaxonomyTree('x'),
  ClusterTree(arity=16, clusters=Clusters.TWO_MEANS),
]
BY_LENGTH = LabelFeatures.PIFA_BY_LENGTH


def of_trees(tree=None, data=TEXTS):
  return Config(
    data=data, model=TreeModel(tree or ClusterTree()), train=TreeTrain()
  )


MATCH = Config(model=ExactMatchModel(), train=NoTrain())
NAMES, GERMAN, CHARACTERS = (
  Config(model=model, train=NoTrain())
  for model in (
    NamesModel(),
    NamesModel(language='german'),
    NamesModel(units=Units.CHARACTERS, language='klingon'),
  )
)
LINEAR = Config(data=TEXTS, model=LinearModel(), train=LinearTrain())
NEURAL = Config(model=NeuralModel())
TREE, OF_ROWS = of_trees(), of_trees(data=ROWS)
ENSEMBLE = Config(data=TEXTS, model=EnsembleModel(('a', 'b')), train=NoTrain())
STACK = Config(
  data=TEXTS, model=StackModel((names_proposer(),)), train=StackTrain()
)
MATCHED, LEVELS = KINDS['matched']([]), by_levels()


@pytest.mark.parametrize('data', [TEXTS, ROWS])
def test_what_passes(data):
  for tree in TREES:
    check_config(of_trees(tree, data))
  for whole in (LINEAR, ENSEMBLE):
    check_config(dataclasses.replace(whole, data=data))
  for whole in (MATCH, STACK, MATCHED, LEVELS, GERMAN, CHARACTERS):
    check_config(whole)
  for features in LabelFeatures:
    tree = ClusterTree(features=features, spherical=features is not BY_LENGTH)
    check_config(of_trees(tree))


def tfidf(**changed):
  return JsonlData(tokens=TfidfConfig(**changed))


def given(**changed):
  return XcFeaturesData(**{'tokens': GivenFeaturesConfig(), **changed})


JSONL = JsonlData(tokens=GivenFeaturesConfig())
NO_L2 = given(tokens=GivenFeaturesConfig(norm='l2'))
HALVED = ClusterTree(arity=12, clusters=Clusters.TWO_MEANS)
LONG = ClusterTree(features=BY_LENGTH, spherical=False)
NAMED = names_proposer('a')
SCORED = dataclasses.replace(NAMED, scored=3)
OF_TREE = dataclasses.replace(
  MATCHED.model.matcher,
  tokens=TfidfConfig(),
  model=TreeModel(),
  train=TreeTrain(),
)
NAMED_LABELS = dataclasses.replace(
  MATCHED.model.matcher.model, head=ZeroShotConfig(), pooling=NoPooling()
)
OF_SUBWORDS = dataclasses.replace(tree_proposer(), tokens=SubwordsConfig())
FAULTS = [
  (MATCH, 'model.alt', 1, 'must be bool'),
  (MATCH, 'eval.ks', (5, 100), 'config.eval.depth=50'),
  (MATCH, 'data.tokens.by_zone', True, 'reads zones as one text'),
  (MATCH, 'data.tokens', FeatureFilesConfig(), 'Model(...) reads only Words'),
  (MATCH, 'data.tokens', TfidfConfig(), 'Model(...) reads only WordsConfig(.'),
  (MATCH, 'data', given(tokens=WordsConfig()), 'data.tokens=Given'),
  (MATCH, 'train.steps', 3, 'no such field'),
  (MATCH, 'train', NeuralTrain(), 'does not go with'),
  (NEURAL, 'train', NoTrain(), 'does not go with'),
  (NAMES, 'model.language', 'klingon', "='klingon'"),
  *(
    (LINEAR, 'train', train, 'does not go with')
    for train in (NeuralTrain(), NoTrain(), TreeTrain())
  ),
  (LINEAR, 'train.c', -1.0, 'must be above 0'),
  (LINEAR, 'train.c', 0.0, 'must be above 0'),
  (LINEAR, 'train.threshold', -0.1, 'must be at least 0'),
  (LINEAR, 'train.solver', OnDevices(tolerance=0.0), '.tolerance=0.0: must be'),
  (LINEAR, 'train.solver', OnDevices(chunk=0), '.chunk=0: must be at least 1'),
  (LINEAR, 'train.solver', SolverConfig(), 'SolverConfig(...): must be'),
  (LINEAR, 'train.solver', Blocks(workers=0), '.workers=0: must be at least'),
  (LINEAR, 'data', SyntheticData(), 'reads only TfidfConfig(...) or Given'),
  (LINEAR, 'data', tfidf(min_ngram=3), 'm=3: must be at most config.data.tok'),
  (LINEAR, 'data', tfidf(min_ngram=0), 'min_ngram=0: must be at le'),
  (LINEAR, 'data', tfidf(max_features=0), 'at least 1'),
  (LINEAR, 'data', tfidf(min_count=0), 'at least 1'),
  (LINEAR, 'data', tfidf(max_share=0.0), 'above 0 and at most 1'),
  (LINEAR, 'data', tfidf(max_share=1.1), 'above 0 and at most 1'),
  (LINEAR, 'data', tfidf(first_words=-1), 'at least 0'),
  (LINEAR, 'data.tokens', GivenFeaturesConfig(), 'needs config.data=XcFeat'),
  (LINEAR, 'data', JSONL, 'needs config.data=XcFeat'),
  (LINEAR, 'data', given(tokens=TfidfConfig()), 'needs config.data.tokens=Giv'),
  (LINEAR, 'data', given(zones=('a',)), "s=('a',): must be (), since files of"),
  (LINEAR, 'data', given(on_error=OnError.SKIP), 'ids, which would change'),
  (LINEAR, 'data', NO_L2, 'Norm.NONE or L2'),
  *(
    (TREE, 'train', train, 'does not go with')
    for train in (NeuralTrain(), NoTrain(), LinearTrain())
  ),
  (TREE, 'train.c', 0.0, 'must be above 0'),
  (TREE, 'train.eps', 0.0, 'must be above 0'),
  (TREE, 'train.max_epochs', 0, 'must be at least 1'),
  (TREE, 'train.threshold', -0.1, 'must be at least 0'),
  (TREE, 'train.workers', 0, 'must be at least 1'),
  (TREE, 'train.loss', 'logistic', 'Loss.SQUARED_HINGE or LOGISTIC'),
  (TREE, 'model.tree', TreeConfig(), 'one of ClusterTree, CompleteTree, Freq'),
  (TREE, 'model.tree.arity', 1, 'must be at least 2'),
  (TREE, 'model.tree.max_leaf', 0, 'must be at least 1'),
  (TREE, 'model.tree', CompleteTree(1), 'tree.arity=1: must be at least 2'),
  (TREE, 'model.tree', FrequencyTree((0, 3)), '.cutoffs=(0, 3): must ascend'),
  (TREE, 'model.tree', FrequencyTree((3, 3)), '.cutoffs=(3, 3): must ascend'),
  (TREE, 'model.tree.smoothing', RandomWalks(steps=0), 'steps=0: must be at l'),
  (TREE, 'model.tree.smoothing', RandomWalks(restart=1.0), 'from 0 to below 1'),
  (TREE, 'model.tree.smoothing', RandomWalks(top=0), 'top=0: must be at least'),
  (TREE, 'model.tree', HuffmanTree(1), 'tree.arity=1: must be at least 2'),
  (TREE, 'model.tree', HALVED, 'tree.arity=12: must be a power of 2'),
  (TREE, 'model.tree.features', BY_LENGTH, 'tree.spherical=False, because the'),
  (OF_ROWS, 'model.tree.features', LabelFeatures.NAMES, 'NAMES: needs texts'),
  (OF_ROWS, 'model.tree', LONG, 'LENGTH: needs texts'),
  (ENSEMBLE, 'model.workdirs', (), 'workdirs=(): set it to'),
  (ENSEMBLE, 'model.workdirs', ('a', ''), ': set it to'),
  (ENSEMBLE, 'model.weights', (1.0,), 'must be empty, or have a weight for ea'),
  (ENSEMBLE, 'model.weights', (1.0, 0.0), 'must be above 0'),
  (ENSEMBLE, 'model.depth', 0, 'at least 1'),
  (MATCHED, 'model.levels.sizes', (4, 8), '=(4, 8): must be one number'),
  (MATCHED, 'model.matcher.model', NAMED_LABELS, 'head without label names'),
  (MATCHED, 'model.matcher', OF_TREE, 'model.matcher.model=TreeModel'),
  (LEVELS, 'model.shortlist.steps', (3,), '=(3,): must have'),
  (LEVELS, 'model.shortlist', RunShortlist(), ".workdir='': set it to"),
  (STACK, 'model.proposers', (), 'must be at least one proposer'),
  (STACK, 'model.folds', 1, 'at least 2'),
  (STACK, 'model.hidden', 1.0, 'below 1'),
  (STACK, 'model.encoder', 'minilm', 'is not used'),
  (STACK, 'model.proposers', (NAMED, NAMED), 'another proposer has this name'),
  (STACK, 'model.proposers', (names_proposer('A b'),), "[0].name='A b': "),
  (STACK, 'model.proposers', (names_proposer('fold_0_a'),), 'this name itself'),
  (STACK, 'model.proposers', (SCORED,), '[0].scored=3: must be at least'),
  (
    STACK,
    'model.proposers',
    (names_proposer(language='klingon'),),
    'must be one of',
  ),
  (
    STACK,
    'model.proposers',
    (OF_SUBWORDS,),
    '[0].tokens=SubwordsConfig(...): TreeModel(...) reads only',
  ),
]


@pytest.mark.parametrize(('whole', 'path', 'value', 'says'), FAULTS)
def test_a_faulty_field_is_named(whole, path, value, says):
  with pytest.raises(ConfigError) as raised:
    check_config(broken(path, value, whole))
  message = str(raised.value)
  assert message.startswith(f'config.{path}') and says in message
  assert '\n' not in message


@pytest.mark.parametrize(
  'data',
  [
    tfidf(max_ngram=5, max_share=0.1, first_words=99),
    tfidf(min_ngram=2),
    tfidf(min_ngram=4, max_ngram=5),
    *(XcFeaturesData(tokens=GivenFeaturesConfig(norm)) for norm in Norm),
  ],
)
@pytest.mark.parametrize('whole', [LINEAR, TREE])
def test_sparse_features_pass_and_shrink(whole, data):
  config = dataclasses.replace(whole, data=data)
  check_config(config)
  small = shrink(config)
  check_config(small)
  assert isinstance(small.data, SyntheticData)
  assert isinstance(small.data.tokens, TfidfConfig)
  assert small.data.tokens.max_features <= 64
