"""Word vectors: what is trained on, and what is written."""

import collections
import dataclasses

from gensim.models import KeyedVectors, Word2Vec
import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.text.word_vectors import read_word_vectors
from xjax.data.text.words import Vocabulary, split_words
from xjax.train.initial.word2vec import WordTraining, train_word_vectors

DATA = SyntheticData(n_train=40, n_dev=0, n_test=0, n_labels=32)
TRAINING = WordTraining(dim=12, epochs=2, min_count=3, seed=5)


def test_the_same_words_and_vectors_each_time(tmp_path):
  first, again = tmp_path / 'new' / 'l2v.bin', tmp_path / 'again.bin'
  n = train_word_vectors(DATA, TRAINING, first, workers=1)
  train_word_vectors(DATA, TRAINING, again, workers=1)
  assert first.read_bytes() == again.read_bytes()
  counts = collections.Counter()
  for document in make_synthetic(DATA)[1]['train']:
    counts.update(split_words(document.text()))
  kept = [word for word, count in counts.items() if count >= 3]
  theirs = KeyedVectors.load_word2vec_format(first, binary=True)
  assert 20 < n == len(kept) < len(counts)
  assert sorted(theirs.index_to_key) == sorted(kept)
  sizes = [counts[word] for word in theirs.index_to_key]
  assert sizes == sorted(sizes, reverse=True)
  words = read_word_vectors(first, Vocabulary(tuple(theirs.index_to_key)))
  np.testing.assert_array_equal(words.vectors[2:], theirs.vectors)
  with pytest.raises(ConfigError, match='l2v.bin: exists; choose another'):
    train_word_vectors(DATA, TRAINING, first, workers=1)


def test_nothing_to_train(tmp_path):
  rare = dataclasses.replace(TRAINING, min_count=10**6)
  says = r'no word is frequent enough .* of train \(--min_count=1000000\);'
  with pytest.raises(DataError, match=says):
    train_word_vectors(DATA, rare, tmp_path / 'v', workers=1)
  assert not list(tmp_path.iterdir())


def test_the_whole_of_long_documents_is_read_in_the_zones_of_the_config(
  tmp_path, monkeypatch
):
  title = 'a b ' * 12_000 + 'last ' * 3
  row = f'{{"id": "1", "zones": {{"title": "{title}", "body": "c"}}'
  (tmp_path / 'train.jsonl').write_text(row + ', "labels": ["x"]}\n')
  seen = []
  monkeypatch.setattr(
    Word2Vec, 'train', lambda self, texts, **rest: seen.extend(texts)
  )
  data = JsonlData(dir=str(tmp_path), zones=('title',))
  n = train_word_vectors(data, TRAINING, tmp_path / 'v', workers=1)
  assert [len(piece) for piece in seen] == [10_000, 10_000, 4_003]
  assert seen[-1][-1] == 'last' and n == 3
