"""Word vectors trained on a corpus: word2vec, by gensim, to be resumed."""

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import json
import os
import pathlib
import time
from typing import Any

from absl import logging
from gensim.models import Word2Vec
import numpy as np

from xjax.core.atomic import write_json, write_npz
from xjax.core.errors import DAMAGE, ConfigError, DataError
from xjax.core.progress import progress
from xjax.core.types import Ragged
from xjax.data.formats.contract import DataConfig
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
  """All that decides how training goes on.

  Attributes:
    epoch: epochs done.
    words: n of them, most frequent first.
    counts: int64 [n], how often each occurs.
    vectors: float32 [n, E], of words: what training is for.
    contexts: float32 [n, E], of words as neighbours of others.
  """

  epoch: int
  words: tuple[str, ...]
  counts: np.ndarray
  vectors: np.ndarray
  contexts: np.ndarray

  def is_sound(self) -> bool:
    """Whether the arrays go together and are finite."""
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
  """OUTPUT.state, beside the file OUTPUT."""

  path: pathlib.Path

  @property
  def settings(self) -> pathlib.Path:
    """What training was begun with."""
    return self.path / 'settings.json'

  @property
  def arrays(self) -> pathlib.Path:
    """The state after the last epoch."""
    return self.path / 'state.npz'

  def begin(self, settings: Mapping[str, Any], state: WordState) -> None:
    """Notes what training begins with, and saves its first state.

    Args:
      settings: JSON values by what a user calls them.
      state: before the first epoch.

    Raises:
      WriteError: it cannot be written.
    """
    write_json(self.settings, dict(settings))
    self.save(state)

  def compare(self, settings: Mapping[str, Any]) -> None:
    """Sees that training, if it has begun, did so with these settings.

    Args:
      settings: JSON values by what a user calls them.

    Raises:
      ConfigError: it was begun with others; the message names them.
      DataError: the file is damaged.
    """
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
        f'{self.path} was begun with other settings:\n'
        + '\n'.join(differences)
        + '\ntake another output, or remove that folder to begin anew'
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
    """Replaces the state as a whole.

    Raises:
      WriteError: it cannot be written.
    """
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
    """The state saved last; None: there is none yet.

    Raises:
      DataError: the file is damaged.
    """
    if not self.arrays.exists():
      return None
    try:
      # Opened here: of a damaged one, NumPy leaves closing to chance.
      with self.arrays.open('rb') as file:
        state = _state(np.load(file, allow_pickle=False))
    except DAMAGE as error:
      raise self._damaged(self.arrays) from error
    if not state.is_sound():
      raise self._damaged(self.arrays)
    return state

  def _damaged(self, path: pathlib.Path) -> DataError:
    return DataError(
      f'{path}: the file is damaged: remove {self.path} to begin anew'
    )


def _state(arrays: Mapping[str, np.ndarray]) -> WordState:
  return WordState(
    epoch=int(arrays['epoch']),
    words=tuple(arrays['words'].tobytes().decode().split('\n')),
    counts=arrays['counts'].astype(np.int64, casting='safe'),
    vectors=arrays['vectors'].astype(np.float32, casting='safe'),
    contexts=arrays['contexts'].astype(np.float32, casting='safe'),
  )


_ALL = 2**31 - 1  # words of a document
_PIECE = 10_000  # words that gensim reads of a text at most
_RATES = 0.025, 0.0001  # learning rate at the beginning and at the end


@dataclasses.dataclass(frozen=True)
class WordTraining:
  """How word vectors are trained.

  Attributes:
    dim: their size.
    window: neighbours that a word has on either side, at most.
    epochs: passes over the documents; the learning rate falls over them.
    min_count: rarer words get no vector.
    skipgram: a word predicts each of its neighbours, which suits rare words;
      or else their mean predicts it (CBOW), which is a few times faster.
    seed: of what is drawn.
  """

  dim: int = 200
  window: int = 5
  epochs: int = 5
  min_count: int = 2
  skipgram: bool = True
  seed: int = 0


def train_word_vectors(
  data: DataConfig,
  training: WordTraining,
  output: str | os.PathLike,
  workers: int,
) -> WordState:
  """Trains word vectors on the train split, or goes on where it was left.

  word2vec (Mikolov et al. 2013) with negative sampling, on the words and zones
  that models read, of whole documents, as the L2V vectors of Chalkidis and
  Kampas 2018. The state after each epoch is kept in OUTPUT.state, from which
  the same call goes on. With one worker the result is the same, bit for bit,
  whether it was interrupted or not.

  Args:
    data: the corpus.
    training: how.
    output: the file to write, in word2vec's binary format.
    workers: threads; with more than one no two results are the same.

  Returns:
    The state after the last epoch.

  Raises:
    ConfigError: the output is there and not of this training, or it was begun
      with other settings.
    DataError: faults in the corpus or in OUTPUT.state, or no words in it.
    Preempted: SIGTERM came; calling again goes on.
  """
  path = pathlib.Path(os.path.expanduser(output))
  folder = StateFolder(path.with_name(f'{path.name}.state'))
  if path.exists() and not folder.settings.exists():
    raise ConfigError(
      f'{path}: is there already, and {folder.path} is not: take another '
      'output, or remove the file'
    )
  with Preemption() as preemption:
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
  """All that decides the result, by what a user calls it."""
  fields = dataclasses.asdict(training)
  seed = fields.pop('seed')
  return {f'--{name}': value for name, value in fields.items()} | {
    '--config.seed': seed,
    'digest of the documents': split.digest,
    'version of the words': WORDS_VERSION,
  }


def _first_state(split: Split, training: WordTraining) -> WordState:
  """The words that get vectors, and the vectors that training begins with."""
  counts = collections.Counter()
  with progress(range(len(split)), 'words of train') as rows:
    for row in rows:
      counts.update(split_words(split.documents[row].text()))
  kept = [(-n, w) for w, n in counts.items() if n >= training.min_count]
  if not kept:
    raise DataError(
      f'no word is {training.min_count} times in the documents of train: there '
      'is nothing to train'
    )
  words = tuple(word for _, word in sorted(kept))
  number = np.array([counts[word] for word in words], np.int64)
  logging.info('%d words, %d times in all', len(words), number.sum())
  none = np.zeros((len(words), training.dim), np.float32)
  model = _model(WordState(0, words, number, none, none), training, 1)
  # What gensim has drawn from the seed.
  return WordState(0, words, number, model.wv.vectors, model.syn1neg)


def _model(state: WordState, training: WordTraining, workers: int) -> Word2Vec:
  """A model of gensim's that has the words but not yet the vectors."""
  model = Word2Vec(
    vector_size=training.dim,
    window=training.window,
    min_count=1,
    sg=int(training.skipgram),
    negative=5,
    sample=1e-3,
    workers=workers,
    sorted_vocab=0,  # they are; and gensim's order among equals may vary
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
  """The state after all epochs; each is saved."""
  if state.epoch:
    logging.info('resuming after epoch %d', state.epoch)
  model.wv.vectors[:] = state.vectors
  model.syn1neg[:] = state.contexts
  for epoch in range(state.epoch, training.epochs):
    started = time.monotonic()
    state = _after_epoch(model, state, tokens, training)
    with preemption.deferred():
      folder.save(state)
      seconds = time.monotonic() - started
      text = 'epoch %d of %d: %.1f s'
      logging.info(text, epoch + 1, training.epochs, seconds)
  return state


def _after_epoch(
  model: Word2Vec, state: WordState, tokens: Ragged, training: WordTraining
) -> WordState:
  """The state after one more epoch; its arrays are the model's own."""
  epoch = state.epoch
  # Each epoch has a generator of its own: nothing else has to be kept.
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
  """The known words of all documents, in pieces that gensim reads whole.

  Args:
    tokens: ids of words by document.
    words: the known ones, by id from FIRST_WORD_ID on.
    title: of the progress bar.
  """

  def __init__(self, tokens: Ragged, words: tuple[str, ...], title: str):
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
