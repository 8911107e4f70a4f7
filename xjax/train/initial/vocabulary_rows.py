"""Where the words of a run are in the table of another run."""

from collections.abc import Sequence

import numpy as np

from xjax.data.text.subwords import Subwords
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary


def matches(
  ours: Sequence[str | None], theirs: Sequence[str | None]
) -> np.ndarray:
  """int64 [len(ours)]: row of each name in theirs, -1 where it has none.

  None is no name.
  """
  index = {name: row for row, name in enumerate(theirs) if name is not None}
  return np.array([index.get(name, -1) for name in ours], np.int64)


def word_rows(ours: Vocabulary, theirs: Vocabulary) -> np.ndarray:
  """int64 [len(ours)]: as matches; padding and the unknown word are alike."""
  found = matches(ours.words, theirs.words)
  shifted = np.where(found < 0, -1, found + FIRST_WORD_ID)
  return np.concatenate([np.arange(FIRST_WORD_ID), shifted])


def piece_rows(ours: Subwords, theirs: Subwords) -> np.ndarray:
  """int64 [len(ours)]: as matches, special tokens by their names as well."""
  return matches(ours.pieces, theirs.pieces)


def with_rows(
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
