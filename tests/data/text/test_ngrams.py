"""Words and n-grams as scikit-learn has them; which of them stay."""

from collections import Counter

from hypothesis import given, strategies as st
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from xjax.data.config import TfidfConfig
from xjax.data.text.tfidf import frequent_ngrams, ngrams
from xjax.data.text.words import split_terms

THEIRS = CountVectorizer().build_analyzer()


@given(st.text(max_size=20) | st.text('aB1_ é-.\u0301İ', max_size=20))
def test_words_as_scikit_learn_has_them(text):
  assert split_terms(text) == THEIRS(text)


@given(st.lists(st.sampled_from(['aa', 'bb', 'cc'])), st.integers(1, 5))
def test_ngrams_as_scikit_learn_has_them(words, n):
  theirs = CountVectorizer(ngram_range=(n, n)).build_analyzer()
  assert list(ngrams(words, n)) == theirs(' '.join(words))


def counted(texts, config):
  """frequent_ngrams, by a dictionary of all there are."""
  totals, documents, firsts = Counter(), Counter(), {}
  for row, text in enumerate(texts):
    words = split_terms(text, config.first_words)
    for n in range(config.min_ngram, config.max_ngram + 1):
      found = list(ngrams(words, n))
      totals.update(found)
      documents.update(set(found))
      for at, term in enumerate(found):
        firsts.setdefault(term, (n, row, at))
  most = config.max_share * len(texts)
  kept = [x for x in totals if config.min_count <= documents[x] <= most]
  kept.sort(key=lambda x: (-totals[x], firsts[x]))
  return {x: documents[x] for x in sorted(kept[: config.max_features])}


WORDS = st.lists(st.sampled_from(['aa', 'bb', 'cc', 'dd']), max_size=7)


@given(
  st.lists(WORDS.map(' '.join), max_size=7),
  st.builds(
    TfidfConfig,
    min_ngram=st.integers(1, 2),
    max_ngram=st.integers(2, 4),
    max_features=st.integers(1, 9) | st.just(1000),
    min_count=st.integers(1, 3),
    max_share=st.sampled_from([0.5, 1.0]),
    first_words=st.sampled_from([0, 3]),
  ),
)
def test_as_by_a_dictionary(texts, config):
  found = frequent_ngrams(texts, config)
  assert found == counted(texts, config)
  assert list(found) == sorted(found)


@pytest.mark.parametrize('most', [1, 2, 3, 4])
def test_ties(most):
  # Each is twice there: one word before two, then the first one.
  config = TfidfConfig(min_count=1, max_features=most)
  found = frequent_ngrams(['zz yy zz yy'], config)
  assert set(found) == set(['zz', 'yy', 'zz yy', 'yy zz'][:most])


def test_documents_are_read_once():
  class Texts(list):
    read = 0

    def __iter__(self):
      self.read += 1
      return super().__iter__()

  texts = Texts(['aa bb', 'aa bb'])
  found = frequent_ngrams(texts, TfidfConfig(max_ngram=5))
  assert found == {'aa': 2, 'aa bb': 2, 'bb': 2} and texts.read == 1
