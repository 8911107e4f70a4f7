"""Recalls of the steps of a search, counted document by document."""

import dataclasses

import numpy as np
import pytest

from tests.models.neural.test_model_scorer import L, made, mesh_of
from tests.models.neural.test_shortlist_scorer import (
  CHILDREN,
  N_CLUSTERS,
  PARENTS,
  SLICES,
  B,
  Table,
  batch_of,
  draw,
  scorer_of,
)
from tests.models.staged import test_average as ensembles
from tests.models.staged.test_average import DEPTH, ensemble_of
from xjax.core.types import PAD
from xjax.models.neural.model_scorer import ModelScorer
from xjax.models.neural.shortlist_scorer import Combination
from xjax.models.staged.proposer import ClusterMap, Proposer
from xjax.models.staged.recalls import MeasuredScorer


class LabelTable(Table):
  """Ranks labels; masks may have further entries."""

  def topk(self, batch, k, weights=None, slices=(), allowed=None):
    slices = [mask[:L] for mask in slices]
    allowed = None if allowed is None else allowed[:L]
    return super().topk(batch, k, weights, slices, allowed)


K = 5
MASKS = dict(zip(('few', 'zero'), SLICES))
RNG = np.random.default_rng(5)
GOLD = np.array([RNG.choice(L, 6, replace=False) for _ in range(B)], np.int32)
GOLD[2] = PAD  # a document without gold labels
GOLD[3, 1:] = PAD
GOLD[4, 0] = L + 3  # a gold label outside the label space
LONGER = {name: np.append(mask, [True] * 5) for name, mask in MASKS.items()}


def measured(scorer, batch):
  """Ranks a batch; returns the recalls after checking the lists."""
  masks = tuple(LONGER.values())
  ours = MeasuredScorer(scorer, LONGER)
  found = ours.topk(batch, K, slices=(*masks, masks[0] | masks[1]))
  plain = scorer.topk(batch, K, slices=(*masks, masks[0] | masks[1]))
  for one, other in zip(found, plain):
    np.testing.assert_array_equal(one, other)
  assert ours.selected_by == scorer.selected_by
  for name, mask in LONGER.items():
    # If only the labels of a slice are allowed, they are all labels.
    cut = MeasuredScorer(scorer, {})
    cut.topk(batch, K, allowed=mask)
    assert cut.recalls().get('all') == ours.recalls().get(name)
  return ours.recalls()


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


def with_gold(batch, gold=GOLD):
  return dataclasses.replace(batch, positives_BP=gold)


def test_a_shortlist_of_labels_is_measured_in_each_slice():
  table = LabelTable(L)
  scorer = scorer_of(Proposer(table, 20), Combination.SUM)
  recalls = measured(scorer, with_gold(batch_of()))
  wanted = expected(lambda row, mask: best(table.scores_BN[row], mask[:L], 20))
  for name, share in wanted.items():
    assert recalls[name] == {'shortlist recall@20': pytest.approx(share)}


def test_each_level_of_clusters_is_measured():
  coarse = np.int32(np.arange(N_CLUSTERS) % 6)
  children = np.int32([np.flatnonzero(coarse == c) for c in range(6)])
  top, middle = Table(6), Table(N_CLUSTERS)

  class Middle:
    """Ranks the clusters inside the coarse clusters that `top` proposes."""

    n_labels, score_kind = N_CLUSTERS, middle.score_kind
    assigned_above, selected_by = None, 'clusters=2'
    proposer = Proposer(top, 2, ClusterMap(children, coarse))

    def topk(self, batch, k, weights=None, slices=(), allowed=None, **more):
      nodes = self.proposer.nodes(batch.proposed, B, None, slices, allowed)[0]
      lists, every = [], np.ones(N_CLUSTERS, bool)
      allowed = every if allowed is None else allowed
      for mask, nodes_BK in zip([every, *slices], nodes):
        inside = (coarse[None, :, None] == nodes_BK[:, None]).any(2) & allowed
        lists.append(middle.topk(batch, k, allowed=mask & inside))
      return tuple(np.concatenate(x) for x in zip(*lists))

  proposer = Proposer(Middle(), 4, ClusterMap(CHILDREN, PARENTS))
  scorer = scorer_of(proposer, Combination.SUM)
  inner = dataclasses.replace(draw(), proposed=(draw(),))
  batch = with_gold(dataclasses.replace(draw(), proposed=(inner,)))
  recalls = measured(scorer, batch)

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


def test_the_joined_lists_of_an_ensemble_are_measured():
  rng, n = np.random.default_rng(0), ensembles.L
  tables = [ensembles.Table(rng.normal(0, 3, (5, n))) for _ in range(3)]
  batch = ensembles.batch_for(tables, 5)
  gold = np.array([rng.choice(n, 4, replace=False) for _ in range(5)], np.int32)
  few = rng.random(n) < 0.5
  scorer = MeasuredScorer(ensemble_of(tables), {'few': few})
  scorer.topk(with_gold(batch, gold), 3, slices=(few,))
  shares = {'all': [], 'few': []}
  for name, inside in (('all', np.ones(n, bool)), ('few', few)):
    for row in range(5):
      cut = {x for x in gold[row] if inside[x]}
      lists = [best(t.scores[row], inside, DEPTH) for t in tables]
      if name == 'few':  # the lists over all labels are joined too
        every = np.ones(n, bool)
        lists += [best(t.scores[row], every, DEPTH) for t in tables]
      if cut:
        kept = cut.intersection(*[set().union(*map(set, lists))])
        shares[name].append(len(kept) / len(cut))
  assert scorer.recalls() == {
    name: {f'union recall@{3 * DEPTH}': pytest.approx(np.mean(values))}
    for name, values in shares.items()
  }


def test_a_search_over_all_labels_is_not_measured():
  mesh = mesh_of(1, 1)
  scorer = ModelScorer(*made(mesh), mesh, L)
  assert measured(scorer, with_gold(draw())) == {}
