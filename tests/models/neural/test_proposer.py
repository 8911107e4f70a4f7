"""Recalls of the steps of a search, counted document by document."""

import dataclasses

import numpy as np
import pytest

from tests.models.neural.test_neural_scorer import L, made, mesh_of
from tests.models.neural.test_shortlist_scorer import (
  CHILDREN,
  DOCUMENTS,
  N_CLUSTERS,
  PARENTS,
  SLICES,
  B,
  Reader,
  Table,
  scorer_of,
)
from xjax.core.ranking import Lists, Query, mask_of
from xjax.core.types import PAD, Ragged
from xjax.judge.predict import recalls_of
from xjax.models.neural.neural_scorer import NeuralScorer
from xjax.models.neural.proposer import ClusterMap, Combination, Proposer
from xjax.models.scorer import Scorer

K = 5
MASKS = dict(zip(('few', 'zero'), SLICES))
RNG = np.random.default_rng(5)
GOLD = np.array([RNG.choice(L, 6, replace=False) for _ in range(B)], np.int32)
GOLD[2] = PAD  # a document without gold labels
GOLD[3, 1:] = PAD
GOLD[4, 0] = L + 3  # a gold label outside the label space
LONGER = {name: np.append(mask, [True] * 5) for name, mask in MASKS.items()}


def measured(scorer):
  """Ranks documents; returns the recalls after checking the lists."""
  masks = tuple(LONGER.values())
  gold = Ragged.of([row[row != PAD] for row in GOLD])
  documents = dataclasses.replace(DOCUMENTS, gold=gold)
  query = Query(K, (*masks, masks[0] | masks[1]))
  plain = scorer.rank(documents, query)
  found = scorer.rank(documents, dataclasses.replace(query, measured=2))
  np.testing.assert_array_equal(found.ids_GNK, plain.ids_GNK)
  np.testing.assert_array_equal(found.scores_GNK, plain.scores_GNK)
  assert plain.kept == {}
  ours = recalls_of(found.kept, gold, LONGER)
  for name, mask in LONGER.items():
    # If only the labels of a slice are allowed, they are all labels.
    cut = scorer.rank(documents, Query(K, allowed=mask, measured=0))
    inside = gold.keep(mask_of(gold.values, mask))
    assert recalls_of(cut.kept, inside, {}).get('all') == ours.get(name)
  return ours


def expected(kept_of):
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


def test_a_shortlist_of_labels_is_measured_in_each_slice():
  table = Table(L)
  scorer = scorer_of(Proposer(table, 20), Combination.SUM)
  recalls = measured(scorer)
  wanted = expected(lambda row, mask: best(table.scores_BN[row], mask[:L], 20))
  for name, share in wanted.items():
    assert recalls[name] == {'shortlist recall@20': pytest.approx(share)}


def test_each_level_of_clusters_is_measured():
  coarse = np.int32(np.arange(N_CLUSTERS) % 6)
  children = np.int32([np.flatnonzero(coarse == c) for c in range(6)])
  top, middle = Table(6), Table(N_CLUSTERS)

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
  scorer = scorer_of(proposer, Combination.SUM)
  recalls = measured(scorer)

  def kept_coarse(row, mask):
    clusters = np.unique(PARENTS[mask[:L]])
    inside = np.isin(np.arange(6), coarse[clusters])
    kept = best(top.scores_BN[row], inside, 2)
    return np.flatnonzero(np.isin(coarse[PARENTS], kept))

  def kept_fine(row, mask):
    inside = np.isin(np.arange(N_CLUSTERS), PARENTS[mask[:L]])
    above = PARENTS[kept_coarse(row, mask)]
    inside &= np.isin(np.arange(N_CLUSTERS), above)
    kept = best(middle.scores_BN[row], inside, 4)
    return np.flatnonzero(np.isin(PARENTS, kept))

  size = 4 * CHILDREN.shape[1]
  fine, coarse_shares = expected(kept_fine), expected(kept_coarse)
  assert recalls.keys() == fine.keys() == {'all', 'few', 'zero'}
  for name, shares in recalls.items():
    assert shares == {
      f'shortlist recall@{size}': pytest.approx(fine[name]),
      'level 1 recall@4': pytest.approx(fine[name]),
      'level 0 recall@2': pytest.approx(coarse_shares[name]),
    }


def test_a_search_over_all_labels_is_not_measured():
  mesh = mesh_of(1, 1)
  scorer = NeuralScorer(*made(mesh), mesh, L, reader=Reader())
  assert measured(scorer) == {}
