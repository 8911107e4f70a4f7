"""A new run whose words begin with pretrained vectors."""

from collections.abc import Sequence
import dataclasses
import os

import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.text.subwords import Subwords
from xjax.data.text.word_vectors import read_word_vectors, vector_dim
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.score.encoders.contract import InputConfig
from xjax.train.parameters import (
  WORD_VECTORS,
  by_path,
  from_paths,
  replace_values,
)
from xjax.train.state import TrainState


def matching_rows(
  ours: Sequence[str | None], theirs: Sequence[str | None]
) -> np.ndarray:
  """int64 [len(ours)]: row of each name in theirs, -1 where it has none.

  None is no name.
  """
  index = {name: row for row, name in enumerate(theirs) if name is not None}
  return np.array([index.get(name, -1) for name in ours], np.int64)


def word_rows(ours: Vocabulary, theirs: Vocabulary) -> np.ndarray:
  """int64 [len(ours)]: as matching_rows; padding and the unknown word are alike."""
  found = matching_rows(ours.words, theirs.words)
  shifted = np.where(found < 0, -1, found + FIRST_WORD_ID)
  return np.concatenate([np.arange(FIRST_WORD_ID), shifted])


def piece_rows(ours: Subwords, theirs: Subwords) -> np.ndarray:
  """int64 [len(ours)]: as matching_rows, special tokens by their names as well."""
  return matching_rows(ours.pieces, theirs.pieces)


def replace_rows(
  own: np.ndarray, rows: np.ndarray, other: np.ndarray
) -> np.ndarray:
  """A table with rows of another's, where that has them.

  Args:
    own: [R, ...].
    rows: int64 [at most R], of the other's for the first of own; -1: none.
    other: [any, ...], of the same further axes.

  Returns:
    As own, a copy.
  """
  mixed = own.copy()
  found = np.flatnonzero(rows >= 0)
  mixed[found] = other[rows[found]]
  return mixed


def check_word_vectors(config: InputConfig) -> None:
  """Refuses a file of vectors before anything is made for a run.

  Raises:
    ConfigError: they have another dimension than the embedding.
    DataError: the file cannot be read, or is none of vectors.
  """
  path = _path(config)
  dim = vector_dim(path) if path else None
  if dim is not None and dim != config.dim:
    raise ConfigError(
      f'config.model.embedding.dim={config.dim}: the vectors of {path} have '
      f'{dim} dimensions; both must be the same'
    )


def start_words(
  state: TrainState, config: InputConfig, vocab: Vocabulary
) -> tuple[TrainState, np.ndarray | None]:
  """Puts the pretrained vectors, if the config names any, in a fresh state.

  Words that the file lacks, padding and the unknown word keep what they have.

  Args:
    state: fresh; its word vectors are used up.
    config: of the embedding.
    vocab: numbers the words.

  Returns:
    The state, sharded as before.
    found: bool [vocabulary], the words that the file has; None: no file.

  Raises:
    ConfigError: the vectors have another dimension than the embedding.
    DataError: the file cannot be read, or has a fault.
  """
  path = _path(config)
  if not path:
    return state, None
  check_word_vectors(config)
  words = read_word_vectors(path, vocab)
  params = by_path(state.params)
  params[WORD_VECTORS] = replace_values(
    params[WORD_VECTORS], words.found[:, None], words.vectors
  )
  params = from_paths(state.params, params)
  return dataclasses.replace(state, params=params), words.found


def _path(config: InputConfig) -> str:
  """The file of vectors; empty: none."""
  return os.path.expanduser(config.vectors)
