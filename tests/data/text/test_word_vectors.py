"""Word vectors in three formats, those of a vocabulary."""

import gzip
import logging
import os

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import DataError
from xjax.data.text.word_vectors import (
  read_word_vectors,
  vector_dim,
  write_word_vectors,
)
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary

WORDS = ('the', 'über', 'DDDD', 'of')
VOCAB = Vocabulary(('of', 'absent', 'über', 'the'))
VECTORS = np.array([[1.5, -2], [0.1, 3e-5], [7, 8], [-0.25, 1e10]], np.float32)


def lines(words=WORDS, vectors=VECTORS, header=True):
  """Text in the format of word2vec or GloVe."""
  rows = zip(words, vectors, strict=True)
  text = ''.join(f'{w} {" ".join(map(str, v))}\n' for w, v in rows).encode()
  return b'%d %d\n' % vectors.shape + text if header else text


def binary(words=WORDS, vectors=VECTORS, end=b''):
  """word2vec binary, perhaps with newlines as the first tool has them."""
  rows = zip(words, vectors, strict=True)
  return b'%d %d\n' % vectors.shape + b''.join(
    w.encode() + b' ' + v.astype('<f4').tobytes() + end for w, v in rows
  )


FORMATS = {
  'word2vec': lines(),
  'glove': lines(header=False),
  'trailing_spaces': lines().replace(b'\n', b' \n'),
  'carriage_returns': lines().replace(b'\n', b'\r\n'),
  'no_last_newline': lines()[:-1],
  'binary': binary(),
  'binary_newlines': binary(end=b'\n'),
}


def read(tmp_path, content, vocab=VOCAB):
  path = tmp_path / 'vectors'
  path.write_bytes(content)
  return read_word_vectors(path, vocab)


@pytest.mark.parametrize('name', FORMATS)
def test_formats(tmp_path, name, caplog):
  caplog.set_level(logging.INFO)
  content, zipped = FORMATS[name], 'binary' in name
  got = read(tmp_path, gzip.compress(content) if zipped else content)
  assert got.vectors.dtype == np.float32 and got.vectors.shape == (6, 2)
  assert got.dim == vector_dim(tmp_path / 'vectors') == 2
  np.testing.assert_array_equal(got.has_vector, [0, 0, 1, 0, 1, 1])
  np.testing.assert_array_equal(got.vectors[[2, 4, 5]], VECTORS[[3, 1, 0]])
  assert not got.vectors[~got.has_vector].any()
  assert 'vectors: 3 of 4 words found, 2 dimensions' in caplog.text


@pytest.mark.parametrize('make', [lines, binary])
def test_of_several_rows_the_first_counts(tmp_path, make):
  content = make(('a', 'b', 'a'), VECTORS[:3])
  got = read(tmp_path, content, Vocabulary(('a',)))
  np.testing.assert_array_equal(got.vectors[2], VECTORS[0])


def test_digits(tmp_path):
  vocab = Vocabulary(('DDDD', 'aD', 'D', 'x'))
  # A file that has digits: its D is a letter. 1999 before 2000.
  words = ('D', '1999', 'DDDD', '2000', '7', 'b2')
  vectors = np.arange(6, dtype=np.float32)[:, None]
  got = read(tmp_path, lines(words, vectors), vocab)
  assert got.vectors[2:, 0].tolist() == [1, 0, 4, 0]
  assert got.has_vector[2:].tolist() == [True, False, True, False]
  # One that has none: as it is.
  words = ('D', 'DDDD', 'aD', 'DD', 'a', 'b')
  got = read(tmp_path, lines(words, vectors), vocab)
  assert got.vectors[2:, 0].tolist() == [1, 2, 0, 0]


def test_words_that_no_vocabulary_has_are_passed_over(tmp_path):
  content = b'of 1 2\n. . 3 4\n\xff\xfe 5 6\nat name@domain.com 7 8\n'
  content += b'\xc3 9 9\nTHE nan 1\nthe 5 6\n'
  vocab = Vocabulary(('of', 'the', 'at'))
  got = read(tmp_path, content, vocab)
  assert got.vectors[2:].tolist() == [[1, 2], [5, 6], [0, 0]]


SHORT = binary()[:-3]
MORE = 'vectors: byte 54: the file has more than the'
FAULTS = {
  b'': 'vectors: the file is empty and has no',
  b' \n\n': 'vectors: the file is empty and has no',
  b'word\n': 'vectors:1: the format is unknown; .*word2vec.*GloVe',
  b'some words here\n': 'vectors:1: the format is unknown',
  b'{"a": 1}\n': 'vectors:1: the format is unknown',
  b'\xff\xfea\0 \0001\0\n\0': 'vectors:1: UTF-16',
  b'0 3\n': 'vectors:1: states 0 words of 3 numbers',
  b'3 0\n': 'vectors:1: states 3 words of 0 numbers',
  b'1 3\n': 'vectors:1: states 1 words, but the file has 0',
  b'3 1\nof 1\na 2\n': 'vectors:1: states 3 words, but the file has 2',
  b'1 1\nof 1\na 2\n': 'vectors:1: states 1 words, but the file has 2',
  b'2 2\nof 1 2\na 2\n': 'vectors:3: has 1 numbers, but other rows have 2',
  b'of 1 2\na 2 3 4\n': 'vectors:2: has 3 numbers, but other rows have 2',
  b'of 1 2\n\na 3 4\n': 'vectors:2: has 0 numbers',
  **{
    b'of 1 2\nthe %s\n' % text: "vectors:2: the vector of 'the' has a number"
    for text in (b'1 x', b'1 nan', b'1 -inf', b'1 1e39', b'1_0 1', b'1 --1')
  },
  b'1 2\nof 1 x\n': "vectors:2: the vector of 'of' has a number",
  b'1 99999999999\nof 1 2\n': 'vectors:2: has 2 numbers, but',
  gzip.compress(b'of 1 2\n' * 99, mtime=0)[:-9]: 'vectors:.*cut short',
  gzip.compress(b'of 1 2\n', mtime=0)[:10] + b'\xff' * 9: (
    'vectors: the file is damaged'
  ),
  SHORT: 'vectors: byte 43, word 4 of 4: the file is cut short',
  gzip.compress(SHORT, mtime=0): 'byte 43, word 4 of 4: the file is cut short',
  gzip.compress(binary(), mtime=0)[
    :-9
  ]: 'vectors: the compressed file is cut short',
  binary() + b'x': f'{MORE} 4 words of 2 numbers',
  b'3' + binary()[1:]: f'{MORE} 3 words'.replace('54', '43'),
  b'5' + binary()[1:]: 'byte 54, word 5 of 5: the file is cut short',
  b'4 3' + binary()[3:]: 'vectors: byte .* cut short',
  b'9 1' + binary()[3:]: 'vectors: byte ',
  b'2 1\n' + b'\0' * 200_000: 'byte 4, word 1 of 2: the word does not end',
  **{
    binary(vectors=VECTORS + np.float32([0, x])): (
      "vectors: byte 4: the vector of 'the' has a number"
    )
    for x in (np.nan, np.inf)
  },
}


@pytest.mark.parametrize('number', range(len(FAULTS)))
def test_faults(tmp_path, number):
  content, said = list(FAULTS.items())[number]
  with pytest.raises(DataError, match=said) as caught:
    read(tmp_path, content)
  assert '\n' not in str(caught.value)


def test_what_is_refused_before_a_model_has_it(tmp_path):
  none = tmp_path / 'nothing'
  said = error_text(read_word_vectors, none, VOCAB)
  assert 'nothing: cannot be read: No such' in said
  assert 'cannot be read' in error_text(vector_dim, tmp_path)
  os.mkfifo(tmp_path / 'pipe')
  said = error_text(read_word_vectors, tmp_path / 'pipe', VOCAB)
  assert 'pipe: is a pipe or a device' in said


word = st.text(
  st.characters(codec='utf-8', exclude_categories=['Z', 'C', 'N']), min_size=1
).filter(lambda text: text.split() == [text])
number = st.floats(-(2.0**99), 2.0**99, width=32)


@st.composite
def tables(draw):
  words = draw(st.lists(word, unique=True, min_size=1, max_size=5))
  dim = draw(st.integers(2, 5))
  row = st.lists(number, min_size=dim, max_size=dim)
  rows = st.lists(row, min_size=len(words), max_size=len(words))
  vectors = np.array(draw(rows), np.float32)
  vectors[0, 0] = 0.5  # it could be text if all of its bytes were letters
  return words, vectors


@pytest.mark.gensim
@hypothesis.settings(max_examples=30, derandomize=True, database=None)
@hypothesis.given(tables())
def test_gensim_reads_what_we_write_and_we_what_it_writes(
  tmp_path_factory, table
):
  from gensim.models import KeyedVectors

  words, vectors = table
  path = tmp_path_factory.getbasetemp() / 'vectors'
  vocab = Vocabulary(tuple(words))
  write_word_vectors(path, words, vectors)
  theirs = KeyedVectors.load_word2vec_format(path, binary=True)
  assert theirs.index_to_key == words
  np.testing.assert_array_equal(theirs.vectors, vectors)
  for form in ({'binary': True}, {}, {'write_header': False}):
    theirs.save_word2vec_format(path, **form)
    ours = read_word_vectors(path, vocab)
    assert ours.has_vector[FIRST_WORD_ID:].all()
    np.testing.assert_array_equal(ours.vectors[FIRST_WORD_ID:], vectors)


def test_only_words_and_whole_tables_are_written(tmp_path):
  path = tmp_path / 'vectors'
  for words in (('a b', 'c'), ('', 'c'), ('a\n', 'c'), ('a',)):
    with pytest.raises(ValueError):
      write_word_vectors(path, words, VECTORS[:2])
  assert list(tmp_path.iterdir()) == []
