"""Descriptors are found word by word; what is found is selected exactly."""

import re

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from xjax.data.schema import Document
from xjax.data.text.words import split_words
from xjax.models.features import RowFeaturiser
from xjax.models.lookup.exact_match import DescriptorMatcher, LabelScoreScorer

PLENTY = 10_000
WEIGHTS = LabelScoreScorer(RowFeaturiser(3), 0.0, 1).feature_weights


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
    ('中国', '我爱中国人', 1),
    ('แมว', 'เขามีแมวและแมว', 2),
    ('दिन', 'दिन दिनांक', 1),
    ('टीका', 'टी का', 0),
    ('fish', '', 0),
    ('fish', 'fish', 1),
  ],
)
def test_occurrences(name, text, n):
  scores = matched([name], text)
  assert list(scores) == [0] * (n > 0)
  assert [int(score) for score in scores.values()] == [n] * (n > 0)


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
