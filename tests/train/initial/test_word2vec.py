"""Word vectors: their training, and where it stands on disk."""

import dataclasses
import functools
import logging
import os
import shutil

from gensim.models import KeyedVectors, Word2Vec
import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import locked
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData, make_synthetic
from xjax.data.load import load_corpus
from xjax.data.text.word_vectors import read_word_vectors
from xjax.data.text.words import Vocabulary, split_words
from xjax.train.initial import word2vec
from xjax.train.initial.word2vec import WordTraining, train_word_vectors

DATA = SyntheticData(n_train=120, n_dev=0, n_test=0, n_labels=32)
TRAINING = WordTraining(dim=12, epochs=3, min_count=3, seed=5)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  """The file and the state of training that nothing interrupted."""
  path = tmp_path_factory.mktemp('vectors') / 'l2v.bin'
  return path, train_word_vectors(DATA, TRAINING, path, workers=1)


def interrupted(monkeypatch, path, after):
  """Trains until so many epochs are saved, then stops in the middle."""
  save = word2vec.save_state

  def save_or_stop(file, settings, state):
    if state.epoch > after:
      raise KeyboardInterrupt
    save(file, settings, state)

  with monkeypatch.context() as patch:
    patch.setattr(word2vec, 'save_state', save_or_stop)
    with pytest.raises(KeyboardInterrupt):
      train_word_vectors(DATA, TRAINING, path, workers=1)
  assert not path.exists()


def counted():
  """The words of train and their counts, by a plain look."""
  counts = {}
  for document in make_synthetic(DATA)[1]['train']:
    for word in split_words(document.text()):
      counts[word] = counts.get(word, 0) + 1
  return counts


def test_what_is_written_is_read(trained):
  path, state = trained
  assert state.epoch == 3
  counts = counted()
  kept = [word for word, n in counts.items() if n >= 3]
  assert 20 < len(kept) < len(counts)
  assert sorted(state.words) == sorted(kept)
  assert state.counts.tolist() == [counts[word] for word in state.words]
  assert state.counts.tolist() == sorted(state.counts, reverse=True)
  words = read_word_vectors(path, Vocabulary(state.words))
  np.testing.assert_array_equal(words.vectors[2:], state.vectors)
  theirs = KeyedVectors.load_word2vec_format(path, binary=True)
  np.testing.assert_array_equal(theirs.vectors, state.vectors)


def test_one_process_at_a_time_trains_the_vectors_of_a_file(
  trained, tmp_path, monkeypatch
):
  now = functools.partial(locked, wait=0)
  monkeypatch.setattr('xjax.train.initial.word2vec.locked', now)
  path = tmp_path / 'new' / 'l2v.bin'
  with locked(f'{path}.state'):
    with pytest.raises(ConfigError, match='another process is running here'):
      train_word_vectors(DATA, TRAINING, path, workers=1)
  assert list(tmp_path.iterdir()) == []
  train_word_vectors(DATA, TRAINING, path, workers=1)
  assert path.read_bytes() == trained[0].read_bytes()


def test_the_next_start_removes_what_a_killed_one_left(
  trained, tmp_path, monkeypatch
):
  path = tmp_path / 'l2v[1].bin'
  interrupted(monkeypatch, path, 1)
  dead = f'xjax-{os.getpid()}-abcdefgh.tmp'
  others = [tmp_path / f'.other.bin.{dead}', tmp_path / '.l2v[1].bin.mine.tmp']
  state = tmp_path / 'l2v[1].bin.state'
  left = [state / f'.state.npz.{dead}', tmp_path / f'.l2v[1].bin.{dead}']
  for file in (*others, *left):
    file.touch()
  train_word_vectors(DATA, TRAINING, path, workers=1)
  assert path.read_bytes() == trained[0].read_bytes()
  assert {*tmp_path.iterdir()} == {*others, path, state}
  assert [file.name for file in state.iterdir()] == ['state.npz']


@pytest.mark.parametrize('after', [0, 2])
def test_goes_on_bit_for_bit(trained, tmp_path, monkeypatch, caplog, after):
  path = tmp_path / 'l2v.bin'
  interrupted(monkeypatch, path, after)
  caplog.clear()
  caplog.set_level(logging.INFO)
  train_word_vectors(DATA, TRAINING, path, workers=1)
  assert path.read_bytes() == trained[0].read_bytes()
  assert ('resuming after epoch 2' in caplog.text) == (after == 2)
  assert 'epoch 3 of 3' in caplog.text
  assert ('epoch 1 of 3' in caplog.text) == (after == 0)


def test_a_finished_one_is_not_trained_again(trained, monkeypatch):
  path, state = trained
  before = path.read_bytes()
  path.unlink()
  monkeypatch.setattr(Word2Vec, 'train', None)
  again = train_word_vectors(DATA, TRAINING, path, workers=2)
  assert path.read_bytes() == before
  np.testing.assert_array_equal(again.contexts, state.contexts)


def test_learns_as_gensim_alone_does(tmp_path):
  """Against gensim's own loop over the epochs: rate and words are the same."""
  training = dataclasses.replace(TRAINING, epochs=1)
  path = tmp_path / 'l2v.bin'
  state = train_word_vectors(DATA, training, path, workers=1)
  texts = [split_words(d.text()) for d in make_synthetic(DATA)[1]['train']]
  known = set(state.words)
  texts = [[word for word in text if word in known] for text in texts]
  model = Word2Vec(
    vector_size=12, min_count=1, sg=1, workers=1, sorted_vocab=0, seed=5
  )
  counts = dict(zip(state.words, state.counts.tolist(), strict=True))
  model.build_vocab_from_freq(counts)
  seeds = np.random.SeedSequence([5, 0])
  model.random = np.random.RandomState(np.random.MT19937(seeds))
  model.train(texts, total_words=sum(map(len, texts)), epochs=1)
  np.testing.assert_array_equal(model.wv.vectors, state.vectors)


@pytest.mark.parametrize(
  ('field', 'value', 'name'),
  [
    ('dim', 13, '--dim: 12 -> 13'),
    ('epochs', 9, '--epochs: 3 -> 9'),
    ('skipgram', False, '--skipgram: True -> False'),
    ('seed', 6, '--config.seed: 5 -> 6'),
  ],
)
def test_other_settings_are_refused(trained, field, value, name):
  path, _ = trained
  other = dataclasses.replace(TRAINING, **{field: value})
  with pytest.raises(ConfigError, match=name) as caught:
    train_word_vectors(DATA, other, path, workers=1)
  assert str(caught.value).count(' -> ') == 1


def test_other_documents_are_refused(trained):
  data = dataclasses.replace(DATA, n_train=121)
  with pytest.raises(ConfigError, match='digest of the documents'):
    train_word_vectors(data, TRAINING, trained[0], workers=1)


def test_a_file_of_the_users_is_left_alone(tmp_path):
  path = tmp_path / 'law2vec.bin'
  path.write_text('mine')
  with pytest.raises(ConfigError, match='exists without'):
    train_word_vectors(DATA, TRAINING, path, workers=1)
  assert path.read_text() == 'mine'


def test_nothing_to_train(tmp_path):
  rare = dataclasses.replace(TRAINING, min_count=10**6)
  says = r'no word is frequent enough .* of train \(--min_count=1000000\);'
  with pytest.raises(DataError, match=says):
    train_word_vectors(DATA, rare, tmp_path / 'v', workers=1)
  assert not list(tmp_path.iterdir())


def test_the_whole_of_long_documents_is_read(tmp_path, monkeypatch):
  text = 'a b ' * 12_000 + 'last ' * 3
  row = f'{{"id": "1", "text": "{text}", "labels": ["x"]}}\n'
  (tmp_path / 'train.jsonl').write_text(row)
  seen = []
  monkeypatch.setattr(
    Word2Vec, 'train', lambda self, texts, **rest: seen.extend(texts)
  )
  data = JsonlData(dir=str(tmp_path))
  training = dataclasses.replace(TRAINING, epochs=1)
  train_word_vectors(data, training, tmp_path / 'v', workers=1)
  assert [len(piece) for piece in seen] == [10_000, 10_000, 4_003]
  assert seen[-1][-1] == 'last'


def test_only_the_zones_of_the_config_are_read(tmp_path):
  zones = '{"title": "a a", "body": "b b"}'
  row = f'{{"id": "1", "zones": {zones}, "labels": ["x"]}}\n'
  (tmp_path / 'train.jsonl').write_text(row)
  data = JsonlData(dir=str(tmp_path), zones=('title',))
  training = WordTraining(dim=2, epochs=1)
  state = train_word_vectors(data, training, tmp_path / 'v', workers=1)
  assert state.words == ('a',)
  settings = np.load(tmp_path / 'v.state' / 'state.npz')['settings']
  assert load_corpus(data, 0).split('train').digest in str(settings)


def test_a_damaged_state_is_one_error(trained, tmp_path):
  path = tmp_path / 'l2v.bin'
  shutil.copytree(f'{trained[0]}.state', f'{path}.state')
  state = tmp_path / 'l2v.bin.state' / 'state.npz'
  arrays = dict(np.load(state))
  np.savez(state, **arrays | {'counts': arrays['counts'][1:]})
  with pytest.raises(DataError, match=r'state.npz: counts: is int64'):
    train_word_vectors(DATA, TRAINING, path, workers=1)
  whole = state.read_bytes()
  for size in range(0, len(whole), 1000):
    state.write_bytes(whole[:size])
    with pytest.raises(DataError, match='state.npz: .*damaged'):
      train_word_vectors(DATA, TRAINING, path, workers=1)
