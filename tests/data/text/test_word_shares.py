"""The features of a text are divided among its words, and nothing is lost."""

import dataclasses

import numpy as np
import pytest

from xjax.data.config import TfidfConfig
from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.schema import Document
from xjax.data.text.tfidf import Tfidf
from xjax.data.text.word_shares import WordShares


def dense(shares):
  """Returns the shares as an array [T, D]."""
  shares_TD = np.zeros((len(shares.terms), len(shares.features)))
  np.add.at(shares_TD, (shares.words, shares.places), shares.shares)
  return shares_TD


def tfidf_of(counts, n_train=9, **config):
  """Returns a Tfidf of n-grams, given as n-gram -> documents."""
  idf = np.log((1 + n_train) / (1 + np.array(list(counts.values())))) + 1
  terms = tuple(counts)
  assert list(terms) == sorted(terms)
  return Tfidf(TfidfConfig(**config), terms, idf.astype(np.float32))


def test_by_hand():
  tfidf = tfidf_of({'fish': 9, 'sea fish': 9}, sublinear=False)
  document = Document('d', {'a': 'Sea fish, a', 'b': 'FISH sea', 'c': 'fish'})
  shares = tfidf.word_shares(document)
  assert shares.terms == ['sea', 'fish', 'fish', 'sea', 'fish']
  assert shares.features.tolist() == [0, 1]
  # fish occurs 3 times, and sea fish twice, once from zone to zone.
  one, two = 1 / 13**0.5, 1 / 13**0.5 / 2
  wanted = [[0, two], [one, two], [one, 0], [0, two], [one, two]]
  np.testing.assert_allclose(dense(shares), wanted, rtol=1e-6)
  places = [(x.zone, x.start, x.end) for x in tfidf.words(document)]
  assert places[:2] == [('a', 0, 3), ('a', 4, 8)] and len(places) == 5


@pytest.mark.parametrize(
  'config',
  [
    TfidfConfig(max_ngram=3),
    TfidfConfig(min_ngram=2, max_ngram=2, sublinear=False),
    TfidfConfig(max_ngram=1, min_count=1, max_share=0.1),
    TfidfConfig(first_words=9, max_features=50),
  ],
)
def test_the_shares_of_all_words_add_up_to_the_features(config):
  small = SyntheticData(n_train=120, n_dev=1, n_test=1, n_labels=20)
  documents = make_synthetic(small)[1]['train']
  tfidf = Tfidf.fit([x.text() for x in documents[:80]], config)
  odd = ['', '?', 'no such words', 'İ']
  documents = [*documents, *(Document('d', {'t': text}) for text in odd)]
  rows = tfidf([x.text() for x in documents])
  for number, document in enumerate(documents):
    shares = tfidf.word_shares(document)
    row = rows[[number]]
    np.testing.assert_array_equal(shares.features, row.indices)
    sums_D = dense(shares).sum(axis=0)
    np.testing.assert_allclose(sums_D, row.data, rtol=2e-6)
    assert len(tfidf.words(document)) == len(shares.terms)


def test_contributions_are_shares_times_weights():
  arrays = np.array([0, 1, 1]), np.array([1, 2, 1]), np.array([7, 9, 7])
  shares = WordShares.of(list('abc'), arrays, lambda features, counts: features)
  weights_DK = np.array([[1.0, -2], [0.5, 4]])
  totals_KT = shares.contributions(weights_DK)
  np.testing.assert_allclose(totals_KT, (dense(shares) @ weights_DK).T)
  np.testing.assert_allclose(totals_KT.sum(axis=1), [11.5, 22])
  none = np.zeros(0, int)
  nothing = dataclasses.replace(shares, words=none, places=none, shares=none)
  assert not nothing.contributions(weights_DK).any()
