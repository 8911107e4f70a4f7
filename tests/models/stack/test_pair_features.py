"""Pairs of document and label are described by the lists of proposers."""

import dataclasses
import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from xjax.core.ranking import Lists
from xjax.core.types import PAD
from xjax.data.schema import Label, LabelSpace
from xjax.models.stack.pair_features import (
  NONE,
  LabelFacts,
  PairFeatures,
  ScoreLists,
  feature_names,
  pair_features,
)

NAN = math.nan
GROUPS = [field.name for field in dataclasses.fields(PairFeatures)]


def facts_of(parents, names=(), counts=()):
  """Facts of labels '0', '1', ... with these parents."""
  names = names or [f'name {label}' for label in range(len(parents))]
  counts = counts or range(len(parents))
  labels = [
    Label(f'{label}', name, (), tuple(map(str, above)))
    for label, (name, above) in enumerate(zip(names, parents, strict=True))
  ]
  space = LabelSpace(labels, np.array(counts, np.int32), 99, len(labels))
  return LabelFacts.of(space, len(labels))


def lists_of(lists, n_labels):
  """Takes lists[g][b] = [(label, score), ...], best first."""
  width = max(1, *(len(x) for documents in lists for x in documents))
  shape = len(lists), len(lists[0]), width
  ids, scores = np.full(shape, PAD, np.int32), np.full(shape, -np.inf)
  for g, b in np.ndindex(shape[:2]):
    for place, cell in enumerate(lists[g][b]):
      ids[g, b, place], scores[g, b, place] = cell
  return ScoreLists.of(Lists(ids, scores.astype(np.float32)), n_labels)


def table(keys, lists, facts, features, proposers):
  """Returns the features of each pair, by name of the feature."""
  values_XF = pair_features(np.array(keys), lists, facts, features)
  assert values_XF.dtype == np.float32
  names = feature_names(features, dict.fromkeys(proposers, ()))
  assert values_XF.shape == (len(keys), len(names))
  values_XF = np.where(values_XF == NONE, NAN, values_XF)
  return [dict(zip(names, row, strict=True)) for row in values_XF.tolist()]


# Label 0 is above 1 and 2; 3 is under 1 and 2; 4 is alone, and 5 is under 1.
PARENTS = [(), (0,), (0,), (1, 2), (), (1, 'unknown', 5)]
TREE = [[[(1, 4.0), (3, 2.0), (5, 1.0), (0, 0.5), (2, 0.25)], []]]
KNN = [[[(4, 9.0)], [(2, 1.0)]], [[(3, 7.0)], [(2, 1.0), (5, -1.0)]]]


def test_features_by_hand():
  facts = facts_of(PARENTS, names=['0', 'a b c', *'xyz', 'd e'])
  lists = lists_of(TREE, 6), lists_of(KNN, 6)
  (first,) = table([3], lists, facts, PairFeatures(), ('tree', 'knn'))
  assert first == pytest.approx(
    {
      'tree:score': 2,
      'tree:rank': -1,
      'tree:over best': -2,
      'tree:over fifth': 1.75,
      'tree:best': 4,
      'tree:parent': 4,
      'tree:child': NAN,
      'tree:sibling': 1,
      'knn:score': 7,
      'knn:rank': NAN,
      'knn:over best': -2,
      'knn:over fifth': NAN,
      'knn:best': 9,
      'knn:parent': NAN,
      'knn:child': NAN,
      'knn:sibling': NAN,
      'label:documents': math.log(4),
      'label:words': 1,
      'proposers': 1,
    },
    nan_ok=True,
  )


def reference(keys, lists, parents, features, proposers):
  """Looks everything up in dictionaries, pair by pair."""
  n, rows = len(parents), []
  for document, label in (divmod(key, n) for key in keys):
    row, listed = {}, 0
    for name, groups in zip(proposers, lists):
      every = groups[0][document]
      ranks = dict(reversed([(x, i) for i, (x, _) in enumerate(every)]))
      scores = {}
      for cells in groups:
        for x, score in cells[document]:
          scores.setdefault(x, score)
      own = scores.get(label, NAN)
      best = every[0][1] if every else NAN
      fifth = every[4][1] if len(every) > 4 else NAN
      above = set(parents[label])
      relatives = {
        'parent': above,
        'child': {x for x in range(n) if label in parents[x]},
        'sibling': {x for x in range(n) if above & {*parents[x]}} - {label},
      }
      listed += label in ranks
      row |= {f'{name}:score': own} if features.scores else {}
      row |= {f'{name}:rank': -ranks.get(label, NAN)} if features.ranks else {}
      if features.gaps:
        row[f'{name}:over best'] = own - best
        row[f'{name}:over fifth'] = own - fifth
        row[f'{name}:best'] = best
      for kind, labels in relatives.items() if features.relatives else ():
        known = [scores[x] for x in labels if x in scores]
        row[f'{name}:{kind}'] = max(known, default=NAN)
    row |= {'label:documents': math.log1p(label)} if features.frequency else {}
    row |= {'label:words': 2} if features.names else {}
    row |= {'proposers': listed} if features.agreement else {}
    rows.append(row)
  return rows


N, B = 7, 3


@st.composite
def problems(draw):
  """Draws parents, and lists of two proposers with labels listed twice."""
  parents = [
    tuple(sorted(draw(st.sets(st.integers(0, N - 1), max_size=2)) - {label}))
    for label in range(N)
  ]
  numbers = st.integers(-8, 8).map(lambda x: x / 4)
  cells = st.lists(st.tuples(st.integers(0, N - 1), numbers), max_size=6)
  best_first = cells.map(lambda x: sorted(x, key=lambda cell: -cell[1]))
  documents = st.lists(best_first, min_size=B, max_size=B)
  lists = [
    [draw(documents) for _ in range(draw(st.integers(1, 3)))] for _ in range(2)
  ]
  return parents, lists


SUBSETS = st.builds(PairFeatures, *[st.booleans()] * len(GROUPS))


@settings(deadline=None, max_examples=100)
@given(problems(), SUBSETS)
def test_features_are_those_of_a_slow_search(problem, features):
  parents, lists = problem
  packed = [lists_of(x, N) for x in lists]
  arguments = range(N * B), lists, parents, features, ('a', 'b')
  rows = table(range(N * B), packed, facts_of(parents), features, ('a', 'b'))
  for row, wanted in zip(rows, reference(*arguments), strict=True):
    assert list(row) == list(wanted)
    assert row == pytest.approx(wanted, nan_ok=True)
