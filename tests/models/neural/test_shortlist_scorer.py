"""Shortlists at prediction, and their recalls, against NumPy."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.dense_lists import Table, dense_topk
from tests.fixtures.networks import mesh_of
from tests.models.neural.test_neural_scorer import MODEL, L, draw, scorer
from xjax.core.ranking import Lists, Query, RankWeights, mask_of
from xjax.core.types import AS_LOGITS, PAD, Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.judge.make_predictions import recalls_of
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.neural.proposer import ClusterMap, Proposer
from xjax.models.neural.shortlist_scorer import ShortlistScorer
from xjax.models.neural.shortlists import LevelShortlist, StageShortlist
from xjax.models.scorer import Scorer
from xjax.train.neural_train import NeuralTrain

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


def table_of(n, kind=ScoreKind.MARGIN):
  """A model that ranks n nodes by a table of scores."""
  return Table(np.random.default_rng(2).normal(size=(B, n)), kind)


class Reader:
  """Reads documents as rows of the batch of `draw`."""

  def batches(self, documents):
    rows = [int(text) for text in documents]
    doc_B = np.full(B, PAD, np.int32)
    doc_B[rows] = np.arange(len(rows))
    yield dataclasses.replace(draw(), doc_B=doc_B)


def logits(**train):
  ours = scorer(mesh_of(), reader=Reader(), train=NeuralTrain(**train))
  lists = ours.rank(DOCUMENTS, Query(L))
  z = np.zeros((B, L), np.float32)
  np.put_along_axis(z, lists.ids_GNK[0], lists.scores_GNK[0], axis=1)
  return z


def ranked(ours, weights=None, slices=(), allowed=None, sigmoid=AS_LOGITS):
  """Returns the lists of all documents, ids_GBK and scores_GBK."""
  weights = None if weights is None else RankWeights(weights, sigmoid)
  lists = ours.rank(DOCUMENTS, Query(K, slices, allowed, weights))
  return lists.ids_GNK, lists.scores_GNK


def summed(proposer, weight=1.0, mesh=(1, 1)):
  model = dataclasses.replace(MODEL, shortlist=StageShortlist(prior=weight))
  parts = ShortlistScorer, Reader(), (proposer,)
  return scorer(mesh_of(*mesh), *parts, model=model)


def multiplied(proposer, mesh=(1, 1), **train):
  model = dataclasses.replace(MODEL, shortlist=LevelShortlist())
  parts = ShortlistScorer, Reader(), (proposer,)
  train = NeuralTrain(**train)
  return scorer(mesh_of(*mesh), *parts, model=model, train=train)


def assert_best(
  ours, scores, weights, allowed=None, sigmoid=AS_LOGITS, tolerance=1e-4
):
  """Checks that all labels and slices have the best of these scores."""
  found = ranked(ours, weights, SLICES, allowed, sigmoid)
  wanted = zip(*dense_topk(scores, K, weights, SLICES, allowed, sigmoid))
  for ids, best, (want_ids, want) in zip(*found, wanted, strict=True):
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(best, want, tolerance, tolerance)


@pytest.mark.parametrize(
  ('mesh', 'weights', 'allowed'),
  [
    ((1, 1), None, ALLOWED[0]),
    ((2, 4), None, ALLOWED[2]),
    ((1, 1), WEIGHTS, ALLOWED[1]),
  ],
)
def test_all_labels_on_the_shortlist_give_the_best_of_all_sums(
  mesh, weights, allowed
):
  table = table_of(L)
  ours = summed(Proposer(table, L), 0.5, mesh)
  scores = logits() + 0.5 * table.scores
  assert_best(ours, scores, weights, allowed, (0.7, 0.1))
  assert ours.selected_by == f'shortlist={L}'
  assert ours.score_kind is ScoreKind.MARGIN


@pytest.mark.parametrize(
  ('weights', 'mesh', 'allowed'),
  [
    (None, (1, 1), ALLOWED[2]),
    (WEIGHTS, (1, 1), ALLOWED[0]),
    (WEIGHTS, (2, 4), ALLOWED[1]),
  ],
)
def test_all_clusters_give_the_exact_product_over_the_tree(
  weights, mesh, allowed
):
  table = table_of(N_CLUSTERS, ScoreKind.LOGIT)
  proposer = Proposer(table, N_CLUSTERS, ClusterMap(CHILDREN, PARENTS))

  def probability(z):
    return 1 / (1 + np.exp(-z.astype(np.float64)))

  product = probability(logits()) * probability(table.scores)[:, PARENTS]
  scores = np.log(product) - np.log1p(-product)
  assert_best(multiplied(proposer, mesh), scores, weights, allowed)


def test_each_slice_has_a_shortlist_of_its_own():
  table = table_of(L)
  ours = summed(Proposer(table, 4), 0.0)
  ids, scores = ranked(ours, slices=SLICES)
  z = logits()
  for group, mask in enumerate((np.ones(L, bool), *SLICES)):
    for row in range(B):
      masked = np.where(mask, table.scores[row], -np.inf)
      short = np.argsort(-masked, kind='stable')[:4]
      best = short[np.argsort(-z[row, short], kind='stable')]
      assert ids[group, row].tolist() == [*best.tolist(), PAD, PAD]
      np.testing.assert_allclose(scores[group, row, :4], z[row, best], 1e-4)
  assert ours.score_kind is ScoreKind.LOGIT


def test_a_product_of_margins_is_that_of_a_label_tree():
  """The scores are sums of -max(0, 1 - z)^3, as in XR-Linear."""
  table = table_of(N_CLUSTERS)
  clusters = ClusterMap(CHILDREN, PARENTS)
  proposer = Proposer(table, N_CLUSTERS, clusters, hinged=True)
  loss = SquaredHingeConfig()
  ours = multiplied(proposer, loss=loss)

  def hinge(z):
    return -(np.maximum(0, 1 - z) ** 3)

  scores = hinge(logits(loss=loss)) + hinge(table.scores)[:, PARENTS]
  for weights in (None, WEIGHTS):
    assert_best(ours, scores, weights, tolerance=1e-3)
  assert ours.assigned_above == -1.0


MASKS = dict(zip(('few', 'zero'), SLICES))
DRAWN = np.random.default_rng(5)
GOLD = np.array([DRAWN.choice(L, 6, replace=False) for _ in range(B)], np.int32)
GOLD[2] = PAD  # a document without gold labels
GOLD[3, 1:] = PAD
GOLD[4, 0] = L + 3  # a gold label outside the label space
LONGER = {name: np.append(mask, [True] * 5) for name, mask in MASKS.items()}


def measured(ours):
  """Ranks documents; returns the recalls after checking the lists."""
  masks = tuple(LONGER.values())
  gold = Ragged.of([row[row != PAD] for row in GOLD])
  documents = dataclasses.replace(DOCUMENTS, gold=gold)
  query = Query(K, (*masks, masks[0] | masks[1]))
  plain = ours.rank(documents, query)
  found = ours.rank(documents, dataclasses.replace(query, measured=2))
  np.testing.assert_array_equal(found.ids_GNK, plain.ids_GNK)
  np.testing.assert_array_equal(found.scores_GNK, plain.scores_GNK)
  assert plain.kept == {}
  recalls = recalls_of(found.kept, gold, LONGER)
  for name, mask in LONGER.items():
    # If only the labels of a slice are allowed, they are all labels.
    cut = ours.rank(documents, Query(K, allowed=mask, measured=0))
    inside = gold.keep(mask_of(gold.values, mask))
    assert recalls_of(cut.kept, inside, {}).get('all') == recalls.get(name)
  return recalls


def shares_of(kept_of):
  """Returns {slice: mean share}; kept_of(row, mask) are the kept labels."""
  shares = {}
  for name, mask in {'all': np.ones(L + 5, bool), **LONGER}.items():
    for row, gold in enumerate(GOLD):
      cut = [x for x in gold if x != PAD and mask[x]]
      if cut:
        share = len(set(cut) & set(kept_of(row, mask))) / len(cut)
        shares.setdefault(name, []).append(share)
  return {name: np.mean(values) for name, values in shares.items()}


def best(scores_N, inside_N, k):
  masked = np.where(inside_N, scores_N, -np.inf)
  order = np.argsort(-masked, kind='stable')[:k]
  return order[masked[order] > -np.inf]


def test_each_level_of_clusters_is_measured():
  coarse = np.int32(np.arange(N_CLUSTERS) % 6)
  children = np.int32([np.flatnonzero(coarse == c) for c in range(6)])
  top, middle = table_of(6), table_of(N_CLUSTERS)

  class Middle(Scorer):
    """Ranks the clusters inside the coarse clusters that `top` proposes."""

    n_labels, score_kind = N_CLUSTERS, middle.score_kind
    proposer = Proposer(top, 2, ClusterMap(children, coarse))

    def rank(self, documents, query):
      nodes, _ = self.proposer.nodes(documents, query)
      lists, every = [], np.ones(N_CLUSTERS, bool)
      allowed = every if query.allowed is None else query.allowed
      for mask, nodes_NK in zip([every, *query.slices], nodes):
        inside = (coarse[None, :, None] == nodes_NK[:, None]).any(2) & allowed
        asked = Query(query.k, allowed=mask & inside)
        lists.append(middle.rank(documents, asked))
      parts = zip(*((x.ids_GNK, x.scores_GNK) for x in lists))
      return Lists(*map(np.concatenate, parts))

  proposer = Proposer(Middle(), 4, ClusterMap(CHILDREN, PARENTS))
  recalls = measured(summed(proposer))

  def kept_coarse(row, mask):
    clusters = np.unique(PARENTS[mask[:L]])
    inside = np.isin(np.arange(6), coarse[clusters])
    kept = best(top.scores[row], inside, 2)
    return np.flatnonzero(np.isin(coarse[PARENTS], kept))

  def kept_fine(row, mask):
    inside = np.isin(np.arange(N_CLUSTERS), PARENTS[mask[:L]])
    above = PARENTS[kept_coarse(row, mask)]
    inside &= np.isin(np.arange(N_CLUSTERS), above)
    kept = best(middle.scores[row], inside, 4)
    return np.flatnonzero(np.isin(PARENTS, kept))

  size = 4 * CHILDREN.shape[1]
  fine, coarse_shares = shares_of(kept_fine), shares_of(kept_coarse)
  assert recalls.keys() == fine.keys() == {'all', 'few', 'zero'}
  for name, shares in recalls.items():
    assert shares == {
      f'shortlist recall@{size}': pytest.approx(fine[name]),
      'level 1 recall@4': pytest.approx(fine[name]),
      'level 0 recall@2': pytest.approx(coarse_shares[name]),
    }
