"""Labels are scored by how much of their names is in a text."""

import concurrent.futures
import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.core.texts import Texts
from xjax.data.schema import Document
from xjax.models.lookup.names import (
  NameCoverage,
  UnitCounts,
  Units,
  UnitSplitter,
)

PLENTY = 10_000
STEMS = UnitSplitter(Units.STEMS, 'english')
CHARACTERS = UnitSplitter(Units.CHARACTERS, 'english')


def counts_of(n_documents=7, **counts):
  units = Texts.of(counts)
  return UnitCounts(n_documents, units, np.array([*counts.values()], np.int32))


# ln(8 / 4) for fish, 0.1 for sea, and ln(8) for words that training never had.
COUNTS = counts_of(fish=3, sea=7)
FISH, SEA, NEVER = math.log(2), 0.1, math.log(8)


def coverage_of(names, splitter=STEMS, counts=COUNTS, max_words=PLENTY):
  """Takes names as 'a' or ('a', 'other')."""
  names = [(name,) if isinstance(name, str) else name for name in names]
  return NameCoverage(names, splitter, counts, max_words)


def scores_of(names, text, *options):
  rows = coverage_of(names, *options)([text])
  assert rows.shape == (1, len(names)) and rows.dtype == np.float32
  assert (np.diff(rows.indices) > 0).all()
  return dict(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))


def partial(matched, whole):
  """Returns the score of a name whose units are in the text once each."""
  return matched**2 / whole


def phrase(places):
  return 1 + math.log(1 + places)


def test_scores_by_hand():
  names = ['sea fish', 'fish oil', 'meat', 'Fishing', 'oil']
  wanted = {
    0: partial(SEA + FISH, SEA + FISH),
    1: partial(FISH, FISH + NEVER),
    3: partial(FISH, FISH) * phrase(1),
  }
  assert scores_of(names, 'Fish, in the sea.') == pytest.approx(wanted)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 9))
def test_lower_labels_are_kept_if_scores_are_equal(sizes, kept):
  names = [' '.join(['fish', *('oil', 'ham', 'egg')[:n]]) for n in sizes]
  scores = scores_of(names, 'fish')
  wanted = sorted(sorted(scores, key=lambda x: (-scores[x], x))[:kept])
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr('xjax.models.lookup.names._KEPT', kept)
    assert list(scores_of(names, 'fish')) == wanted


WORDS = 'fish sea a ab oil fishing'.split()
LISTS = st.lists(st.sampled_from(WORDS), max_size=5).map(' '.join)
NAMES = st.lists(
  st.lists(LISTS, max_size=3).map(lambda x: (*x, 'x')), min_size=1, max_size=5
)


def reference(names, text, splitter, counts):
  """Scores each name alone, with sets and sums."""

  def units_of(word):
    if splitter is STEMS:
      return {word}
    w = f'^{word}$'
    return {w[i : i + 4] for i in range(len(w) - 3)} or {w}

  def idf(unit):
    known = dict(zip(counts.units, counts.counts.tolist()))
    n = 1 + counts.n_documents
    return max(0.1, math.log(n / (1 + known.get(unit, 0))))

  def words_of(text):
    words = text.split()
    return [
      'fish' if x == 'fishing' and splitter is STEMS else x for x in words
    ]

  words, scores = words_of(text), {}
  for label, label_names in enumerate(names):
    for name in filter(None, label_names):
      wanted = words_of(name)
      units = set().union(*map(units_of, wanted))
      often = {u: sum(u in units_of(word) for word in words) for u in units}
      present = [u for u in units if often[u]]
      if not present:
        continue
      score = sum(idf(u) * (1 + math.log(often[u])) for u in present)
      score *= sum(map(idf, present)) / sum(map(idf, units))
      places = range(len(words))
      score *= phrase(sum(words[i : i + len(wanted)] == wanted for i in places))
      scores[label] = max(score, scores.get(label, 0))
  return scores


@settings(deadline=None, max_examples=80)
@given(NAMES, LISTS, st.sampled_from([STEMS, CHARACTERS]))
def test_scores_are_those_of_a_slow_search(names, text, splitter):
  counts = counts_of(9, **{'fish': 2, 'a': 9, '^fis': 5, '^a$': 2, 'sea$': 3})
  wanted = reference(names, text, splitter, counts)
  scores = scores_of(names, text, splitter, counts)
  assert scores == pytest.approx(wanted, rel=1e-5)


def test_threads_can_share_a_featuriser():
  rng = np.random.default_rng(0)
  words = np.array([f'word{i}' for i in range(200)])
  names = [(' '.join(rng.choice(words, 3)),) for _ in range(2000)]
  texts = [' '.join(rng.choice(words, 60)) for _ in range(60)]
  coverage = NameCoverage(names, STEMS, COUNTS, PLENTY)
  wanted = coverage(texts).toarray()
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    rows = list(pool.map(lambda text: coverage([text]).toarray()[0], texts * 4))
  np.testing.assert_array_equal(rows, np.tile(wanted, (4, 1)))


@settings(deadline=None, max_examples=40)
@given(NAMES, LISTS, st.sampled_from([STEMS, CHARACTERS]))
def test_the_shares_of_words_add_up_to_the_score(names, text, splitter):
  coverage = coverage_of(names, splitter)
  document = Document('d', {'text': text})
  shares, row = coverage.word_shares(document), coverage([text])
  np.testing.assert_array_equal(shares.features, row.indices)
  parts_KT = shares.contributions(np.eye(len(row.indices)))
  np.testing.assert_allclose(parts_KT.sum(axis=1), row.data, rtol=1e-6)
  assert len(shares.terms) == len(coverage.words(document))


def test_units_of_at_least_two_documents_are_counted(tmp_path):
  texts = ['Fish, fish and meat', 'fishing', 'meat; the sea beyond', 'seas']
  counts = UnitCounts.fit(texts, STEMS, 3)
  found = dict(zip(counts.units, counts.counts.tolist()))
  assert found == {'fish': 2, 'sea': 2}
  counts.save(tmp_path / 'units.npz')
  loaded = UnitCounts.load(tmp_path / 'units.npz')
  assert loaded.units == counts.units and loaded.n_documents == 4
  np.testing.assert_array_equal(loaded.counts, counts.counts)


@pytest.mark.parametrize(
  'name, value',
  [
    ('counts', None),
    ('counts', np.array([1, 3], np.int32)),
    ('counts', np.array([3, 8], np.int32)),
    ('counts', np.array([3], np.int32)),
    ('counts', np.array([3.0, 7.0])),
    ('n_documents', np.int64(-1)),
    ('more', np.zeros(2)),
  ],
)
def test_damaged_counts_are_an_error(tmp_path, name, value):
  path = tmp_path / 'units.npz'
  COUNTS.save(path)
  arrays = dict(np.load(path))
  arrays.pop(name, None)
  np.savez(path, **arrays, **({} if value is None else {name: value}))
  with pytest.raises(DataError, match=f'units.npz: {name}'):
    UnitCounts.load(path)
