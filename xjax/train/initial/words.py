"""Starts a run from pretrained word vectors, and matches vocabularies."""

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
  """Finds the rows in which `theirs` has the names of `ours`.

  Args:
    ours, theirs: names; None stands for no name and matches nothing.

  Returns:
    int64 [len(ours)]; -1: the name has no row in theirs.
  """
  index = {name: row for row, name in enumerate(theirs) if name is not None}
  return np.array([index.get(name, -1) for name in ours], np.int64)


def word_rows(ours: Vocabulary, theirs: Vocabulary) -> np.ndarray:
  """Finds the rows in which the table of `theirs` has the words of `ours`.

  Padding and the unknown word have the same rows in all tables.

  Returns:
    int64 [len(ours)]; -1: the word has no row in theirs.
  """
  rows = matching_rows(ours.words, theirs.words)
  shifted = np.where(rows < 0, -1, rows + FIRST_WORD_ID)
  return np.concatenate([np.arange(FIRST_WORD_ID), shifted])


def piece_rows(ours: Subwords, theirs: Subwords) -> np.ndarray:
  """Finds the rows in which `theirs` has the pieces of `ours`.

  Special tokens are pieces, too.

  Returns:
    int64 [len(ours)]; -1: the piece has no row in theirs.
  """
  return matching_rows(ours.pieces, theirs.pieces)


def replace_rows(
  table: np.ndarray, rows: np.ndarray, other: np.ndarray
) -> np.ndarray:
  """Returns a copy of a table, with some rows taken from another table.

  Args:
    table: [rows, ...], the table.
    rows: int64 [at most the rows of table]; row i of the table becomes row
      rows[i] of other; -1: the row stays.
    other: [any number, ...], the other table, with the same further axes.
  """
  mixed = table.copy()
  replaced = np.flatnonzero(rows >= 0)
  mixed[replaced] = other[rows[replaced]]
  return mixed


def check_word_vectors(config: InputConfig) -> None:
  """Checks the file of word vectors, before any file of the run is written.

  Raises:
    ConfigError: the vectors have another dimension than the embedding.
    DataError: the file cannot be read, or has no word vectors.
  """
  path = _path(config)
  dim = vector_dim(path) if path else None
  if dim is not None and dim != config.dim:
    raise ConfigError(
      f'config.model.embedding.dim={config.dim}: the vectors of {path} have '
      f'{dim} dimensions; both numbers must be the same'
    )


def start_words(
  state: TrainState, config: InputConfig, vocab: Vocabulary
) -> tuple[TrainState, np.ndarray | None]:
  """Replaces the initial word vectors by pretrained vectors, if any.

  Padding, the unknown word, and words that the file lacks keep their vectors.

  Args:
    state: initial state; do not use its word vectors afterwards.
    config: config of the embedding.
    vocab: vocabulary that numbers the words.

  Returns:
    state: the new state, sharded as before.
    has_vector: bool [vocabulary], words that the file has; None: no file.

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
    params[WORD_VECTORS], words.has_vector[:, None], words.vectors
  )
  params = from_paths(state.params, params)
  return dataclasses.replace(state, params=params), words.has_vector


def _path(config: InputConfig) -> str:
  """Returns the path of the file of vectors; empty: no file."""
  return os.path.expanduser(config.vectors)
