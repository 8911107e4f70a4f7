import numpy as np

from xjax.data.text.subwords import Subwords
from xjax.data.text.tokenizer_json import word_pieces
from xjax.data.text.words import Vocabulary
from xjax.train.initial.words import (
  matching_rows,
  piece_rows,
  replace_rows,
  word_rows,
)


def test_matches():
  found = matching_rows(['a', None, 'b', 'c'], ['c', None, 'a'])
  assert found.tolist() == [2, -1, -1, 0]


def test_words_follow_padding_and_the_unknown_word():
  found = word_rows(Vocabulary(('x', 'b')), Vocabulary(('a', 'b')))
  assert found.tolist() == [0, 1, -1, 3]


def test_pieces_are_known_by_their_ids():
  special = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')

  def tokenizer(*pieces):
    ids = {name: i for i, name in enumerate((*special, *pieces))}
    ids.pop('', None)
    return Subwords(word_pieces(ids), 'here')

  ours, theirs = tokenizer('a', 'b', '', '##c'), tokenizer('##c', '', 'a')
  assert ours.pieces == [*special, 'a', 'b', None, '##c']
  assert piece_rows(ours, theirs).tolist() == [0, 1, 2, 3, 4, 7, -1, -1, 5]


def test_rows_come_from_another_table():
  own, other = np.zeros((4, 2)), np.arange(6.0).reshape(3, 2)
  mixed = replace_rows(own, np.array([-1, 2, 0]), other)
  assert mixed.tolist() == [[0, 0], [4, 5], [0, 1], [0, 0]]
  assert not own.any()
