"""Draws a dev and a test split, the same ones in every run."""

from array import array
from collections.abc import Mapping
import hashlib

import numpy as np

from xjax.core.errors import DataError
from xjax.data.schema import Document

_FEWEST = 10  # documents that can be divided


def text_key(document: Document, seed: int) -> int:
  """Returns a number below 2**64 that depends only on a text and the seed."""
  key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
  digest = hashlib.blake2b(document.text().encode(), key=key, digest_size=8)
  return int.from_bytes(digest.digest(), 'little')


def draw_splits(
  keys: array, shares: Mapping[str, float], source: str
) -> dict[str, np.ndarray]:
  """Divides documents into train and the named splits, by uint64 text keys.

  The documents are ranked by their keys, so the order of the source does not
  matter, and a few further documents change little. Documents with the same key
  have the same text and come into the same split. Rows ascend, and no split is
  empty; too few documents are a DataError.
  """
  keys_N = np.frombuffer(keys, np.uint64)
  if len(keys_N) < _FEWEST:
    raise DataError(
      f'{source}: {len(keys_N)} documents are too few to draw splits; at least '
      f'{_FEWEST} are needed, or your own split dev'
    )
  _, text_N, count_T = np.unique(
    keys_N, return_inverse=True, return_counts=True
  )
  split_T = np.zeros(len(count_T), np.int8)  # 0 is train
  for number, share in enumerate(shares.values(), 1):
    left = max(1, round(share * len(keys_N)))
    # A text with very many copies would fill the split, so it stays in train.
    fits = np.flatnonzero((split_T == 0) & (count_T <= left))
    # One text is left for each of the splits that follow.
    for text in fits[: len(fits) - (len(shares) - number)]:
      if count_T[text] <= left:
        split_T[text] = number
        left -= count_T[text]
      if not left:
        break
  names = ('train', *shares)
  rows = {n: np.flatnonzero(split_T[text_N] == i) for i, n in enumerate(names)}
  if empty := [name for name in names if not len(rows[name])]:
    raise DataError(
      f'{source}: too few different texts to draw the split {empty[0]}; give '
      'your own split dev'
    )
  return rows
