"""Runs whose labels are ranked inside the clusters that a model proposes."""

import dataclasses
import shutil

import numpy as np
import pytest

from tests.fixtures.shortlist_runs import assert_warm_compiles_nothing
from tests.fixtures.sparse_runs import config_of
from xjax.core.errors import ConfigError
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.models.copies import save_run
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.trees.tree_model import TreeTrain
from xjax.run.fit import fit
from xjax.run.open_run import open_run

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']
DOCUMENTS = Documents(TEXTS)
KEPT = 3


@pytest.fixture(scope='session')
def matched_config(stage):
  """The config of a matcher of clusters, and of classifiers of their labels."""
  levels = LevelsConfig((8,), ClusterTree(arity=2, max_leaf=7))
  model = MatchedModel(levels, stage, kept=KEPT)
  return config_of(model, TreeTrain(threshold=0.0, matched=2))


@pytest.fixture(scope='session')
def matched(devices, matched_config, tmp_path_factory):
  """The result of fit; tests must copy its workdir before they change it."""
  with devices(1):
    return fit(matched_config, tmp_path_factory.mktemp('matched') / 'run')


def ranked(scorer, k, **query):
  lists = scorer.rank(DOCUMENTS, Query(k, **query))
  return lists.ids_GNK, lists.scores_GNK


def test_labels_of_the_best_clusters_are_ranked(matched):
  predictor = open_run(matched.workdir)
  scorer = predictor.scorer
  clusters, featuriser = scorer.proposer.clusters, scorer.featuriser
  ids_BK, _ = (x[0] for x in ranked(scorer, predictor.n_labels))
  proposed, _ = ranked(scorer.stages['matcher'], KEPT)
  rows = featuriser(DOCUMENTS).toarray()
  np.testing.assert_allclose(
    np.linalg.norm(rows[:, -featuriser.vectors.dim :], axis=1), 1, 1e-5
  )
  for row, ids_K in enumerate(ids_BK):
    wanted = clusters.children[proposed[0, row]]
    ids = ids_K[ids_K != PAD]
    assert set(ids) == set(wanted[wanted != PAD])


def test_a_warm_model_compiles_nothing_more(matched, compiled):
  assert_warm_compiles_nothing(open_run(matched.workdir), compiled)


def test_clusters_have_no_classifiers(matched_config, tmp_path):
  """The matcher scores clusters, also if it gives no negatives."""
  model = matched_config.model
  less = dataclasses.replace(matched_config.train, matched=0)
  without = fit(
    dataclasses.replace(matched_config, train=less), tmp_path / 'without'
  )
  assert not (without.workdir / 'shortlists.npz').exists()
  (search,) = open_run(without.workdir).scorer._searches
  clusters = model.levels.sizes[0]
  per_cluster = search.weights.lookup(np.arange(50), np.arange(clusters))
  assert not per_cluster.any()


def test_the_evaluation_has_the_recall_of_clusters_and_labels(matched):
  size = open_run(matched.workdir).scorer.proposer.size
  recalls = matched.metrics['dev']['recalls']
  assert {'all', 'few'} <= recalls.keys()
  for name, steps in recalls.items():
    assert list(steps) == [f'shortlist recall@{size}', f'level 0 recall@{KEPT}']
    labels, clusters = steps.values()
    assert (name == 'held_out') == (labels == 0)
    assert labels == clusters <= 1


def test_a_changed_number_of_clusters_is_judged_again(
  matched, matched_config, tmp_path
):
  shutil.copytree(matched.workdir, tmp_path / 'run')
  model = dataclasses.replace(matched_config.model, kept=8)
  result = fit(
    dataclasses.replace(matched_config, model=model), tmp_path / 'run'
  )
  assert open_run(tmp_path / 'run').scorer.selected_by == 'clusters=8'
  assert result.metrics != matched.metrics


def test_with_all_clusters_labels_are_ranked_by_all_classifiers(matched):
  predictor = open_run(matched.workdir)
  scorer, n = predictor.scorer, predictor.n_labels
  scorer.proposer = dataclasses.replace(scorer.proposer, kept=8)
  (search,) = scorer._searches
  weights, nodes_L = search.weights, search._nodes[0]
  rows = scorer.featuriser(DOCUMENTS).toarray()
  features = np.arange(rows.shape[1])
  expected_NL = rows @ scorer.feature_weights(features, np.arange(n))
  expected_NL += weights.bias[nodes_L[:n] - 1]
  ids, scores = (x[0] for x in ranked(scorer, n))
  assert (np.sort(ids, axis=1) == np.arange(n)).all()
  wanted = np.take_along_axis(expected_NL, ids, axis=1)
  np.testing.assert_allclose(scores, wanted, atol=1e-5)


def test_a_saved_model_lacks_what_only_training_reads(matched, tmp_path):
  predictor = open_run(matched.workdir)
  save_run(predictor.run, predictor.step, tmp_path / 'model')
  assert predictor.workdir.shortlists.exists()
  assert not list((tmp_path / 'model').rglob('shortlists.npz'))


def test_a_fault_of_the_matcher_is_found_before_the_first_write(
  matched_config, stage, tmp_path
):
  model = matched_config.model
  for changed, message in (
    (
      {'matcher': _with_train(stage, init_from='nowhere')},
      r'config\.model\.matcher\.train\.init_from=nowhere',
    ),
    (
      {'matcher': _with_train(stage, rates=('no_such/*=0.5',))},
      r'config\.model\.matcher\.train\.rates',
    ),
    (
      {'levels': dataclasses.replace(model.levels, sizes=(1,))},
      r'model\.levels\.sizes=\(1,\): a tree cannot be cut to at most 1',
    ),
  ):
    wrong = dataclasses.replace(model, **changed)
    with pytest.raises(ConfigError, match=message):
      fit(dataclasses.replace(matched_config, model=wrong), tmp_path / 'run')
    assert not (tmp_path / 'run' / 'config.json').exists()


def _with_train(stage, **changed):
  return dataclasses.replace(
    stage, train=dataclasses.replace(stage.train, **changed)
  )
