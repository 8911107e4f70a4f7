"""Runs whose labels are ranked inside the clusters that a model proposes."""

import dataclasses

import numpy as np
import pytest

from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.models.run_copies import save_run
from xjax.run.open_run import open_run

DOCUMENTS = Documents(
  ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']
)
KEPT = 4


@pytest.fixture(scope='module')
def matched(fitted):
  return fitted('matched')


def ranked(scorer, k):
  lists = scorer.rank(DOCUMENTS, Query(k))
  return lists.ids_GNK[0], lists.scores_GNK[0]


def test_labels_of_the_best_clusters_are_ranked(matched):
  predictor = open_run(matched.workdir)
  scorer = predictor.scorer
  clusters, featuriser = scorer.proposer.clusters, scorer.featuriser
  ids_BK, _ = ranked(scorer, predictor.n_labels)
  proposed, _ = ranked(scorer.stages['matcher'], KEPT)
  rows = featuriser(DOCUMENTS).toarray()
  vectors = rows[:, featuriser.featurise.n_features :]
  np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, 1e-5)
  for row, ids_K in enumerate(ids_BK):
    wanted = clusters.children[proposed[row]]
    assert set(ids_K[ids_K != PAD]) == set(wanted[wanted != PAD])
  # The matcher scores clusters, so they have no classifiers.
  (search,) = scorer._searches
  n_clusters = len(clusters.children)
  assert not search.weights.lookup(np.arange(50), np.arange(n_clusters)).any()


def test_the_evaluation_has_the_recall_of_clusters_and_labels(matched):
  size = open_run(matched.workdir).scorer.proposer.size
  recalls = matched.metrics['dev']['recalls']
  assert {'all', 'few'} <= recalls.keys()
  for name, steps in recalls.items():
    assert list(steps) == [f'shortlist recall@{size}', f'level 0 recall@{KEPT}']
    labels, clusters = steps.values()
    assert (name == 'held_out') == (labels == 0)
    assert labels == clusters <= 1


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
  ids, scores = ranked(scorer, n)
  assert (np.sort(ids, axis=1) == np.arange(n)).all()
  wanted = np.take_along_axis(expected_NL, ids, axis=1)
  np.testing.assert_allclose(scores, wanted, atol=1e-5)


def test_a_saved_model_lacks_what_only_training_reads(matched, tmp_path):
  predictor = open_run(matched.workdir)
  save_run(predictor.run, predictor.step, tmp_path / 'model')
  assert predictor.workdir.shortlists.exists()
  assert not list((tmp_path / 'model').rglob('shortlists.npz'))
