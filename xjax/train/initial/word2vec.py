"""Trains word vectors with gensim's word2vec, and can resume the training."""

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import glob
import json
import os
import pathlib
import time
from typing import Any

from absl import logging
from gensim.models import Word2Vec
import numpy as np

from xjax.core.atomic import remove_temporaries, write_json, write_npz
from xjax.core.errors import DAMAGE, ConfigError, DataError
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

  def is_sound(self) -> bool:
    n = len(self.words)
    return bool(
      len(set(self.words)) == n > 0
      and self.counts.shape == (n,)
      and self.vectors.shape == self.contexts.shape
      and self.vectors.shape[:-1] == (n,)
      and np.isfinite(self.vectors).all()
      and np.isfinite(self.contexts).all()
    )


@dataclasses.dataclass(frozen=True)
class StateFolder:
  """Reads and writes training's state in OUTPUT.state, beside the vectors."""

  path: pathlib.Path

  @property
  def settings(self) -> pathlib.Path:
    return self.path / 'settings.json'

  @property
  def arrays(self) -> pathlib.Path:
    return self.path / 'state.npz'

  def begin(self, settings: Mapping[str, Any], state: WordState) -> None:
    write_json(self.settings, dict(settings))
    self.save(state)

  def compare(self, settings: Mapping[str, Any]) -> None:
    """Checks that training in this folder, if any, had the same settings."""
    if not self.settings.exists():
      return
    before = self._read_settings()
    differences = [
      f'  {name}: {before.get(name)} -> {settings.get(name)}'
      for name in dict.fromkeys((*before, *settings))
      if before.get(name) != settings.get(name)
    ]
    if differences:
      raise ConfigError(
        f'{self.path} was started with other settings:\n'
        + '\n'.join(differences)
        + '\nchoose another output, or remove this folder to start again'
      )

  def _read_settings(self) -> dict[str, Any]:
    try:
      before = json.loads(self.settings.read_text(encoding='utf-8'))
    except DAMAGE as error:
      raise self._damaged(self.settings) from error
    if not isinstance(before, dict):
      raise self._damaged(self.settings)
    return before

  def save(self, state: WordState) -> None:
    text = '\n'.join(state.words).encode()
    arrays = {
      'epoch': np.int64(state.epoch),
      'words': np.frombuffer(text, np.uint8),
      'counts': state.counts,
      'vectors': state.vectors,
      'contexts': state.contexts,
    }
    write_npz(self.arrays, arrays)

  def load(self) -> WordState | None:
    """Reads the saved state, or returns None if there is none yet."""
    if not self.arrays.exists():
      return None
    try:
      # The file is opened here, since NumPy may leave a damaged file open.
      with self.arrays.open('rb') as file:
        state = _state(np.load(file, allow_pickle=False))
    except DAMAGE as error:
      raise self._damaged(self.arrays) from error
    if not state.is_sound():
      raise self._damaged(self.arrays)
    return state

  def _damaged(self, path: pathlib.Path) -> DataError:
    return DataError(
      f'{path}: the file is damaged; remove {self.path} to start again'
    )


def _state(arrays: Mapping[str, np.ndarray]) -> WordState:
  return WordState(
    epoch=int(arrays['epoch']),
    words=tuple(arrays['words'].tobytes().decode().split('\n')),
    counts=arrays['counts'].astype(np.int64, casting='safe'),
    vectors=arrays['vectors'].astype(np.float32, casting='safe'),
    contexts=arrays['contexts'].astype(np.float32, casting='safe'),
  )


_ALL = 2**31 - 1  # longest document in words, so that nothing is cut off
_PIECE = 10_000  # gensim reads at most this many words of a text
_RATES = 0.025, 0.0001  # learning rates at the start and at the end


@dataclasses.dataclass(frozen=True)
class WordTraining:
  """Holds the settings for training word vectors.

  The learning rate falls from the first to the last epoch.
  """

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
  folder = StateFolder(path.with_name(f'{path.name}.state'))
  with Preemption() as preemption, locked(folder.path):
    remove_temporaries(folder.path)
    remove_temporaries(path.parent, glob.escape(path.name))
    if path.exists() and not folder.settings.exists():
      raise ConfigError(
        f'{path} exists without {folder.path}, so training cannot be resumed; '
        'choose another output, or remove the file'
      )
    split = load_corpus(data, training.seed, splits=('train',)).split('train')
    settings = _settings(training, split)
    folder.compare(settings)
    state = folder.load()
    if state is None:
      state = _first_state(split, training)
      folder.begin(settings, state)
    if state.epoch < training.epochs:
      vocab = Vocabulary(state.words)
      tokens = tokenise(split, vocab, _ALL, default_cache_dir(data))
      model = _model(state, training, workers)
      state = _train(model, state, tokens, training, folder, preemption)
    write_word_vectors(path, state.words, state.vectors)
  return state


def _settings(training: WordTraining, split: Split) -> dict[str, object]:
  """Returns the settings that affect the result, by the names of their flags.

  Those without a flag have a short description as their name.
  """
  fields = dataclasses.asdict(training)
  seed = fields.pop('seed')
  return {f'--{name}': value for name, value in fields.items()} | {
    '--config.seed': seed,
    'digest of the documents': split.digest,
    'version of the words': WORDS_VERSION,
  }


def _first_state(split: Split, training: WordTraining) -> WordState:
  """Counts the words, and draws the vectors that training starts from."""
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
  """Builds gensim's model with the words, but not yet with their vectors."""
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


def _train(
  model: Word2Vec,
  state: WordState,
  tokens: Ragged,
  training: WordTraining,
  folder: StateFolder,
  preemption: Preemption,
) -> WordState:
  """Trains the remaining epochs, saves each state, and returns the last one."""
  if state.epoch:
    logging.info('resuming after epoch %d', state.epoch)
  model.wv.vectors[:] = state.vectors
  model.syn1neg[:] = state.contexts
  for epoch in range(state.epoch, training.epochs):
    start = time.monotonic()
    state = _after_epoch(model, state, tokens, training)
    with preemption.deferred():
      folder.save(state)
      seconds = time.monotonic() - start
      text = 'epoch %d of %d: %.1f s'
      logging.info(text, epoch + 1, training.epochs, seconds)
  return state


def _after_epoch(
  model: Word2Vec, state: WordState, tokens: Ragged, training: WordTraining
) -> WordState:
  """Trains one epoch, and returns a state that shares the model's arrays."""
  epoch = state.epoch
  # The random generator of an epoch depends only on the seed and the epoch. So
  # the generator need not be saved.
  seeds = np.random.SeedSequence([training.seed, epoch])
  model.random = np.random.RandomState(np.random.MT19937(seeds))
  first, last = _RATES
  rates = np.linspace(first, last, training.epochs + 1).tolist()
  model.train(
    _Texts(tokens, state.words, f'epoch {epoch + 1}/{training.epochs}'),
    total_words=int(state.counts.sum()),
    epochs=1,
    start_alpha=rates[epoch],
    end_alpha=rates[epoch + 1],
  )
  return dataclasses.replace(
    state,
    epoch=epoch + 1,
    vectors=model.wv.vectors,
    contexts=model.syn1neg,
  )


class _Texts:
  """Yields the words of all documents, in pieces of at most _PIECE words.

  Longer pieces would be cut by gensim. Words without a vector are left out.
  """

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
