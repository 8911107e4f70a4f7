"""Draws a dev and a test split, the same ones in every run."""

from array import array
from collections.abc import Mapping
import hashlib

import numpy as np

from xjax.core.errors import DataError
from xjax.data.schema import Document

_FEWEST = 10  # documents that can be divided


def text_key(document: Document, seed: int) -> int:
  """Returns a pseudo-random number that depends on a text and a seed alone.

  Args:
    document: the document; its id and its labels do not matter.
    seed: int, any number.

  Returns:
    An integer from 0 to 2**64 - 1.
  """
  key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
  digest = hashlib.blake2b(document.text().encode(), key=key, digest_size=8)
  return int.from_bytes(digest.digest(), 'little')


def draw_splits(
  keys: array, shares: Mapping[str, float], source: str
) -> dict[str, np.ndarray]:
  """Divides documents into train and the named splits.

  The documents are ranked by their keys, so the order of the source does not
  matter, and a few further documents change little. Documents with the same key
  have the same text and come into the same split.

  Args:
    keys: uint64 of the N documents (see text_key).
    shares: name of a split -> its share of the documents, above 0.
    source: name of the source, for messages.

  Returns:
    Name -> rows of the documents, ascending: train first, then the splits of
    `shares`. Each split has at least one document.

  Raises:
    DataError: there are too few documents, or too few different texts.
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
