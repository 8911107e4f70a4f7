"""The descriptors of a run's labels: made at its start, kept for new labels."""

import dataclasses
import os

from absl import logging
import jax
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import atomic_write
from xjax.core.distributed import is_host0
from xjax.data.text.word_vectors import WordVectors
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.train.initial.vocabulary_rows import with_rows, word_rows
from xjax.train.initial.warm_start import DESCRIPTORS, WORD_VECTORS, with_values
from xjax.train.state import TrainState, by_path, from_paths
from xjax.train.workdir import Workdir


def words_of(
  state: TrainState,
  vocab: Vocabulary,
  found: np.ndarray | None,
  describer: Workdir | None = None,
) -> WordVectors:
  """The word vectors that the descriptors of a new run are made of.

  Args:
    state: fresh, with what is pretrained in it.
    vocab: its words.
    found: bool [vocabulary], the pretrained words; None: nothing is, and all
      words' random vectors tell them apart.
    describer: a run whose descriptors were of other vectors than those that it
      ended with: words that it has are as its descriptors have them.

  Raises:
    DataError: a file of the describer is damaged.
  """
  if found is None:
    found = np.arange(len(vocab)) >= FIRST_WORD_ID
  vectors = np.asarray(by_path(state.params)[WORD_VECTORS])
  if describer is None or not describer.word_vectors.exists():
    return WordVectors(vectors, found)
  there = describer.vocabulary()
  theirs = load_words(describer.word_vectors, there)
  rows = word_rows(vocab, there)
  return WordVectors(
    with_rows(vectors, rows, theirs.vectors),
    with_rows(found, rows, theirs.found),
  )


def start_descriptors(state: TrainState, rows: np.ndarray) -> TrainState:
  """Puts the embeddings of the labels' descriptors in a fresh state.

  Args:
    state: fresh; its descriptors are used up.
    rows: float32 [L, E], of the head's labels in order.

  Returns:
    The state, sharded as before.
  """
  params = by_path(state.params)
  like: jax.Array = params[DESCRIPTORS]
  padded = np.zeros(like.shape, np.float32)
  padded[: len(rows)] = rows
  bare = int((~rows.any(axis=1)).sum())
  if bare and is_host0():
    logging.warning(
      '%d of %d labels have no word with a vector in their descriptors: what '
      'is known of them is their own rows, if the head has any',
      bare,
      len(rows),
    )
  everywhere = np.ones((1, 1), bool)
  params[DESCRIPTORS] = with_values(like, everywhere, padded)
  return dataclasses.replace(state, params=from_paths(state.params, params))


def save_words(path: str | os.PathLike, words: WordVectors) -> None:
  """Writes the vectors that descriptors are made of, as .npz."""
  with atomic_write(path, 'wb') as file:
    np.savez(file, vectors=words.vectors, found=words.found)


def load_words(path: str | os.PathLike, vocab: Vocabulary) -> WordVectors:
  """Reads what save_words wrote.

  Raises:
    DataError: the file is absent, damaged, or of another vocabulary.
  """
  arrays = Arrays.read(path)
  words = WordVectors(
    vectors=arrays.take('vectors', np.float32, (len(vocab), None)),
    found=arrays.take('found', np.bool_, (len(vocab),)),
  )
  arrays.finish()
  return words
