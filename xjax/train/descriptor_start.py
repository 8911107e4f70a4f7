"""The descriptors of a run's labels: made at its start, kept for new labels."""

from collections.abc import Sequence
import dataclasses
import os

from absl import logging
import jax
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.distributed import is_host0
from xjax.data.schema import Label
from xjax.data.vocab import FIRST_WORD_ID, Vocabulary
from xjax.data.word_vectors import WordVectors
from xjax.evaluate.arrays import Arrays
from xjax.models.descriptors import DescriptorEncoder
from xjax.train.state import TrainState, by_path, from_paths
from xjax.train.warm_start import WORD_VECTORS, with_values

DESCRIPTORS = 'head/descriptors'


def words_of(
  state: TrainState, vocab: Vocabulary, found: np.ndarray | None
) -> WordVectors:
  """The word vectors that a fresh state begins with.

  Args:
    state: fresh, with what is pretrained in it.
    vocab: its words.
    found: bool [vocabulary], the pretrained words; None: nothing is, and all
      words' random vectors tell them apart.
  """
  if found is None:
    found = np.arange(len(vocab)) >= FIRST_WORD_ID
  return WordVectors(np.asarray(by_path(state.params)[WORD_VECTORS]), found)


def start_descriptors(
  state: TrainState, labels: Sequence[Label], encoder: DescriptorEncoder
) -> TrainState:
  """Puts the embeddings of the labels' descriptors in a fresh state.

  Args:
    state: fresh; its descriptors are used up.
    labels: those of the head, in order.
    encoder: of the run.

  Returns:
    The state, sharded as before.
  """
  params = by_path(state.params)
  like: jax.Array = params[DESCRIPTORS]
  rows = np.zeros(like.shape, np.float32)
  rows[: len(labels)] = encoder.encode(labels)
  bare = int((~rows[: len(labels)].any(axis=1)).sum())
  if bare and is_host0():
    logging.warning(
      '%d of %d labels have no word with a vector in their descriptors: what '
      'is known of them is their own rows, if the head has any',
      bare,
      len(labels),
    )
  everywhere = np.ones((1, 1), bool)
  params[DESCRIPTORS] = with_values(like, everywhere, rows)
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
