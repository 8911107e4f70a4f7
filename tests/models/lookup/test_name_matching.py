"""Descriptors are found word by word; what is found is selected exactly."""

import itertools
import re

from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.dense_lists import dense_topk
from xjax.core.ranking import Query, RankWeights
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.schema import Document
from xjax.data.sparse_documents import SparseDocuments
from xjax.data.text.words import split_words
from xjax.models.features import RowFeaturiser
from xjax.models.lookup.exact_match import DescriptorMatcher, ScoredLabels

PLENTY = 10_000
WEIGHTS = ScoredLabels(RowFeaturiser(3), 0.0, 1).feature_weights


def matched(names, text, max_words=PLENTY):
  """Label -> score, of names as ('a', 'b') or (('a', 'other'), ...)."""
  lists = [(name,) if isinstance(name, str) else name for name in names]
  rows = DescriptorMatcher(lists, max_words)([text])
  assert rows.shape == (1, len(names))
  assert rows.dtype == np.float32
  assert (np.diff(rows.indices) > 0).all()
  return dict(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))


@pytest.mark.parametrize(
  ('name', 'text', 'n'),
  [
    ('fish', 'Fish, fish; FISH.', 3),
    ('fish', 'fishery, shellfish and starfish', 0),
    ('animal product', 'An animal-product (animal\nproduct)', 2),
    ('animal product', 'animal: other product', 0),
    ('animal product', 'animal products', 0),
    ('a a', 'a a a a', 3),
    ("Member's rights", 'the Member’s rights', 1),
    ('ÉTAT', 'un e\u0301tat', 1),
    ('Århus (county)', 'in århus county', 1),
    ('Formula 1', 'formula 1 and formula 2', 1),
    ('fish', '', 0),
    ('fish', 'fish', 1),
  ],
)
def test_occurrences(name, text, n):
  scores = matched([name], text)
  assert list(scores) == [0] * (n > 0)
  assert [int(score) for score in scores.values()] == [n] * (n > 0)


def test_a_label_of_several_names():
  names = [('fish', 'sea animals', 'FISH'), ('meat',)]
  assert matched(names, 'fish, sea animals, fish') == pytest.approx(
    {0: 3 + 2 / 3}
  )
  assert matched(names, 'fish') == {0: 1.5}


def test_names_without_letters_are_never_found():
  names = ['17', '', ' - ', 'fish', '2003 87']
  assert list(matched(names, '17 - 2003/87, of fish')) == [3]


def test_no_further_than_the_first_words():
  assert list(matched(['b c', 'c'], 'a b c', 2)) == []
  assert list(matched(['b c', 'c'], 'a b c', 3)) == [0, 1]


WORDS = st.lists(st.sampled_from(['a', 'ab', 'b', 'B,', 'a1']), max_size=12)


@settings(deadline=None, max_examples=80)
@given(st.lists(WORDS, min_size=1, max_size=6), WORDS)
def test_as_counted_by_hand(names, text):
  """Counting word lists that are equal, place by place."""
  names = [('x', ' '.join(name)) for name in names]
  expected = {}
  words = re.findall('[a-z0-9]+', ' '.join(text).lower())
  for label, (_, name) in enumerate(names):
    wanted = re.findall('[a-z0-9]+', name.lower())
    places = range(len(words) - len(wanted) + 1)
    n = sum(words[at : at + len(wanted)] == wanted for at in places)
    if wanted and n:
      expected[label] = n + len(wanted) / (len(wanted) + 1)
  assert matched(names, ' '.join(text)) == pytest.approx(expected)


def test_the_words_are_those_of_other_models():
  """Whatever is one word there is one here: a text finds its own words."""
  text = 'Naïve co-operation, हिन्दी कानून, ΑΣ x² İi straße'
  for word in split_words(text):
    assert matched([word], text), word


N, L = 5, 9
RNG = np.random.default_rng(0)


def some_scores():
  """Rows of 0 to 7 scores, some of them equal, and the dense scores."""
  rows = [np.sort(RNG.permutation(L)[:n]) for n in (7, 0, 4, 1, 7)]
  dense = np.full((N, L), -np.inf, np.float32)
  for row, labels in enumerate(rows):
    dense[row, labels] = RNG.integers(1, 4, len(labels)).astype(np.float32)
  scores = sparse.csr_array(np.where(np.isinf(dense), 0, dense))
  return Documents(SparseDocuments('scores', scores)), dense


def lists_of(documents, k, **filters):
  """Ranks labels whose scores are the features of documents."""
  scorer = ScoredLabels(RowFeaturiser(L), 0.0, 2)
  if 'weights' in filters:
    filters = {**filters, 'weights': RankWeights(filters['weights'])}
  lists = scorer.rank(documents, Query(k, **filters))
  assert not lists.kept
  return lists.ids_GNK, lists.scores_GNK


FILTERS = {
  'weights': RNG.integers(0, 3, L).astype(np.float32),
  'slices': (RNG.random(L) < 0.5, np.ones(L, bool), np.zeros(L, bool)),
  'allowed': RNG.random(L) < 0.7,
}


@pytest.mark.parametrize('k', [1, 7, 12])
@pytest.mark.parametrize(
  'names', [c for n in range(4) for c in itertools.combinations(FILTERS, n)]
)
def test_selection_is_that_of_dense_scores(k, names):
  documents, dense = some_scores()
  filters = {name: FILTERS[name] for name in names}
  ids, scores = lists_of(documents, k, **filters)
  wanted_ids, wanted_scores = dense_topk(
    jnp.asarray(dense), k, **jax.tree.map(jnp.asarray, filters)
  )
  np.testing.assert_array_equal(ids, wanted_ids)
  np.testing.assert_allclose(scores, wanted_scores, rtol=1e-6)
  assert ids.dtype == np.int32 and scores.dtype == np.float32


def test_the_score_of_a_label_is_shared_by_the_words_of_its_names():
  matcher = DescriptorMatcher([('sea fish', 'fish'), ('ham',), ('fish',)], 6)
  document = Document('d', {'a': 'Ham? Sea-fish', 'b': 'a Fish 7 ham'})
  shares = matcher.word_shares(document)
  assert shares.features.tolist() == [0, 1, 2]
  weights_DK = WEIGHTS(shares.features, np.array([0, 2, PAD]))
  found_KT = shares.contributions(weights_DK)
  # Label 0 has 2 + 1 occurrences, as sea fish, fish and fish.
  third = (3 + 2 / 3) / 3
  wanted = [0, third / 2, third / 2 + third, 0, third, 0]
  np.testing.assert_allclose(found_KT[0], wanted, rtol=1e-6)
  np.testing.assert_allclose(found_KT[1], [0, 0, 1.25, 0, 1.25, 0])
  assert not found_KT[2].any()
  places = matcher.words(document)
  shown = [document.zones[zone][start:end] for zone, start, end in places]
  assert shown == ['Ham', 'Sea', 'fish', 'a', 'Fish', '7']


@settings(deadline=None, max_examples=40)
@given(st.lists(WORDS, min_size=1, max_size=6), WORDS)
def test_all_words_together_have_the_whole_score(names, text):
  text = ' '.join(text)
  matcher = DescriptorMatcher([('x', ' '.join(name)) for name in names], 9)
  shares = matcher.word_shares(Document('d', {'text': text}))
  row = matcher([text])
  np.testing.assert_array_equal(shares.features, row.indices)
  every = np.arange(len(names))
  found_KT = shares.contributions(WEIGHTS(shares.features, every))
  np.testing.assert_allclose(found_KT.sum(axis=1), row.toarray()[0], rtol=1e-6)
