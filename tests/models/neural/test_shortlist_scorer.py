"""Shortlists at prediction, against all scores in NumPy."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.dense_lists import dense_topk
from tests.models.neural.test_neural_scorer import L, draw, made, mesh_of
from xjax.core.ranking import Lists, Query, RankWeights
from xjax.core.types import AS_LOGITS, PAD, Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.models.neural.neural_scorer import NeuralScorer
from xjax.models.neural.proposer import ClusterMap, Combination, Proposer
from xjax.models.neural.shortlist_scorer import ShortlistScorer
from xjax.models.scorer import Scorer

B, K = 8, 6
RNG = np.random.default_rng(1)
SLICES = tuple(RNG.random((2, L)) < 0.1)
WEIGHTS = RNG.uniform(0, 3, L).astype(np.float32) * (RNG.random(L) < 0.5)
ALLOWED = [None, RNG.random(L) < 0.3, RNG.random((B, L)) < 0.3]
N_CLUSTERS = 30
# The last cluster is the largest, so all others have padded children.
PARENTS = np.minimum(np.arange(L) % (N_CLUSTERS + 5), N_CLUSTERS - 1)
PARENTS = RNG.permutation(PARENTS).astype(np.int32)
CHILDREN = Ragged.of([np.flatnonzero(PARENTS == c) for c in range(N_CLUSTERS)])
CHILDREN = CHILDREN.padded(np.arange(N_CLUSTERS), CHILDREN.lengths.max(), PAD)


# The text of a document is its row in the batch of `draw`.
DOCUMENTS = Documents([str(row) for row in range(B)])


class Table(Scorer):
  """Ranks nodes by a table of scores."""

  def __init__(self, n, kind=ScoreKind.MARGIN):
    rng = np.random.default_rng(2)
    self.scores_BN = rng.normal(size=(B, n)).astype(np.float32)
    self.n_labels, self.score_kind = n, kind

  def rank(self, documents, query):
    scores = self.scores_BN[[int(text) for text in documents]]
    weights = query.weights and query.weights.values
    filters = query.slices, query.allowed
    return Lists(*dense_topk(scores, query.k, weights, *filters))


class Reader:
  """Reads documents as rows of the batch of `draw`."""

  def batches(self, documents):
    rows = [int(text) for text in documents]
    doc_B = np.full(B, PAD, np.int32)
    doc_B[rows] = np.arange(len(rows))
    yield dataclasses.replace(draw(), doc_B=doc_B)


def logits():
  mesh = mesh_of(1, 1)
  graphdef, params = made(mesh)
  scorer = NeuralScorer(graphdef, params, mesh, L, reader=Reader())
  lists = scorer.rank(DOCUMENTS, Query(L))
  z = np.zeros((B, L), np.float32)
  np.put_along_axis(z, lists.ids_GNK[0], lists.scores_GNK[0], axis=1)
  return z


def ranked(scorer, weights=None, slices=(), allowed=None, sigmoid=AS_LOGITS):
  """Returns the lists of all documents, ids_GBK and scores_GBK."""
  weights = None if weights is None else RankWeights(weights, sigmoid)
  lists = scorer.rank(DOCUMENTS, Query(K, slices, allowed, weights))
  return lists.ids_GNK, lists.scores_GNK


def scorer_of(proposer, combination, weight=1.0, mesh=(1, 1)):
  mesh = mesh_of(*mesh)
  graphdef, params = made(mesh)
  return ShortlistScorer(
    graphdef,
    params,
    mesh,
    L,
    proposer=proposer,
    combination=combination,
    weight=weight,
    reader=Reader(),
  )


def expected(scores, weights, slices, allowed, sigmoid=AS_LOGITS):
  return zip(*dense_topk(scores, K, weights, slices, allowed, sigmoid))


@pytest.mark.parametrize('mesh', [(1, 1), (2, 4)])
@pytest.mark.parametrize('weights', [None, WEIGHTS])
@pytest.mark.parametrize('allowed', ALLOWED, ids=['all', 'L', 'BL'])
def test_all_labels_on_the_shortlist_give_the_best_of_all_sums(
  mesh, weights, allowed
):
  table = Table(L)
  scorer = scorer_of(Proposer(table, L), Combination.SUM, 0.5, mesh)
  found = ranked(scorer, weights, SLICES, allowed, (0.7, 0.1))
  scores = logits() + 0.5 * table.scores_BN
  wanted = expected(scores, weights, SLICES, allowed, (0.7, 0.1))
  for ids, best, (want_ids, want) in zip(*found, wanted, strict=True):
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(best, want, 1e-4, 1e-4)
  assert scorer.selected_by == f'shortlist={L}'
  assert scorer.score_kind is ScoreKind.MARGIN


@pytest.mark.parametrize(
  ('weights', 'mesh'), [(None, (1, 1)), (WEIGHTS, (1, 1)), (WEIGHTS, (2, 4))]
)
@pytest.mark.parametrize('allowed', ALLOWED, ids=['all', 'L', 'BL'])
def test_all_clusters_give_the_exact_product_over_the_tree(
  weights, mesh, allowed
):
  table = Table(N_CLUSTERS, ScoreKind.LOGIT)
  proposer = Proposer(table, N_CLUSTERS, ClusterMap(CHILDREN, PARENTS))
  scorer = scorer_of(proposer, Combination.PRODUCT, mesh=mesh)
  found = ranked(scorer, weights, SLICES, allowed)

  def probability(z):
    return 1 / (1 + np.exp(-z.astype(np.float64)))

  product = probability(logits()) * probability(table.scores_BN)[:, PARENTS]
  scores = np.log(product) - np.log1p(-product)
  wanted = expected(scores, weights, SLICES, allowed)
  for ids, best, (want_ids, want) in zip(*found, wanted, strict=True):
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(best, want, 1e-4, 1e-4)


def test_each_slice_has_a_shortlist_of_its_own():
  table = Table(L)
  scorer = scorer_of(Proposer(table, 4), Combination.SUM, 0.0)
  ids, scores = ranked(scorer, slices=SLICES)
  z = logits()
  for group, mask in enumerate((np.ones(L, bool), *SLICES)):
    for row in range(B):
      masked = np.where(mask, table.scores_BN[row], -np.inf)
      short = np.argsort(-masked, kind='stable')[:4]
      best = short[np.argsort(-z[row, short], kind='stable')]
      assert ids[group, row].tolist() == [*best.tolist(), PAD, PAD]
      np.testing.assert_allclose(scores[group, row, :4], z[row, best], 1e-4)
  assert scorer.score_kind is ScoreKind.LOGIT


def test_rows_that_fill_a_batch_have_empty_lists():
  scorer = scorer_of(Proposer(Table(L), 4), Combination.SUM)
  some = DOCUMENTS.part(np.array([5, 2]))
  (batch,) = Reader().batches(some)
  lists = scorer.batch_ranker(some, Query(K))(batch)
  empty = batch.doc_B == PAD
  assert (lists.ids_GNK[:, empty] == PAD).all()
  assert (lists.scores_GNK[:, empty] == -np.inf).all()
  ids, scores = ranked(scorer)
  found = scorer.rank(some, Query(K))
  np.testing.assert_array_equal(found.ids_GNK, ids[:, [5, 2]])
  np.testing.assert_array_equal(found.scores_GNK, scores[:, [5, 2]])


def test_a_product_of_margins_is_that_of_a_label_tree():
  """The scores are sums of -max(0, 1 - z)^3, as in XR-Linear."""
  table = Table(N_CLUSTERS)
  clusters = ClusterMap(CHILDREN, PARENTS)
  proposer = Proposer(table, N_CLUSTERS, clusters, hinged=True)
  mesh = mesh_of(1, 1)
  scorer = ShortlistScorer(
    *made(mesh),
    mesh,
    L,
    ScoreKind.MARGIN,
    proposer=proposer,
    combination=Combination.PRODUCT,
    reader=Reader(),
  )

  def hinge(z):
    return -(np.maximum(0, 1 - z) ** 3)

  scores = hinge(logits()) + hinge(table.scores_BN)[:, PARENTS]
  for weights in (None, WEIGHTS):
    found = ranked(scorer, weights, SLICES)
    wanted = expected(scores, weights, SLICES, None)
    for ids, best, (want_ids, want) in zip(*found, wanted, strict=True):
      np.testing.assert_array_equal(ids, want_ids)
      np.testing.assert_allclose(best, want, 1e-3, 1e-3)
  assert scorer.assigned_above == -1.0
