"""Tests the words of labels, and descriptors as means of word vectors."""

import math

import numpy as np
import pytest

from xjax.data.schema import Label
from xjax.data.text.word_vectors import WordVectors
from xjax.data.text.words import Vocabulary
from xjax.networks.heads.head import DescriptorConfig, DescriptorWeights
from xjax.networks.pretrained.descriptor_encoder import (
  DescriptorEncoder,
  all_words,
  descriptor_words,
)

LABELS = (
  Label('1', 'fresh fish', alt=('sea fish', 'tuna')),
  Label('2', 'fish trade'),
  Label('3', 'trade, fresh; trade!'),
  Label('4', 'unheard of'),
)
VOCAB = Vocabulary(('fresh', 'fish', 'trade', 'tuna', 'sea', 'lone'))
FRESH, FISH, TRADE, TUNA, SEA, LONE = np.random.default_rng(0).normal(
  size=(6, 3)
)


def words(missing=()):
  """Returns word vectors; those of padding and unknown must not count."""
  rows = [np.full(3, 9.0), np.full(3, 7.0)]
  rows += [FRESH, FISH, TRADE, TUNA, SEA, LONE]
  known = np.array([w not in missing for w in ('', '?', *VOCAB.words)])
  return WordVectors(np.array(rows, np.float32), known)


def encoder(labels=LABELS, missing=(), **fields):
  config = DescriptorConfig(**fields)
  return DescriptorEncoder.of(labels, config, VOCAB, words(missing))


REFUNDS = Label('x', 'Export REFUNDS, of 1999', alt=('a b',), description='c')
LETTERS = Label('x', 'a b c d', alt=('e f g', 'h'))
# As without a name the id is used, mere numbers say nothing.
NUMBERS = Label('17', '17'), Label('18', '18', alt=('2003/87', 'fish 2'))


@pytest.mark.parametrize(
  ('label', 'config', 'words'),
  [
    (REFUNDS, {}, 'export refunds of DDDD'),
    (REFUNDS, {'alt': True}, 'export refunds of DDDD a b'),
    (Label('x'), {'alt': True}, ''),
    (NUMBERS[0], {'alt': True}, ''),
    (NUMBERS[1], {'alt': True}, 'fish D'),
    (LETTERS, {'max_words': 2}, 'a b'),
    (LETTERS, {'max_words': 2, 'alt': True}, 'a b e f h'),
    (Label('x', 'a ' * 20), {}, 'a ' * 15),
  ],
)
def test_words_of_a_label(label, config, words):
  config = DescriptorConfig(**config)
  assert descriptor_words(label, config) == tuple(words.split())


def test_all_words_has_every_name_whole():
  long = Label('x', 'a ' * 20, alt=('b c', 'B'))
  assert list(all_words([long, LABELS[1]])) == [
    *['a'] * 20,
    *('b', 'c', 'b', 'fish', 'trade'),
  ]
  assert list(all_words(NUMBERS)) == ['fish', 'D']


def test_uniform_means():
  vectors = encoder().encode(LABELS)
  assert vectors.dtype == np.float32
  expected = [
    (FRESH + FISH) / 2,
    (FISH + TRADE) / 2,
    (2 * TRADE + FRESH) / 3,
    np.zeros(3),
  ]
  np.testing.assert_allclose(vectors, expected, rtol=1e-6)


def test_means_with_alternative_names():
  vectors = encoder(alt=True).encode(LABELS[:2])
  expected = [(FRESH + 2 * FISH + SEA + TUNA) / 5, (FISH + TRADE) / 2]
  np.testing.assert_allclose(vectors, expected, rtol=1e-6)
  (first,) = encoder(alt=True, max_words=1).encode(LABELS[:1])
  np.testing.assert_allclose(first, (FRESH + SEA + TUNA) / 3, rtol=1e-6)


def test_means_by_inverse_frequency():
  """Checks IDF: fresh, fish and trade are in 2 of 4 labels; repeats add 0."""
  two, one = math.log(5 / 3) + 1, math.log(5 / 2) + 1
  idf = DescriptorWeights.IDF
  vectors = encoder(weights=idf).encode((*LABELS[:3], Label('5', 'fish lone')))
  never = math.log(5) + 1
  expected = [
    (FRESH + FISH) / 2,
    (FISH + TRADE) / 2,
    (2 * TRADE + FRESH) / 3,
    (two * FISH + never * LONE) / (two + never),
  ]
  np.testing.assert_allclose(vectors, expected, rtol=1e-6)
  (vectors,) = encoder(weights=idf, alt=True).encode(LABELS[:1])
  total = two * (FRESH + 2 * FISH) + one * (SEA + TUNA)
  np.testing.assert_allclose(vectors, total / (3 * two + 2 * one), rtol=1e-6)


@pytest.mark.parametrize('weights', DescriptorWeights)
def test_words_without_a_vector_do_not_count(weights):
  vectors = encoder(missing=('fish', 'lone'), weights=weights).encode(
    [LABELS[0], Label('5', 'lone unheard fresh'), Label('6', 'fish lone')]
  )
  np.testing.assert_allclose(vectors, [FRESH, FRESH, [0, 0, 0]], rtol=1e-6)


def test_new_labels_change_no_other():
  ours = encoder(weights=DescriptorWeights.IDF)
  before = ours.encode(LABELS)
  new = Label('7', 'fish fish fish')
  together = ours.encode((*LABELS, new, Label('8', 'fish sea')))
  np.testing.assert_array_equal(together[:4], before)
  np.testing.assert_allclose(together[4], FISH, rtol=1e-6)
  again = ours.encode([Label('other', LABELS[2].name)])
  np.testing.assert_array_equal(again[0], before[2])
  # New labels would change others if they were labels of the run.
  more = encoder((*LABELS, new), weights=DescriptorWeights.IDF)
  changed = more.encode([Label('9', 'fish lone')])
  assert (changed != ours.encode([Label('9', 'fish lone')])).any()


def test_no_labels():
  assert encoder().encode([]).shape == (0, 3)
