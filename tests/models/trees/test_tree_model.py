"""Configs of linear models and label trees: what is refused, what shrinks."""

import dataclasses
import json

import pytest

from xjax.core.errors import ConfigError
from xjax.data.config import GivenFeaturesConfig, TfidfConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.label_trees.clusters import Clusters, ClusterTree
from xjax.data.label_trees.complete import CompleteTree
from xjax.data.label_trees.frequency import FrequencyTree
from xjax.data.label_trees.huffman import HuffmanTree
from xjax.data.label_trees.label_features import LabelFeatures
from xjax.data.label_trees.taxonomy import TaxonomyTree
from xjax.data.label_trees.tree_config import TreeConfig
from xjax.data.label_trees.walks import RandomWalks
from xjax.models.config_check import check_config
from xjax.models.config_json import to_json
from xjax.models.contract import Config, load_config
from xjax.models.linear.batched import OnDevices
from xjax.models.linear.linear_model import LinearModel, LinearTrain
from xjax.models.linear.problem import Loss, SolverConfig
from xjax.models.shrink import shrink
from xjax.models.trees.training import Blocks
from xjax.models.trees.tree_model import TreeModel, TreeTrain
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
]


def of_trees(tree=None, data=TEXTS, **train):
  model = TreeModel(tree or ClusterTree())
  return Config(data=data, model=model, train=TreeTrain(**train))


def linear(**train):
  return Config(data=TEXTS, model=LinearModel(), train=LinearTrain(**train))


@pytest.mark.parametrize('data', [TEXTS, ROWS])
def test_what_passes(data):
  for tree in TREES:
    check_config(of_trees(tree, data))
  check_config(dataclasses.replace(linear(), data=data))


NAMES = LabelFeatures.NAMES
BY_LENGTH = LabelFeatures.PIFA_BY_LENGTH
FAULTS = [
  (of_trees(c=0.0), 'train.c=0.0: must be above 0'),
  (of_trees(eps=0.0), 'train.eps=0.0: must be above 0'),
  (of_trees(max_epochs=0), 'train.max_epochs=0: must be at least 1'),
  (of_trees(threshold=-0.1), 'train.threshold=-0.1: must be at least 0'),
  (of_trees(workers=0), 'train.workers=0: must be at least 1'),
  (of_trees(loss='logistic'), 'Loss.SQUARED_HINGE or LOGISTIC'),
  (of_trees(TreeConfig()), 'one of ClusterTree, CompleteTree, FrequencyTree'),
  (of_trees(ClusterTree(arity=1)), 'tree.arity=1: must be at least 2'),
  (of_trees(ClusterTree(max_leaf=0)), 'tree.max_leaf=0: must be at least 1'),
  (of_trees(CompleteTree(1)), 'tree.arity=1: must be at least 2'),
  (of_trees(FrequencyTree((0, 3))), 'tree.cutoffs=(0, 3): must ascend'),
  (of_trees(FrequencyTree((3, 3))), 'tree.cutoffs=(3, 3): must ascend'),
  (
    of_trees(ClusterTree(smoothing=RandomWalks(steps=0))),
    'tree.smoothing.steps=0: must be at least 1',
  ),
  (
    of_trees(ClusterTree(smoothing=RandomWalks(restart=1.0))),
    'tree.smoothing.restart=1.0: must be from 0 to below 1',
  ),
  (
    of_trees(ClusterTree(smoothing=RandomWalks(top=0))),
    'tree.smoothing.top=0: must be at least 1',
  ),
  (of_trees(HuffmanTree(1)), 'tree.arity=1: must be at least 2'),
  (
    of_trees(ClusterTree(arity=12, clusters=Clusters.TWO_MEANS)),
    'tree.arity=12: must be a power of 2',
  ),
  (of_trees(ClusterTree(features=NAMES), ROWS), 'NAMES: needs texts'),
  (
    of_trees(ClusterTree(features=BY_LENGTH, spherical=False), ROWS),
    'LENGTH: needs texts',
  ),
  (
    of_trees(ClusterTree(features=BY_LENGTH)),
    'tree.spherical=False, because the cosine ignores',
  ),
  (linear(c=-1.0), 'train.c=-1.0: must be above 0'),
  (linear(c=0.0), 'train.c=0.0: must be above 0'),
  (linear(threshold=-0.1), 'train.threshold=-0.1: must be at least 0'),
  (linear(solver=OnDevices(tolerance=0.0)), 'solver.tolerance=0.0: must be'),
  (linear(solver=OnDevices(chunk=0)), 'solver.chunk=0: must be at least 1'),
  (linear(solver=SolverConfig()), 'train.solver=SolverConfig(...): must be'),
  (linear(solver=Blocks(workers=0)), 'solver.workers=0: must be at least'),
  (
    dataclasses.replace(linear(), data=SyntheticData()),
    'LinearModel(...) reads only TfidfConfig(...) or GivenFeaturesConfig(...)',
  ),
]


@pytest.mark.parametrize(('config', 'says'), FAULTS, ids=lambda x: str(x)[:40])
def test_a_faulty_field_is_named(config, says):
  with pytest.raises(ConfigError) as raised:
    check_config(config)
  message = str(raised.value)
  assert says in message and message.startswith('config.')
  assert '\n' not in message


@pytest.mark.parametrize('model', [LinearModel(), TreeModel()])
@pytest.mark.parametrize('other', [NeuralTrain(), NoTrain(), None])
def test_models_and_trainings_that_do_not_go_together(model, other):
  swapped = TreeTrain() if isinstance(model, LinearModel) else LinearTrain()
  config = Config(data=TEXTS, model=model, train=other or swapped)
  with pytest.raises(ConfigError, match='does not go with config.model'):
    check_config(config)


def test_powers_of_2_and_texts_pass():
  halved = ClusterTree(arity=16, clusters=Clusters.TWO_MEANS)
  check_config(of_trees(halved, ROWS))
  for features in LabelFeatures:
    tree = ClusterTree(features=features, spherical=features is not BY_LENGTH)
    check_config(of_trees(tree))


@pytest.mark.parametrize('tree', TREES, ids=lambda x: type(x).__name__)
def test_what_is_saved_is_loaded(tree, tmp_path):
  config = of_trees(tree, loss=Loss.LOGISTIC)
  (tmp_path / 'config.json').write_text(json.dumps(to_json(config)))
  assert load_config(tmp_path / 'config.json') == config


def test_a_solver_of_earlier_runs_is_read(tmp_path):
  """LIBLINEAR, one label at a time; the run may be finished."""
  saved = to_json(linear())
  saved['train']['solver'] = {
    'kind': 'liblinear',
    'eps': 0.01,
    'max_iter': 1000,
    'batch_labels': 64,
    'workers': 4,
  }
  (tmp_path / 'config.json').write_text(json.dumps(saved))
  assert load_config(tmp_path / 'config.json') == linear(
    solver=Blocks(eps=0.01, workers=4)
  )


def test_shrunk_trees_are_small_and_read_no_file():
  small = shrink(of_trees(ClusterTree(clusters=Clusters.TWO_MEANS)))
  assert small.model.tree.arity == 2 and small.model.tree.max_leaf == 4
  assert small.model.tree.clusters is Clusters.TWO_MEANS
  assert shrink(of_trees(TaxonomyTree('file'))).model.tree == TaxonomyTree()
  assert isinstance(shrink(of_trees(data=ROWS)).data.tokens, TfidfConfig)
