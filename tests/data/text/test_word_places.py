import unicodedata

from hypothesis import given, settings, strategies as st
import pytest

from xjax.data.schema import Document
from xjax.data.text.words import (
  WordPlace,
  document_terms,
  document_words,
  split_terms,
  split_words,
  word_spans,
)


def surfaces(text):
  return [text[start:end] for start, end in word_spans(text)]


JAMO = '\u1112\u1161\u11ab\u1100\u1173\u11af'


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    ('', []),
    ('Directive 2003/87/EC', ['Directive', '2003', '87', 'EC']),
    (' a\n-b- ', ['a', 'b']),
    # One letter in capitals, two of small ones: all behind it would be off.
    ('İZMİR and Port', ['İZMİR', 'and', 'Port']),
    # Letter and accent, two characters where NFC has one.
    ('cafe\u0301 Noir', ['cafe\u0301', 'Noir']),
    # Hangul in letters, of which NFC makes a syllable.
    (f'{JAMO} 말', [JAMO, '말']),
    # One character of which NFC makes two, of a mark that goes on a word.
    ('\u0958\u093e x', ['\u0958\u093e', 'x']),
    ('ΟΔΟΣ Α', ['ΟΔΟΣ', 'Α']),
    ('\u0301a b\u0323\u0301', ['a', 'b\u0323\u0301']),
    ('x\U0001f600y\U00010400z', ['x', 'y\U00010400z']),
  ],
)
def test_words_as_they_stand(text, words):
  assert surfaces(text) == words
  assert len(split_words(text)) == len(words)


def folded(word):
  # Sigma has two small forms, and what follows a word decides which.
  return word.replace('ς', 'σ')


# Letters, marks, jamo, digits and all that case and NFC change in length.
CHARS = st.one_of(
  st.sampled_from(
    'aZ9 .\nİıΣςÅ\u212b\u0301\u0323\u0307\u0345\u1100\u1161\u11a8'
  ),
  st.sampled_from('\u0958\u093c\u09c7\u09be\u09d7\u0344\u2126ﬁ\U0001d15f가각'),
  st.characters(exclude_categories=('Cs',)),
)


@settings(max_examples=400, deadline=None)
@given(st.text(CHARS, max_size=30))
def test_every_word_has_its_place(text):
  spans = word_spans(text)
  words = split_words(text)
  assert len(spans) == len(words)
  assert all(0 <= start < end <= len(text) for start, end in spans)
  assert spans == sorted(spans)
  for (start, end), word in zip(spans, words, strict=True):
    lower = text[start:end].lower()
    shown = ''.join('D' if c.isdecimal() else c for c in lower)
    assert folded(word) in folded(unicodedata.normalize('NFC', shown))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(CHARS, max_size=12), max_size=4))
def test_zones_are_read_one_after_the_other(texts):
  document = Document('d', {f'z{i}': text for i, text in enumerate(texts)})
  places = document_words(document)
  assert len(places) == len(split_words(document.text()))
  assert [(p.start, p.end) for p in places if p.zone == 'z0'] == (
    word_spans(texts[0]) if texts else []
  )


def test_places_are_within_zones():
  document = Document('d', {'title': 'A b', 'empty': '', 'body': 'c'})
  assert document_words(document) == [
    WordPlace('title', 0, 1),
    WordPlace('title', 2, 3),
    WordPlace('body', 0, 1),
  ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(CHARS, max_size=12), max_size=4), st.integers(0, 5))
def test_every_word_of_tfidf_has_its_place(texts, first_words):
  document = Document('d', {f'z{i}': text for i, text in enumerate(texts)})
  places = document_terms(document, first_words)
  shown = [document.zones[zone][start:end] for zone, start, end in places]
  terms = split_terms(document.text(), first_words)
  assert len(places) == len(terms) and places == sorted(places)
  for one, term in zip(shown, terms, strict=True):
    assert folded(term) in folded(one.lower())


def test_words_of_tfidf_as_they_stand():
  zones = {'title': 'A B.2 İstanbul\u0130x-ray', 'empty': '', 'body': 'EC ec_1'}
  assert document_terms(Document('d', zones)) == [
    WordPlace('title', 7, 15),
    WordPlace('title', 17, 20),
    WordPlace('body', 0, 2),
    WordPlace('body', 3, 7),
  ]
