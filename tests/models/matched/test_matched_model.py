"""Runs whose labels are ranked inside the clusters that a model proposes."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.fixtures.kills import assert_same_dev, kill, kill_training
from tests.fixtures.shortlist_runs import assert_warm_compiles_nothing
from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.core.ranking import Query, RankWeights
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.models.config_check import check_config
from xjax.models.config_json import from_json, to_json
from xjax.models.contract import Config
from xjax.models.copies import save_run
from xjax.models.linear.part_files import PartFiles
from xjax.models.matched import matched_model as matched_runs
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.trees.tree_model import TreeTrain
from xjax.networks.heads.zero_shot import ZeroShotConfig
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


def test_labels_of_the_best_clusters_are_ranked_by_their_classifiers(matched):
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
  weights = scorer.feature_weights(np.arange(rows.shape[1]), ids_BK[0])
  bias = scorer._search.weights.bias[scorer._search._nodes[0][ids_BK[0]] - 1]
  real = ids_BK[0] != PAD
  own = rows[0] @ weights + bias
  _, scores = ranked(scorer, predictor.n_labels)
  np.testing.assert_allclose(scores[0, 0][real], own[real], atol=1e-5)


def test_a_warm_model_compiles_nothing_more(matched, compiled):
  assert_warm_compiles_nothing(open_run(matched.workdir), compiled)


def test_words_explain_labels_by_their_classifiers(matched):
  predictor = open_run(matched.workdir)
  (explained, _, _) = predictor.explain(TEXTS, k=2, words=3)
  words = set(TEXTS[0].lower().split())
  assert explained
  assert all(why.word.lower() in words for x in explained for why in x.why)
  assert any(x.why for x in explained)


def test_slices_weights_and_allowed_labels_filter_the_lists(matched):
  predictor = open_run(matched.workdir)
  scorer, n = predictor.scorer, predictor.n_labels
  part_L = np.arange(n) % 3 == 0
  allowed_BL = np.zeros((3, n), bool)
  allowed_BL[np.arange(3), [0, 3, 4]] = True
  ids, _ = ranked(scorer, 5, slices=(part_L,))
  inside = ids[1][ids[1] != PAD]
  assert len(inside)
  assert part_L[inside].all()
  ids, _ = ranked(scorer, 2, allowed=allowed_BL)
  assert ids[0].tolist() == [[0, PAD], [3, PAD], [4, PAD]]
  weights = RankWeights(part_L.astype(np.float32), (2.0, 0.1))
  ids, scores = ranked(scorer, 4, weights=weights)
  plain_ids, plain = ranked(scorer, 4, slices=(part_L,))
  np.testing.assert_array_equal(ids[0], plain_ids[1])
  logs = -np.logaddexp(0, -2.0 * plain[1].astype(float) - 0.1)
  real = ids[0] != PAD
  np.testing.assert_allclose(scores[0][real], logs[real], rtol=1e-5)


def test_clusters_have_no_classifiers(matched_config, tmp_path):
  """The matcher scores clusters, also if it gives no negatives."""
  model = matched_config.model
  less = dataclasses.replace(matched_config.train, matched=0)
  without = fit(
    dataclasses.replace(matched_config, train=less), tmp_path / 'without'
  )
  assert not (without.workdir / 'shortlists.npz').exists()
  search = open_run(without.workdir).scorer._search
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


KILLS = {
  'matcher': lambda patch: kill_training(patch),
  'tree': lambda patch: kill(patch, matched_runs, 'fit_tree'),
  'part 0': lambda patch: kill(patch, PartFiles, 'save', 0, after=True),
  'part 1': lambda patch: kill(patch, PartFiles, 'save', 1, after=True),
}


@pytest.mark.parametrize(
  'place',
  [
    'tree',
    *(
      pytest.param(x, marks=pytest.mark.thorough)
      for x in ('matcher', 'part 0', 'part 1')
    ),
  ],
)
def test_a_killed_run_ends_where_an_uninterrupted_run_does(
  matched, matched_config, place, tmp_path, monkeypatch
):
  """Kills the run in its first stage, or after it, and resumes the run."""
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    KILLS[place](patch)
    fit(_fresh(matched_config), tmp_path / 'run')
  result = fit(_fresh(matched_config), tmp_path / 'run')
  assert result.metrics == matched.metrics
  assert_same_dev(result, matched)
  files = [
    x / 'model' / 'labels.npz' for x in (result.workdir, matched.workdir)
  ]
  ours, theirs = (np.load(file) for file in files)
  for name in ours.files:
    np.testing.assert_array_equal(ours[name], theirs[name])


def test_with_all_clusters_labels_are_ranked_by_all_classifiers(matched):
  predictor = open_run(matched.workdir)
  scorer, n = predictor.scorer, predictor.n_labels
  scorer.proposer = dataclasses.replace(scorer.proposer, kept=8)
  weights, nodes_L = scorer._search.weights, scorer._search._nodes[0]
  rows = scorer.featuriser(DOCUMENTS).toarray()
  features = np.arange(rows.shape[1])
  expected_NL = rows @ scorer.feature_weights(features, np.arange(n))
  expected_NL += weights.bias[nodes_L[:n] - 1]
  ids, scores = (x[0] for x in ranked(scorer, n))
  assert (np.sort(ids, axis=1) == np.arange(n)).all()
  wanted = np.take_along_axis(expected_NL, ids, axis=1)
  np.testing.assert_allclose(scores, wanted, atol=1e-5)


def _fresh(config):
  return from_json(json.loads(json.dumps(to_json(config))), Config)


def test_a_saved_model_has_its_matcher(matched, tmp_path):
  predictor = open_run(matched.workdir)
  save_run(predictor.run, predictor.step, tmp_path / 'model')
  assert predictor.workdir.shortlists.exists()  # only training reads this file
  assert not list((tmp_path / 'model').rglob('shortlists.npz'))
  copy = open_run(tmp_path / 'model')
  ids, scores = ranked(predictor.scorer, 5)
  same_ids, same = ranked(copy.scorer, 5)
  np.testing.assert_array_equal(ids, same_ids)
  np.testing.assert_array_equal(scores, same)


def test_a_damaged_matcher_is_an_error(matched, tmp_path):
  shutil.copytree(matched.workdir, tmp_path / 'run')
  path = tmp_path / 'run' / 'stages' / 'matcher' / 'digests.json'
  path.write_text(path.read_text() + ' ')
  with pytest.raises(DataError, match=r'stages/matcher/digests\.json'):
    open_run(tmp_path / 'run')


def test_faults_are_found(matched_config, stage):
  model = matched_config.model
  levels = dataclasses.replace(model.levels, sizes=(4, 8))
  described = dataclasses.replace(stage.model, head=ZeroShotConfig())
  linear = dataclasses.replace(stage, model=RUNS['xr'][0], train=RUNS['xr'][1])
  for changed, message in (
    ({'levels': levels}, r'model\.levels\.sizes=\(4, 8\): must be one number'),
    (
      {'matcher': dataclasses.replace(stage, model=described)},
      r'model\.matcher\.model\.head: needs a head without label names',
    ),
    ({'matcher': linear}, r'model\.matcher\.model=TreeModel'),
  ):
    wrong = dataclasses.replace(model, **changed)
    with pytest.raises(ConfigError, match=message):
      check_config(dataclasses.replace(matched_config, model=wrong))


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
