"""Words of texts and their places, and the vocabulary on disk."""

import re
import sys
import unicodedata

from hypothesis import example, given, settings, strategies as st
import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.core.texts import UNSEEN
from xjax.data.schema import Document
from xjax.data.text import words
from xjax.data.text.words import (
  BREAK,
  Vocabulary,
  WordPlace,
  document_terms,
  document_words,
  lacks_spaces,
  split_terms,
  split_units,
  split_words,
  word_spans,
)
from xjax.data.tokens_config import Analyzer, WordsConfig


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    ('Directive 2003/87/EC', ['directive', 'DDDD', 'DD', 'ec']),
    ("The Member's co-operation.", 'the member s co operation'.split()),
    ('snake_case  A1', ['snake', 'case', 'aD']),
    ('Übergröße Ελλάδα ٣', ['übergröße', 'ελλάδα', 'D']),
    ('cafe\u0301', ['café']),  # composed, not cut at the accent
    ('हिन्दी में नमस्ते', ['हिन्दी', 'में', 'नमस्ते']),  # vowel signs
    ('ปี๒๕๖๗ ២០២០', ['ปี', 'DDDD', 'DDDD']),  # digits do not stand alone
    ("İstanbul'da", ['i\u0307stanbul', 'da']),
    ('עִבְרִית_שָׁ', ['עִבְרִית', 'שָׁ']),
    ('\U00011013\U00011038 x', ['\U00011013\U00011038', 'x']),  # Brahmi
    ('\u0301 \u2764\ufe0f \u0301a', ['a']),  # marks on nothing
    ('می\u200cروم\u200c، x', ['می\u200cروم', 'x']),  # joiners are inside words
    ('我爱2个 iPhone手机', ['我', '爱', 'D', '个', 'iphone', '手', '机']),
    ('私はコーヒーです', ['私', 'は', 'コーヒー', 'で', 'す']),
    ('ที่นี่ ๒๕๖๐', ['ที่', 'นี่', 'DDDD']),
    ('ཁྱི་མི', ['ཁྱི', 'མི']),
    (' ,.!\n', []),
  ],
)
def test_words(text, words):
  assert split_words(text) == words


def test_every_mark_stays_in_its_word():
  marks = [
    chr(code)
    for code in range(sys.maxunicode + 1)
    if unicodedata.category(chr(code)).startswith('M')
  ]
  assert len(marks) > 2000
  for mark in marks[::20]:
    assert len(split_words(f'a{mark}b{mark} c')) == 2, hex(ord(mark))


def test_fit_orders_by_count_then_word():
  texts = ['b b a a c', 'c d d d', 'e']
  config = WordsConfig(min_count=2)
  assert Vocabulary.fit(texts, config).words == ('d', 'a', 'b', 'c')
  config = WordsConfig(min_count=2, max_words=2)
  assert Vocabulary.fit(iter(texts), config).words == ('d', 'a')


def test_fit_counts_the_tokens_that_are_read():
  config = WordsConfig(min_count=1, max_tokens=2)
  assert Vocabulary.fit(['a b c', 'b a c'], config).words == ('a', 'b')


def test_encode():
  vocab = Vocabulary(('the', 'DD'))
  ids = vocab.encode('The 10, others: the')
  assert ids.dtype == np.int32 and ids.tolist() == [2, 3, 1, 2]
  assert vocab.encode('The 10, others: the', 3).tolist() == [2, 3, 1]
  assert vocab.encode('').tolist() == []
  assert len(vocab) == 4  # with pad and unknown


def test_extended(tmp_path):
  vocab = Vocabulary(('the', 'DD'))
  more = vocab.with_words(iter(['of', 'the', 'a', 'of', 'DD']))
  assert more.words == ('the', 'DD', 'of', 'a')
  assert vocab.words == ('the', 'DD')
  assert more.encode('A the of').tolist() == [5, 2, 4]
  assert more.digest == Vocabulary(more.words).digest != vocab.digest
  assert vocab.with_words(['a', 'of']) != more
  assert vocab.with_words([]) == vocab
  more.save(tmp_path / 'vocab.txt')
  assert Vocabulary.load(tmp_path / 'vocab.txt') == more


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=8))
@example(['a\x85b a\u2028b'])
def test_saved_and_loaded_is_the_same(tmp_path_factory, texts):
  vocab = Vocabulary.fit(texts, WordsConfig(min_count=1))
  path = tmp_path_factory.mktemp('vocab') / 'features' / 'vocab.txt'
  vocab.save(path)
  assert Vocabulary.load(path) == vocab


@pytest.mark.parametrize(
  ('content', 'said'),
  [
    (b'a\nb\na\n', 'vocab.txt: is damaged'),
    (b'a\n\nb\n', 'vocab.txt: is damaged'),
    (b'a\r\nb\r\n', 'vocab.txt: is damaged'),
    (b'a\nlong wo', 'vocab.txt: is damaged'),
    (b'a\n\xff\n', 'vocab.txt: is not UTF-8'),
    (None, 'vocab.txt: cannot be read: No such file'),
  ],
)
def test_a_damaged_file(tmp_path, content, said):
  path = tmp_path / 'vocab.txt'
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(DataError, match=said):
    Vocabulary.load(path)


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
    # Korean letters, which NFC joins to one syllable.
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


def compared(text):
  # Soft hyphens and marks of direction are nothing.
  seen = re.sub(f'[{UNSEEN}]', '', text.lower())
  return folded(unicodedata.normalize('NFC', seen))


# Letters, marks, jamo, digits and all that case and NFC change in length.
CHARS = st.one_of(
  st.sampled_from(
    'aZ9 .\nİıΣςÅ\u212b\u0301\u0323\u0307\u0345\u1100\u1161\u11a8'
  ),
  st.sampled_from('\u0958\u093c\u09c7\u09be\u09d7\u0344\u2126ﬁ\U0001d15f가각'),
  st.characters(exclude_categories=('Cs',)),
)


@settings(max_examples=200, deadline=None)
@given(st.text(CHARS, max_size=30))
@example('0\xad0')
@example('0\u17e0')
def test_every_word_has_its_place(text):
  spans = word_spans(text)
  words = split_words(text)
  assert len(spans) == len(words)
  assert all(0 <= start < end <= len(text) for start, end in spans)
  assert spans == sorted(spans)
  for (start, end), word in zip(spans, words, strict=True):
    shown = compared(text[start:end])
    shown = ''.join('D' if c.isdecimal() else c for c in shown)
    assert folded(word) in shown


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(CHARS, max_size=12), max_size=4), st.integers(0, 5))
def test_every_word_of_tfidf_has_its_place(texts, first_words):
  document = Document('d', {f'z{i}': text for i, text in enumerate(texts)})
  places = document_terms(document, first_words)
  shown = [document.zones[zone][start:end] for zone, start, end in places]
  terms = split_terms(document.text(), first_words)
  assert len(places) == len(terms) and places == sorted(places)
  for one, term in zip(shown, terms, strict=True):
    assert folded(term) in compared(one)


def test_words_of_tfidf_as_they_stand():
  zones = {'title': 'A B.2 İstanbul\u0130x-ray', 'empty': '', 'body': 'EC ec_1'}
  assert document_terms(Document('d', zones)) == [
    WordPlace('title', 6, 16),
    WordPlace('title', 17, 20),
    WordPlace('body', 0, 2),
    WordPlace('body', 3, 7),
  ]


@pytest.mark.parametrize(
  ('text', 'terms'),
  [
    ('A 7 b2 snake_case __ é я ²', ['b2', 'snake_case', '__']),
    ('हिन्दी विश्वविद्यालय दी न', ['हिन्दी', 'विश्वविद्यालय', 'दी', 'न']),
    ('مُحَمَّدٌ و', ['مُحَمَّدٌ', 'و']),
    ('E\u0301nergie a\u0300 e\u0301', ['énergie']),
    ('말, 물', ['말', '물']),
    ('東京タワー 12', ['東', '京', 'タワー', '12']),
    ('ប្រាំ', ['ប្', 'រាំ']),
  ],
)
def test_terms_of_all_alphabets(text, terms):
  assert split_terms(text) == terms


def test_plain_characters_are_those_of_quick_patterns():
  for char in map(chr, range(sys.maxunicode + 1)):
    lower = char.lower()
    if not words._HAS_ODD.match(char):
      assert unicodedata.category(char)[0] != 'M' and char not in '\u200c\u200d'
      assert unicodedata.is_normalized('NFC', char), hex(ord(char))
      assert len(lower) == 1 and not words._HAS_ODD.match(lower)


@settings(max_examples=200, deadline=None)
@given(st.text(CHARS, max_size=30))
def test_the_form_of_a_text_does_not_matter(text):
  for split in (split_words, split_terms):
    one, other = (
      split(unicodedata.normalize(form, text)) for form in ('NFC', 'NFD')
    )
    assert one == other
    assert split(unicodedata.normalize('NFC', text) + ' 字') == [*one, '字']


CASES = [
  ('Ab, c\u0301d', ['a', 'b', ' ', 'ć', 'd'], [(0, 1), (1, 2), (4, 6), (6, 7)]),
  ('हिन्दी', ['हि', 'न्', 'दी'], [(0, 2), (2, 4), (4, 6)]),
  ('我们。', ['我', '们'], [(0, 1), (1, 2)]),
  ('a\xadb\u200e', ['a', 'b'], [(0, 2), (2, 4)]),
]


@pytest.mark.parametrize(('text', 'units', 'spans'), CASES)
def test_characters_as_they_stand(text, units, spans):
  kind = Analyzer.CHARACTERS
  assert split_units(text, kind) == units
  places = document_terms(Document('d', {'t': text}), 0, kind)
  assert [(place.start, place.end) for place in places] == spans
  assert split_units(text, kind, 1) == units[:1]
  runs = ''.join(units).split()
  within = Analyzer.CHARACTERS_IN_WORDS
  found = ''.join(split_units(text, within)).split(BREAK)
  assert found == [f' {run} ' for run in runs]
  assert len(document_terms(Document('d', {'t': text}), 1, within)) == 1


@pytest.mark.parametrize(
  'text', ['Act 7/88 É12/1', 'act 7/88 हिन्दी 12/1', '7/88 12/1']
)
def test_matches_take_the_place_of_words(text):
  found = split_units(text, Analyzer.WORDS, pattern='[0-9]+/[0-9]+')
  assert found == ['7/88', '12/1']
  document = Document('d', {'a': text, 'b': text})
  places = document_terms(document, 3, pattern='[0-9]+/[0-9]+')
  shown = [document.zones[zone][start:end] for zone, start, end in places]
  assert shown == ['7/88', '12/1', '7/88']
  letters = split_units('Ab É1', Analyzer.WORDS, 1, '[^0-9 ]')
  assert letters == ['a']


@pytest.mark.parametrize(
  ('texts', 'lacks'),
  [
    (['我们 use TensorFlow', '今天天气好'], True),
    (['これはペンです'], True),
    (['བོད་ཡིག'], True),
    (['ที่นี่'] * 2000 + ['plain words'] * 100, True),
    (['The word 我 alone', '말 물'], False),
    (['123', ''], False),
    ([], False),
  ],
)
def test_scripts_without_spaces(texts, lacks):
  assert lacks_spaces(texts) == lacks
