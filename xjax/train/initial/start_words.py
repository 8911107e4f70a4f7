"""Starts a run from pretrained word vectors, and matches two vocabularies."""

from collections.abc import Sequence
import os

import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.text.subwords import Subwords
from xjax.data.text.word_vectors import read_word_vectors, vector_dim
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.networks.encoders.encoder import InputConfig
from xjax.train.parameters import WORD_VECTORS, by_path, replace_values
from xjax.train.state import TrainState


def matching_rows(
  ours: Sequence[str | None], theirs: Sequence[str | None]
) -> np.ndarray:
  """Finds the row of each name in `theirs`; -1 for None or an absent name."""
  index = {name: row for row, name in enumerate(theirs) if name is not None}
  return np.array([index.get(name, -1) for name in ours], np.int64)


def word_rows(ours: Vocabulary, theirs: Vocabulary) -> np.ndarray:
  """Finds the row of each word of `ours` in `theirs`; -1 if it is missing."""
  rows = matching_rows(ours.words, theirs.words)
  # Padding and the unknown word have the same first rows in both tables.
  shifted = np.where(rows < 0, -1, rows + FIRST_WORD_ID)
  return np.concatenate([np.arange(FIRST_WORD_ID), shifted])


def piece_rows(ours: Subwords, theirs: Subwords) -> np.ndarray:
  """Finds the row of each piece of `ours` in `theirs`; -1 if it is missing."""
  return matching_rows(ours.pieces, theirs.pieces)


def replace_rows(
  table: np.ndarray, rows: np.ndarray, other: np.ndarray
) -> np.ndarray:
  """Copies `table`; its row i becomes other[rows[i]], if that row exists."""
  mixed = table.copy()
  replaced = np.flatnonzero(rows >= 0)
  mixed[replaced] = other[rows[replaced]]
  return mixed


def check_word_vectors(config: InputConfig) -> None:
  """Checks the size of the word vectors, before any file is written."""
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
  """Replaces the initial word vectors by the pretrained vectors of a file.

  Also returns bool [vocabulary], True for words that the file has; None without
  a file. Do not use the word vectors of `state` afterwards.
  """
  path = _path(config)
  if not path:
    return state, None
  words = read_word_vectors(path, vocab)
  vectors = replace_values(
    by_path(state.params)[WORD_VECTORS],
    words.vectors,
    words.has_vector[:, None],
  )
  return state.with_params({WORD_VECTORS: vectors}), words.has_vector


def _path(config: InputConfig) -> str:
  return os.path.expanduser(config.vectors)
