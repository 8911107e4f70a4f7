"""Runs that are trained level by level, from clusters to labels."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from tests.fixtures.kinds import KINDS
from tests.fixtures.shortlist_runs import TEXTS
from xjax.core.types import PAD, Ragged
from xjax.data.label_trees.label_tree import TreeInputs
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.load import load_corpus
from xjax.models.neural.level_stages import level_corpus
from xjax.models.neural.proposals import fitted_rows
from xjax.run.open_run import open_run
from xjax.train.batches.candidates import TrainShortlists
from xjax.train.workdir import Workdir


@pytest.fixture(scope='module')
def levelled(fitted):
  return fitted('levelled')


def test_levels_go_from_clusters_to_labels(levelled):
  model = open_run(levelled.workdir)
  middle = open_run(levelled.workdir / 'stages' / 'level')
  top = open_run(levelled.workdir / 'stages' / 'level' / 'stages' / 'level')
  sizes = [run.space.n_trained for run in (top, middle, model)]
  assert sizes[:2] == [2, 6] and sizes[2] > 30
  assert top.scorer.selected_by == 'exact'
  assert middle.scorer.selected_by.startswith('shortlist=')
  assert model.scorer.selected_by.startswith('shortlist=')
  (first,) = middle.predict(TEXTS[:1], 1)
  assert first[0].id.startswith('level 1, cluster ')
  assert len(model.predict(TEXTS, 5)[0]) == 5


@pytest.mark.thorough
def test_first_rows_are_those_of_linear_classifiers():
  rng = np.random.default_rng(0)
  vectors = rng.normal(size=(80, 5)).astype(np.float32)
  label = (vectors[:, 0] > 0) * 2 + (vectors[:, 1] > 0.3)
  gold = Ragged.of(label[:, None])
  children = np.int32([[0, 1], [2, 3], [4, PAD]])
  parents = np.int32([0, 0, 1, 1, 2])
  nodes = np.tile(np.int32([0, 1]), (80, 1))
  lists = TrainShortlists(nodes, 2, children, parents)
  data = TreeInputs(None, gold, sparse.csr_array(vectors))
  kernel, bias = fitted_rows(data, lists)
  assert not kernel[4].any() and bias[4] == -1
  for i in range(4):
    svm = LinearSVC(C=1, tol=1e-6, max_iter=100_000)
    svm.fit(vectors, label == i)
    ours = vectors @ kernel[i] + bias[i]
    theirs = svm.decision_function(vectors)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99


def test_clusters_are_gold_where_their_labels_are(levelled):
  config = KINDS['levelled']([])
  corpus = load_corpus(config.data, config.seed)
  levels = levels_of(levelled)
  middle, costs = level_corpus(corpus, levels)
  gold = corpus.splits['train'].gold
  for row in range(len(gold)):
    expected, counts = np.unique(
      levels.parents[-1][gold[row]], return_counts=True
    )
    np.testing.assert_array_equal(middle.splits['train'].gold[row], expected)
    np.testing.assert_array_equal(costs[row], counts)
  labels = open_run(levelled.workdir / 'stages' / 'level').workdir.levels
  assert labels.exists()
  top, sums = level_corpus(middle, LabelLevels.load(labels), costs)
  total = np.add.reduceat(sums.values, sums.indptr[:-1][sums.lengths > 0])
  assert total.tolist() == gold.lengths[gold.lengths > 0].tolist()
  assert len(top.label_space) == 2


def levels_of(result):
  return LabelLevels.load(Workdir.at(result.workdir).levels)
