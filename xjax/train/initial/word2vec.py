"""Trains word vectors with gensim's word2vec, and can resume the training."""

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import functools
import glob
import json
import os
import pathlib
import time
from typing import Any

from absl import logging
from gensim.models import Word2Vec
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import remove_temporaries, write_npz
from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import locked
from xjax.core.progress import progress
from xjax.core.types import Ragged
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import load_corpus
from xjax.data.schema import Split
from xjax.data.text.token_cache import default_cache_dir, tokenise
from xjax.data.text.word_vectors import write_word_vectors
from xjax.data.text.words import (
  FIRST_WORD_ID,
  WORDS_VERSION,
  Vocabulary,
  split_words,
)
from xjax.train.preemption import Preemption


@dataclasses.dataclass(frozen=True, eq=False)
class WordState:
  """Holds the state after an epoch, from which training can continue."""

  epoch: int  # number of finished epochs
  words: tuple[str, ...]  # n words, most frequent first
  counts: np.ndarray  # [n], occurrences of each word
  vectors: np.ndarray  # [n, E], the result of training
  contexts: np.ndarray  # [n, E], used when a word is the neighbour of another


def save_state(
  path: pathlib.Path, settings: Mapping[str, Any], state: WordState
) -> None:
  """Writes the settings and the state of a training to one file."""
  texts = {
    'words': np.array('\n'.join(state.words)),
    'settings': np.array(json.dumps(dict(settings))),
  }
  write_npz(path, {**vars(state), **texts, 'epoch': np.int64(state.epoch)})


def load_state(path: pathlib.Path, settings: Mapping[str, Any]) -> WordState:
  """Reads the state of a training that was started with the same settings."""
  arrays = Arrays.read(path)
  before = json.loads(arrays.text('settings'))
  differences = [
    f'  {name}: {before.get(name)} -> {settings.get(name)}'
    for name in dict.fromkeys((*before, *settings))
    if before.get(name) != settings.get(name)
  ]
  if differences:
    raise ConfigError(
      f'{path.parent} was started with other settings:\n'
      + '\n'.join(differences)
      + '\nchoose another output, or remove this folder to start again'
    )
  words = tuple(arrays.text('words').split('\n'))
  shape = len(words), settings['--dim']
  state = WordState(
    arrays.count('epoch'),
    words,
    arrays.take('counts', np.int64, shape[:1]),
    arrays.take('vectors', np.float32, shape),
    arrays.take('contexts', np.float32, shape),
  )
  arrays.finish()
  return state


_ALL = 2**31 - 1  # longest document in words, so that nothing is cut off
_PIECE = 10_000  # gensim reads at most this many words of a text
_RATES = 0.025, 0.0001  # learning rates at the start and at the end


@dataclasses.dataclass(frozen=True)
class WordTraining:
  dim: int = 200  # size of a vector
  window: int = 5  # largest number of neighbours of a word on each side
  epochs: int = 5
  min_count: int = 2  # words that are rarer get no vector
  # A word predicts each of its neighbours, which is better for rare words. If
  # False, the mean of the neighbours predicts the word (CBOW), which is a few
  # times faster.
  skipgram: bool = True
  seed: int = 0


def train_word_vectors(
  data: DataConfig,
  training: WordTraining,
  output: str | os.PathLike,
  workers: int,
) -> WordState:
  """Trains word vectors on the train split, or resumes training.

  The method is word2vec (Mikolov et al. 2013) with negative sampling. The L2V
  vectors of Chalkidis and Kampas 2018 also come from word2vec. Training reads
  the same zones and words as models do. Documents are not cut.

  The state after each epoch is saved in OUTPUT.state. If training is stopped,
  the same call continues from the saved state. With one worker, the result is
  the same, bit for bit, whether training was stopped or not. With more, results
  differ from call to call. Only one process at a time trains the vectors of an
  output, a file in word2vec's binary format.

  Raises:
    ConfigError: another process trains these vectors; the output exists, but
      OUTPUT.state does not; or training was started with other settings.
    DataError: the corpus or OUTPUT.state has a fault, or no word is frequent
      enough.
    Preempted: SIGTERM or Ctrl-C came; another call continues the training.
  """
  path = pathlib.Path(os.path.expanduser(output))
  saved = path.with_name(f'{path.name}.state') / 'state.npz'
  with Preemption() as preemption, locked(saved.parent):
    remove_temporaries(saved.parent)
    remove_temporaries(path.parent, glob.escape(path.name))
    if path.exists() and not saved.exists():
      raise ConfigError(
        f'{path} exists without {saved}, so training cannot be resumed; '
        'choose another output, or remove the file'
      )
    split = load_corpus(data, training.seed, splits=('train',)).split('train')
    settings = _settings(training, split)
    save = functools.partial(save_state, saved, settings)
    if saved.exists():
      state = load_state(saved, settings)
    else:
      save(state := _first_state(split, training))
    if state.epoch < training.epochs:
      tokens = tokenise(
        split, Vocabulary(state.words), _ALL, default_cache_dir(data)
      )
      model = _model(state, training, workers)
      for after in _epochs(model, state, tokens, training):
        with preemption.deferred():
          save(state := after)
    write_word_vectors(path, state.words, state.vectors)
  return state


def _settings(training: WordTraining, split: Split) -> dict[str, object]:
  """Returns the settings that affect the result, by flag or description."""
  fields = dataclasses.asdict(training)
  seed = fields.pop('seed')
  return {f'--{name}': value for name, value in fields.items()} | {
    '--config.seed': seed,
    'digest of the documents': split.digest,
    'version of the words': WORDS_VERSION,
  }


def _first_state(split: Split, training: WordTraining) -> WordState:
  counts = collections.Counter()
  with progress(range(len(split)), 'words of train') as rows:
    for row in rows:
      counts.update(split_words(split.documents[row].text()))
  frequent = [(-n, w) for w, n in counts.items() if n >= training.min_count]
  if not frequent:
    raise DataError(
      'no word is frequent enough in the documents of train '
      f'(--min_count={training.min_count}); set a smaller --min_count, or use '
      'documents with more words'
    )
  words = tuple(word for _, word in sorted(frequent))
  number = np.array([counts[word] for word in words], np.int64)
  logging.info('%d words with %d occurrences', len(words), number.sum())
  zeros = np.zeros((len(words), training.dim), np.float32)
  model = _model(WordState(0, words, number, zeros, zeros), training, 1)
  # gensim has drawn these vectors from the seed.
  return WordState(0, words, number, model.wv.vectors, model.syn1neg)


def _model(state: WordState, training: WordTraining, workers: int) -> Word2Vec:
  model = Word2Vec(
    vector_size=training.dim,
    window=training.window,
    min_count=1,
    sg=int(training.skipgram),
    negative=5,
    sample=1e-3,
    workers=workers,
    # The words are sorted already. gensim may sort equally frequent words
    # differently in another call.
    sorted_vocab=0,
    seed=training.seed,
  )
  counts = state.counts.tolist()
  model.build_vocab_from_freq(dict(zip(state.words, counts, strict=True)))
  return model


def _epochs(
  model: Word2Vec, state: WordState, tokens: Ragged, training: WordTraining
) -> Iterator[WordState]:
  """Trains the remaining epochs; yields the state, which shares arrays."""
  if state.epoch:
    logging.info('resuming after epoch %d', state.epoch)
  model.wv.vectors[:] = state.vectors
  model.syn1neg[:] = state.contexts
  first, last = _RATES
  rates = np.linspace(first, last, training.epochs + 1).tolist()
  for epoch in range(state.epoch, training.epochs):
    start, title = time.monotonic(), f'epoch {epoch + 1} of {training.epochs}'
    # The random generator of an epoch depends only on the seed and the epoch.
    # So the generator need not be saved.
    seeds = np.random.SeedSequence([training.seed, epoch])
    model.random = np.random.RandomState(np.random.MT19937(seeds))
    model.train(
      _Texts(tokens, state.words, title),
      total_words=int(state.counts.sum()),
      epochs=1,
      start_alpha=rates[epoch],
      end_alpha=rates[epoch + 1],
    )
    logging.info('%s: %.1f s', title, time.monotonic() - start)
    yield dataclasses.replace(
      state, epoch=epoch + 1, vectors=model.wv.vectors, contexts=model.syn1neg
    )


class _Texts:
  """Yields the words with vectors, in pieces that gensim does not cut."""

  def __init__(
    self, tokens: Ragged, words: tuple[str, ...], title: str
  ) -> None:
    self._tokens = tokens
    self._words = np.array(words, object)
    self._title = title

  def __iter__(self) -> Iterator[list[str]]:
    with progress(range(len(self._tokens)), self._title) as rows:
      for row in rows:
        ids = self._tokens[row]
        words = self._words[ids[ids >= FIRST_WORD_ID] - FIRST_WORD_ID].tolist()
        for start in range(0, len(words), _PIECE):
          yield words[start : start + _PIECE]
