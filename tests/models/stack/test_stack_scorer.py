"""Tests that a ranker orders the labels that several models propose."""

import math

import numpy as np
import pytest

from tests.fixtures.dense_lists import Table
from tests.models.ensemble.test_ensemble_scorer import ranked
from xjax.core.types import PAD
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.schema import Label, LabelSpace
from xjax.models.stack.boosted import BoostedRanker
from xjax.models.stack.pair_features import NONE as FEATURE_NONE, PairFeatures
from xjax.models.stack.stack_pairs import StackMember, StackPairs
from xjax.models.stack.stack_scorer import RunWords, StackScorer

L, DOCUMENTS = 30, 5
NONE = -np.inf
SIMPLE = PairFeatures(gaps=False, frequency=False, names=False, relatives=False)


class Sums(BoostedRanker):
  """Adds up features, rounded to halves, so that some pairs are tied."""

  def __init__(self):
    super().__init__(None)

  def scores(self, features_XF):
    factors = 1 - 0.3 * np.arange(features_XF.shape[1])
    known = np.where(features_XF == FEATURE_NONE, -1, features_XF)
    return (np.round(2 * (known * factors).sum(axis=1)) / 2).astype(np.float32)


def stack_of(tables, depth=4, scored=7, features=SIMPLE, n_labels=L):
  labels = [Label(f'{x}', parents=(f'{x // 2}',)) for x in range(n_labels)]
  counts = np.maximum(np.arange(n_labels, dtype=np.int32) - 3, 0)
  space = LabelSpace(labels, counts, 99, n_labels)
  proposers = [
    StackMember(table, depth, scored, number != 1, f'{number}')
    for number, table in enumerate(tables)
  ]
  pairs = StackPairs.over(proposers, space, features)
  reader = RunWords(SyntheticData())
  return StackScorer(pairs, Sums(), reader, block=2)


@pytest.fixture
def tables():
  """Two models of all labels, and one that knows fewer labels."""
  rng = np.random.default_rng(0)
  tables = [rng.normal(0, 3, (DOCUMENTS, n)) for n in (L, L, 20)]
  tables[1][:, 4:] = NONE  # short lists
  tables[2][3] = NONE  # an empty list
  return list(map(Table, tables))


def best_of(scores_L, n, *masks):
  """Returns the n best labels of a table within masks, as a dictionary."""
  inside = np.all([x[: len(scores_L)] for x in masks], axis=0)
  labels = np.flatnonzero((scores_L > NONE) & inside)
  labels = sorted(labels.tolist(), key=lambda x: -scores_L[x])[:n]
  return {x: scores_L[x] for x in labels}


def reference(
  tables, document, k, weights=None, slices=(), allowed=None, depth=4, scored=7
):
  """Returns the lists of a document as [[(label, score), ...], ...]."""
  every, unseen = np.ones(L, bool), np.arange(L) <= 3
  inside = every if allowed is None else allowed
  inside = inside[document] if inside.ndim == 2 else inside
  masks = [*slices] if allowed is None else [every, *slices]
  usual, permitted, others = set(), set(), set()
  ranks, first, middle, known = [], [], [], []
  for table in tables:
    own = best_of(table.scores[document], scored, every)
    ranks.append({x: place for place, x in enumerate(own)})
    usual |= set(list(own)[:depth])
    by_name = unseen & (table is not tables[1])
    new = best_of(table.scores[document], scored, by_name)
    usual |= set(list(new)[: min(depth, 10)])
    own = own | new
    first.append(own)
    middle.append(own)
    for number, mask in enumerate(masks):
      more = best_of(table.scores[document], scored, inside, mask)
      own = own | more
      if allowed is not None and not number:
        permitted |= set(list(more)[:depth])
        middle[-1] = own
      else:
        others |= set(list(more)[: min(depth, 10)])
    known.append(own)

  def score(label):
    row, lists = [], known
    if label in usual | permitted:
      lists = first if label in usual else middle
    for own, places in zip(lists, ranks):
      row += [own.get(label, math.nan), -places.get(label, math.nan)]
    row.append(sum(label in places for places in ranks))
    row = [float(FEATURE_NONE) if math.isnan(x) else x for x in row]
    (z,) = Sums().scores(np.array([row], np.float32)).tolist()
    if weights is None:
      return z
    weight = float(weights[label])
    return (
      math.log(weight) - math.log1p(math.exp(1 - 2 * z)) if weight else NONE
    )

  scores = {x: score(x) for x in sorted(usual | permitted | others)}
  scores = {x: z for x, z in scores.items() if z > NONE}
  lists = [
    usual
    if allowed is None
    else (usual | permitted) & {*np.flatnonzero(inside)}
  ]
  lists += [{*np.flatnonzero(mask & inside)} for mask in slices]
  return [
    sorted(
      ((x, z) for x, z in scores.items() if x in part),
      key=lambda x: (-x[1], x[0]),
    )[:k]
    for part in lists
  ]


RNG = np.random.default_rng(1)
MASKS = RNG.random(L) < 0.4, np.arange(L) >= 20, np.zeros(L, bool)
FILTERS = {
  'slices': {'slices': MASKS},
  'allowed': {'allowed': RNG.random(L) < 0.4},
  'allowed by document': {'allowed': RNG.random((DOCUMENTS, L)) < 0.4},
  'weights': {'weights': RNG.integers(0, 3, L).astype(np.float32)},
}
FILTERS |= {
  'none': {},
  'all': {**FILTERS['slices'], **FILTERS['allowed'], **FILTERS['weights']},
  'some': {**FILTERS['slices'], **FILTERS['allowed by document']},
}


@pytest.mark.parametrize('k', [1, 5, 40])
@pytest.mark.parametrize('name', FILTERS)
@pytest.mark.parametrize('more', [0, 3])
def test_lists_are_those_of_a_slow_search(tables, k, name, more):
  """Filters may have more labels than the stack."""
  filters = FILTERS[name]
  longer = {
    name: tuple(np.pad(x, (0, more), constant_values=True) for x in value)
    if name == 'slices'
    else np.pad(
      value, [(0, 0)] * (value.ndim - 1) + [(0, more)], constant_values=True
    )
    for name, value in filters.items()
  }
  ids, scores = ranked(
    stack_of(tables), DOCUMENTS, k, sigmoid=(2.0, -1.0), **longer
  )
  shape = 1 + len(filters.get('slices', ())), DOCUMENTS, k
  assert ids.shape == scores.shape == shape
  assert (ids.dtype, scores.dtype) == (np.int32, np.float32)
  for document in range(DOCUMENTS):
    wanted = reference(tables, document, k, **filters)
    for list_, ids_K, scores_K in zip(
      wanted, ids[:, document], scores[:, document]
    ):
      n = len(list_)
      assert ids_K[:n].tolist() == [label for label, _ in list_]
      np.testing.assert_allclose(
        scores_K[:n], [z for _, z in list_], rtol=1e-5, atol=1e-6
      )
      assert (ids_K[n:] == PAD).all() and (scores_K[n:] == NONE).all()
