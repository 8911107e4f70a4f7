"""Runs of cascades: resumed, judged, begun elsewhere, and refused."""

import logging

import numpy as np
import pytest

from tests.fixtures.first_states import first_state, params_of
from tests.fixtures.sparse_runs import RUNS, config_of
from tests.run.small_runs import assert_a_mesh_trains_the_same, assert_resumes
from xjax.core.types import PAD
from xjax.data.config import WordsConfig
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LabelLevels, load_levels
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.judge.metrics.slices import cut_gold
from xjax.judge.predictions import Predictions
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.cascade import CascadeConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial.warm_start import warm_start
from xjax.train.neural_train import NeuralTrain
from xjax.train.workdir import Workdir

pytestmark = pytest.mark.thorough


def config_with(kept=8, steps=6, seed=0, init_from=''):
  config = config_of(*RUNS['xr'])
  config.seed = seed
  config.data.tokens = WordsConfig(max_tokens=16, buckets=(8, 16), min_count=1)
  config.model = NeuralModel(
    EmbeddingConfig(dim=8),
    BiGRUConfig(units=4),
    SelfAttentionConfig(),
    CascadeConfig(
      levels=LevelsConfig((16,), ClusterTree(arity=16, max_leaf=7)),
      kept=(kept,),
      dropout=(0.5,),
      hidden=(0, 5),
    ),
  )
  config.train = NeuralTrain(
    batch_size=50,
    steps=steps,
    checkpoint_every=2,
    judge_every=2,
    best_metric='all/RP@5',
    init_from=init_from,
  )
  return config


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The result of a run; copy its workdir before you change it."""
  return fit(config_with(), tmp_path_factory.mktemp('cascade') / 'run')


def test_resuming_is_bitwise(finished, tmp_path):
  assert_resumes(config_with(), finished, tmp_path, 4)


def test_a_mesh_trains_the_same_model(finished, devices, tmp_path):
  config = config_with()
  assert_a_mesh_trains_the_same(config, finished, devices, tmp_path, 2, 2)


def test_the_evaluation_has_the_recall_of_levels_and_labels(finished):
  model = open_run(finished.workdir)
  clusters = model.scorer.params['head']['clusters'][0]['children']
  size = 8 * clusters.shape[1]
  assert model.scorer.selected_by == f'shortlist={size}'
  recalls = finished.metrics['dev']['recalls']
  assert {'all', 'few'} <= recalls.keys()
  predictions = Predictions.load(finished.paths['dev'] / 'predictions.npz')
  for name, steps in recalls.items():
    assert list(steps) == [f'shortlist recall@{size}', 'level 0 recall@8']
    labels, clusters = steps.values()
    assert (name == 'held_out') == (labels == 0)
    assert labels == clusters <= 1
    # A list cannot have more gold labels than its shortlist.
    gold = cut_gold(predictions.gold, predictions.masks[name])
    lists = predictions.lists[name]
    hits = lists.hits(gold, len(predictions.labels)).sum(axis=1)
    assert (hits / np.maximum(gold.lengths, 1))[
      gold.lengths > 0
    ].mean() <= labels


@pytest.mark.parametrize('same', [True, False])
def test_a_head_starts_only_from_one_with_the_same_clusters(
  finished, caplog, same
):
  caplog.set_level(logging.INFO)
  config, workdir = config_with(), Workdir.at(finished.workdir)
  space, vocab = workdir.label_space(), workdir.vocabulary()
  levels = load_levels(workdir.levels)
  if not same:
    # The sizes are equal, and only a few labels are in other clusters.
    parent = levels.parents[1].copy()
    parent[:9] = np.roll(parent[:9], 1)
    levels = LabelLevels.of(
      (levels.parents[0], parent), np.ones(len(parent), bool)
    )
  _, state, before = first_state(config, space, len(vocab), levels=levels)
  state, _ = warm_start(state, str(workdir.path), space, vocab, levels)
  after = params_of(state)
  saved = read_params(workdir.checkpoints, finished.best_step)
  parent, children = after['head/parent'], after['head/clusters/0/children']
  clusters, places = np.nonzero(children != PAD)
  np.testing.assert_array_equal(parent[children[clusters, places]], clusters)
  np.testing.assert_array_equal(parent[: space.n_trained], levels.parents[1])
  for name in ('head/clusters/0/kernel', 'head/clusters/0/bias', 'head/bias'):
    expected = saved if same else before
    np.testing.assert_array_equal(after[name], expected[name])
  assert (after['embedding/table'] == saved['embedding/table']).all()
  fault = 'skipped head/kernel: belongs to other clusters of labels'
  assert (fault in caplog.text) is not same
