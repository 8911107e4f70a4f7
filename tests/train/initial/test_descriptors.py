"""Descriptors at the start of a run, and while it trains."""

import dataclasses
import logging

import jax
import numpy as np
import pytest

from tests.fixtures.first_states import first_state, params_of
from xjax.core.errors import DataError
from xjax.core.mesh import LABEL, padded_labels
from xjax.data.load import load_corpus
from xjax.data.text.word_vectors import WordVectors
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.train.checkpoint import read_params
from xjax.train.initial.descriptors import (
  load_words,
  save_words,
  start_descriptors,
)
from xjax.train.parameters import DESCRIPTORS, by_path
from xjax.train.workdir import Workdir

TABLE = 'embedding/table'


@pytest.fixture(scope='module')
def corpus(described_config):
  return load_corpus(described_config.data, described_config.seed)


@pytest.fixture(scope='module')
def vocab(described):
  return Workdir.at(described.workdir).vocabulary()


def test_rows_are_put_in_and_nothing_else_changes(
  all_devices, described_config, corpus, vocab, caplog
):
  caplog.set_level(logging.WARNING)
  mesh = dataclasses.replace(described_config.mesh, data=2, label=4)
  config = dataclasses.replace(described_config, mesh=mesh)
  plan, state, before = first_state(config, corpus.label_space, len(vocab))
  rows = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
  rows[[3, 5]] = 0
  state = start_descriptors(state, rows)
  assert jax.tree.map(lambda x: x.sharding, state) == plan.shardings
  descriptors = by_path(state.params)[DESCRIPTORS]
  assert descriptors.sharding.spec[0] == LABEL
  after = params_of(state)
  np.testing.assert_array_equal(
    after.pop(DESCRIPTORS), np.pad(rows, [(0, padded_labels(16) - 16), (0, 0)])
  )
  for name, values in after.items():
    np.testing.assert_array_equal(values, before[name], err_msg=name)
  assert '2 of 16 labels have no word with a vector' in caplog.text


def test_a_runs_rows_are_means_of_its_words(described, corpus, vocab):
  """By inverse frequency, with alternative names; of held-out labels too."""
  table = read_params(described.workdir / 'checkpoints', 6)[TABLE]
  labels = corpus.label_space.labels
  config = Workdir.at(described.workdir)
  words = load_words(config.word_vectors, vocab)
  np.testing.assert_array_equal(words.vectors, table)
  assert words.has_vector.sum() == len(vocab) - FIRST_WORD_ID
  found = read_params(described.workdir / 'checkpoints', 6)[DESCRIPTORS]
  texts = [' '.join((x.name, *x.alt)).lower().split() for x in labels]
  assert len(labels) == 16 and found.shape == (padded_labels(16), 8)
  for row, text in zip(found, texts):
    shares = [
      np.log(17 / (1 + sum(word in other for other in texts))) + 1
      for word in text
    ]
    vectors = np.array([table[vocab.index[word]] for word in text], float)
    np.testing.assert_allclose(
      row, shares @ vectors / np.sum(shares), rtol=1e-5, atol=1e-6
    )
  assert not found[16:].any()


def test_unseen_and_hidden_labels_keep_their_empty_rows(described, corpus):
  params = read_params(described.workdir / 'checkpoints', 6)
  space = corpus.label_space
  counts = space.train_counts
  seen, hidden = params['head/seen'] > 0, params['head/hidden'] > 0
  assert hidden.sum() == 2 and not (seen & hidden).any()
  assert ((counts[hidden[:16]] >= 1) & (counts[hidden[:16]] <= 20)).all()
  np.testing.assert_array_equal((seen | hidden)[:16], counts > 0)
  np.testing.assert_array_equal(params['head/own'], params['head/seen'])
  assert not seen[16:].any() and not hidden[16:].any()
  for name in ('head/attention', 'head/output'):
    np.testing.assert_array_equal(params[name].any(axis=1), seen)
  assert params['head/unseen_scale'] != 1 and params['head/unseen_offset'] != 0


def words():
  vectors = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
  return WordVectors(vectors, np.array([False, False, True, False]))


def test_words_of_another_vocabulary(tmp_path):
  save_words(tmp_path / 'words.npz', words())
  other = Vocabulary(('a', 'b', 'c'))
  with pytest.raises(DataError, match=r'vectors: is .* should be .*\[5, any\]'):
    load_words(tmp_path / 'words.npz', other)
