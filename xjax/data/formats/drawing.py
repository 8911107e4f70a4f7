"""Draws splits that a corpus lacks from its training documents."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import dataclasses

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.data.documents import SparseDocuments
from xjax.data.formats.corpus_builder import (
  TRAIN,
  SourceCorpus,
  StoredDocuments,
)
from xjax.data.schema import Split

_FEWEST = 10  # documents that can be drawn from


def missing_shares(
  present: Collection[str], shares: Mapping[str, float]
) -> dict[str, float]:
  """Returns the shares of the splits that are drawn: none if there is a dev."""
  if TRAIN not in present or 'dev' in present:
    return {}
  return {n: x for n, x in shares.items() if x and n not in present}


def draw_missing(
  raw: SourceCorpus,
  shares: Mapping[str, float],
  keys_of: Callable[[Sequence], Iterable[int]],
) -> SourceCorpus:
  """Draws the splits in `shares` from train (see draw_splits).

  `keys_of` makes the keys of the documents. Texts that differ only in case,
  white space or Unicode form have the smallest of their keys.
  """
  if not shares or TRAIN not in raw.splits:
    return raw
  whole = raw.splits[TRAIN]
  keys = np.fromiter(keys_of(whole.documents), np.uint64)
  if whole.text_digests is not None:
    _, text_N = np.unique(whole.text_digests, return_inverse=True)
    least_T = np.full(len(keys), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least_T, text_N, keys)
    keys = least_T[text_N]
  rows = draw_splits(keys, shares, raw.source)
  sizes = ', '.join(f'{len(rows[name])} for {name}' for name in rows)
  logging.info('%s: documents were drawn: %s', raw.source, sizes)
  parts = {name: _part(name, whole, rows[name]) for name in rows}
  parts = {**raw.splits, **parts}
  return dataclasses.replace(raw, splits=parts, drawn=tuple(rows))


def _part(name: str, split: Split, rows: np.ndarray) -> Split:
  documents = split.documents
  if isinstance(documents, SparseDocuments):
    documents = documents.part(rows)
  else:
    documents = StoredDocuments(rows, documents.__getitem__)
  part = split.part(rows, documents, split.gold.take(rows))
  return dataclasses.replace(part, name=name)


def draw_splits(
  keys_N: np.ndarray, shares: Mapping[str, float], source: str
) -> dict[str, np.ndarray]:
  """Divides documents into train and the named splits, by uint64 text keys.

  The documents are ranked by their keys, so the order of the source does not
  matter, and a few further documents change little. Documents with the same key
  have the same text and come into the same split. Rows ascend, and no split is
  empty; too few documents are a DataError.
  """
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
  names = (TRAIN, *shares)
  rows = {n: np.flatnonzero(split_T[text_N] == i) for i, n in enumerate(names)}
  if empty := [name for name in names if not len(rows[name])]:
    raise DataError(
      f'{source}: too few different texts to draw the split {empty[0]}; give '
      'your own split dev'
    )
  return rows
