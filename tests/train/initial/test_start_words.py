"""Words that begin with pretrained vectors, or with rows of another run."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.fixtures.first_states import first_state, params_of
from xjax.core.errors import ConfigError, DataError
from xjax.data.load import load_corpus
from xjax.data.text.subwords import Subwords
from xjax.data.text.tokenizer_json import word_pieces
from xjax.data.text.word_vectors import write_word_vectors
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.networks.encoders.encoder import InputConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.run.fit import fit
from xjax.train.batches.inputs import fit_vocabulary
from xjax.train.checkpoint import read_params
from xjax.train.initial.descriptors import descriptor_word_vectors
from xjax.train.initial.start_words import (
  piece_rows,
  replace_rows,
  start_words,
  word_rows,
)

TABLE = 'embedding/table'


def with_vectors(config, path, steps=6, **fields):
  """The config with word vectors from a file."""
  embedding = dataclasses.replace(
    config.model.embedding, vectors=str(path), **fields
  )
  return dataclasses.replace(
    config,
    model=dataclasses.replace(config.model, embedding=embedding),
    train=dataclasses.replace(config.train, steps=steps),
  )


@pytest.fixture(scope='module')
def vocab(config):
  corpus = load_corpus(config.data, config.seed)
  return fit_vocabulary(corpus.split('train'), config.data)


@pytest.fixture(scope='module')
def vectors(config, vocab, tmp_path_factory):
  """File, words and vectors: every other word, and one that is not ours."""
  words = (*vocab.words[::2], 'elsewhere')
  size = len(words), config.model.embedding.dim
  values = np.random.default_rng(3).normal(size=size).astype(np.float32)
  path = tmp_path_factory.mktemp('vectors') / 'l2v.bin'
  write_word_vectors(path, words, values)
  return path, values[:-1]


def test_found_words_begin_with_theirs_and_others_as_before(
  config, vocab, vectors
):
  path, values = vectors
  config = with_vectors(config, path)
  space = load_corpus(config.data, config.seed).label_space
  plan, state, before = first_state(config, space, len(vocab))
  state, found = start_words(state, config.model.embedding, vocab)
  assert np.flatnonzero(found).tolist() == [*range(2, len(vocab), 2)]
  shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
  assert shardings == plan.shardings
  words = descriptor_word_vectors(state, vocab, found)
  np.testing.assert_array_equal(words.has_vector, found)
  after = params_of(state)
  for name in before.keys() - {TABLE}:
    np.testing.assert_array_equal(after[name], before[name])
  table = after[TABLE]
  np.testing.assert_array_equal(table[FIRST_WORD_ID::2], values)
  rest = [0, 1, *range(FIRST_WORD_ID + 1, len(vocab), 2)]
  np.testing.assert_array_equal(table[rest], before[TABLE][rest])
  for none in (EmbeddingConfig(), InputConfig()):
    assert start_words(state, none, vocab) == (state, None)


def test_frozen_words_stay_and_a_resumed_run_reads_nothing(
  config, vectors, tmp_path
):
  path, values = vectors
  frozen = with_vectors(config, path, steps=2, frozen=True)
  run = fit(frozen, tmp_path / 'run')
  table = read_params(run.workdir / 'checkpoints', 2)[TABLE]
  np.testing.assert_array_equal(table[FIRST_WORD_ID::2], values)
  # The file has moved, and is gone altogether.
  moved = with_vectors(config, tmp_path / 'gone', steps=3, frozen=True)
  run = fit(moved, tmp_path / 'run')
  assert run.steps == 3
  again = read_params(run.workdir / 'checkpoints', 3)[TABLE]
  np.testing.assert_array_equal(again, table)


def test_what_does_not_fit_leaves_nothing(config, vectors, tmp_path):
  path, _ = vectors
  wider = with_vectors(config, path, dim=9)
  with pytest.raises(ConfigError, match=r'embedding.dim=9: .*l2v.bin have 8 '):
    fit(wider, tmp_path / 'run')
  with pytest.raises(DataError, match='gone: cannot be read'):
    fit(with_vectors(config, tmp_path / 'gone'), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


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
