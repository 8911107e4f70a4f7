"""TF-IDF as scikit-learn has it, its file, and the shares of its words."""

from collections import Counter
import dataclasses

from hypothesis import given, strategies as st
import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from tests.fixtures.error_text import error_text
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.schema import Document
from xjax.data.text.tfidf import Tfidf, frequent_ngrams, ngrams
from xjax.data.text.words import BREAK, WordShares, split_terms, split_units
from xjax.data.tokens_config import Analyzer, TfidfConfig

THEIRS = CountVectorizer().build_analyzer()


@pytest.fixture(scope='module')
def documents():
  small = SyntheticData(n_train=120, n_dev=1, n_test=1, n_labels=20)
  return make_synthetic(small)[1]['train']


@pytest.fixture(scope='module')
def texts(documents):
  return [document.text() for document in documents]


@pytest.fixture(scope='module')
def tfidf(texts):
  return Tfidf.fit(texts[:80], TfidfConfig(max_ngram=3))


def the_same(one, other):
  return one.shape == other.shape and all(
    np.array_equal(getattr(one, name), getattr(other, name))
    for name in ('indptr', 'indices', 'data')
  )


PAIRS = TfidfConfig(min_ngram=2, max_ngram=2, min_count=3, sublinear=False)


@pytest.mark.parametrize(
  ('config', 'theirs'),
  [
    (TfidfConfig(max_ngram=3), {'ngram_range': (1, 3), 'min_df': 2}),
    (PAIRS, {'ngram_range': (2, 2), 'min_df': 3, 'sublinear_tf': False}),
    (TfidfConfig(max_ngram=1, min_count=1, max_share=0.1), {'max_df': 0.1}),
  ],
)
def test_as_scikit_learn(texts, config, theirs):
  ours = Tfidf.fit(texts[:80], config)
  peer = TfidfVectorizer(
    **{'sublinear_tf': True, 'dtype': np.float64, **theirs}
  )
  peer.fit(texts[:80])
  assert list(ours.terms) == list(peer.get_feature_names_out())
  assert ours.n_features == len(ours.terms) > 20
  rows, wanted = ours(texts), peer.transform(texts)
  np.testing.assert_allclose(rows.toarray(), wanted.toarray(), rtol=2e-6)


def test_rows(texts, tfidf):
  rows = tfidf([*texts[80:], '', 'unheardof'])
  assert rows.shape == (42, tfidf.n_features)
  assert rows.dtype == np.float32
  assert rows.indices.dtype == rows.indptr.dtype == np.int32
  for start, end in zip(rows.indptr, rows.indptr[1:]):
    assert (np.diff(rows.indices[start:end]) > 0).all()
  lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
  np.testing.assert_allclose(lengths[:40], 1, rtol=1e-6)
  assert np.diff(rows.indptr)[40:].tolist() == [0, 0]
  assert tfidf([]).shape == (0, tfidf.n_features)


def test_a_row_does_not_depend_on_the_others(texts, tfidf):
  rows = tfidf(texts)
  assert all(the_same(tfidf([texts[i]]), rows[[i]]) for i in range(0, 120, 17))


def test_read_again_it_is_the_same(tmp_path, texts, tfidf):
  paths = tmp_path / 'tfidf.npz', tmp_path / 'again.npz'
  tfidf.save(paths[0])
  again = Tfidf.load(paths[0])
  again.save(paths[1])
  assert again.config == tfidf.config
  assert paths[0].read_bytes() == paths[1].read_bytes()
  assert the_same(again(texts), tfidf(texts))


@pytest.mark.parametrize(
  ('texts', 'fields'),
  [
    ([], {}),
    (['a b c'], {'min_count': 1}),
    (['some words'] * 3, {'max_share': 0.5}),
  ],
)
def test_nothing_is_left(texts, fields):
  config = TfidfConfig(**fields)
  message = error_text(Tfidf.fit, texts, config)
  for name in ('min_count', 'max_share'):
    assert f'data.tokens.{name}={getattr(config, name)}' in message
  assert f'of the {len(texts)} documents of train' in message


def test_a_damaged_file(tmp_path, tfidf):
  path = tmp_path / 'tfidf.npz'
  tfidf.save(path)
  whole = path.read_bytes()
  assert 'no such file' in error_text(Tfidf.load, tmp_path / 'absent.npz')
  for at in range(0, len(whole), len(whole) // 12):
    path.write_bytes(whole[:at])
    assert 'tfidf.npz' in error_text(Tfidf.load, path)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    try:  # not all bytes of a zip file say something
      read = Tfidf.load(path)
      assert (read.config, read.terms) == (tfidf.config, tfidf.terms)
      assert np.array_equal(read.idf, tfidf.idf)
    except DataError as error:
      assert str(path) in str(error)


def test_a_file_of_other_arrays(tmp_path, tfidf):
  path = tmp_path / 'tfidf.npz'
  tfidf.save(path)
  with np.load(path) as file:
    arrays = dict(file)
  swapped = dataclasses.replace(tfidf, terms=tfidf.terms[::-1])
  cases = {
    'idf: missing': {'idf': None},
    r'idf: is float32 \[5\]': {'idf': tfidf.idf[:5]},
    'config: cannot be read': {'config': np.zeros(3, np.uint8)},
    'more: unknown array': {'more': np.zeros(1)},
  }
  for says, changed in cases.items():
    made = {k: v for k, v in {**arrays, **changed}.items() if v is not None}
    write_npz(path, made)
    with pytest.raises(DataError, match=says):
      Tfidf.load(path)
  swapped.save(path)
  with pytest.raises(DataError, match='damaged'):
    Tfidf.load(path)


ASCII = st.characters(max_codepoint=127)


@given(st.text(ASCII, max_size=20) | st.text('aB1_ é-’.я', max_size=20))
def test_words_as_scikit_learn_has_them(text):
  assert split_terms(text) == THEIRS(text)


def counted(texts, config):
  """frequent_ngrams, by a dictionary of all there are."""
  totals, documents, firsts = Counter(), Counter(), {}
  for row, text in enumerate(texts):
    units = split_units(text, config.analyzer, config.first_words)
    for n in range(config.min_ngram, config.max_ngram + 1):
      found = list(ngrams(units, n, config.analyzer))
      totals.update(found)
      documents.update(set(found))
      for at, term in enumerate(found):
        firsts.setdefault(term, (n, row, at))
  most = config.max_share * len(texts)
  kept = [x for x in totals if config.min_count <= documents[x] <= most]
  kept.sort(key=lambda x: (-totals[x], firsts[x]))
  if config.analyzer is not Analyzer.WORDS:
    kept = [x for x in kept if BREAK not in x and x != ' ']
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
    analyzer=st.sampled_from(list(Analyzer)[1:]),
  ),
)
def test_as_by_a_dictionary(texts, config):
  found = frequent_ngrams(texts, config)
  assert found == counted(texts, config)
  assert list(found) == sorted(found)


@pytest.mark.parametrize(
  ('analyzer', 'theirs'),
  [(Analyzer.CHARACTERS, 'char'), (Analyzer.CHARACTERS_IN_WORDS, 'char_wb')],
)
def test_characters_as_scikit_learn_has_them(analyzer, theirs):
  texts = ['we see the sea', 'the sea sees us', 'we use tea']
  config = TfidfConfig(analyzer=analyzer, min_ngram=2, max_ngram=3, min_count=1)
  ours = Tfidf.fit(texts, config)
  peer = TfidfVectorizer(
    analyzer=theirs, ngram_range=(2, 3), sublinear_tf=True
  ).fit(texts)
  assert list(ours.terms) == list(peer.get_feature_names_out())
  wanted = peer.transform(texts).toarray()
  np.testing.assert_allclose(ours(texts).toarray(), wanted, rtol=2e-6)


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


def test_shares_by_hand():
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
    TfidfConfig(min_ngram=2, max_ngram=3, sublinear=False),
    TfidfConfig(first_words=9, max_features=50),
    TfidfConfig(analyzer=Analyzer.CHARACTERS, max_ngram=4, first_words=30),
    TfidfConfig(analyzer=Analyzer.CHARACTERS_IN_WORDS, max_ngram=3),
  ],
)
def test_the_shares_of_all_words_add_up_to_the_features(
  documents, texts, config
):
  tfidf = Tfidf.fit(texts[:80], config)
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
  shares = WordShares.of(list('abc'), arrays, np.array([7, 9]))
  weights_DK = np.array([[1.0, -2], [0.5, 4]])
  totals_KT = shares.contributions(weights_DK)
  np.testing.assert_allclose(totals_KT, (dense(shares) @ weights_DK).T)
  np.testing.assert_allclose(totals_KT.sum(axis=1), [11.5, 22])
  none = np.zeros(0, int)
  nothing = dataclasses.replace(shares, words=none, places=none, shares=none)
  assert not nothing.contributions(weights_DK).any()
