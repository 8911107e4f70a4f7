"""Caches the token ids of a split in a file.

Its name contains a digest of everything that decides the ids. It has the ids of
all documents, and then the number of ids of each document, all as little-endian
int32.
"""

from collections.abc import Iterable, Iterator, Sequence
import functools
import itertools
import os
import pathlib
from typing import Protocol

from absl import logging
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import UserError
from xjax.core.progress import progress
from xjax.core.types import Ragged, offsets_of
from xjax.data.schema import Document, Split, json_digest
from xjax.data.text.words import PAD_ID

_FORMAT = 'xjaxtok3'
_INT32 = np.dtype('<i4')
_SEPARATOR = np.array([PAD_ID], np.int32)  # between two zones
_AT_ONCE = 256  # number of documents that are in memory at the same time


class Tokenizer(Protocol):
  """Describes the interface that Vocabulary and Subwords have in common."""

  digest: str  # hex digest of everything that decides the ids
  pad_id: int
  n_special: int  # special tokens that are added to every text

  def encode_all(
    self, texts: Sequence[str], max_tokens: int | None = None
  ) -> list[np.ndarray]:
    """Returns the ids of each text, int32 [n], with n at most max_tokens."""
    ...


def encode(
  documents: Iterable[Document],
  vocab: Tokenizer,
  max_tokens: int,
  by_zone: bool = False,
) -> Ragged:
  """Returns token ids of documents as tokenise does, but without a cache."""
  return Ragged.of(list(_ids(documents, vocab, max_tokens, by_zone)))


def tokenise(
  split: Split,
  vocab: Tokenizer,
  max_tokens: int,
  cache_dir: str | os.PathLike,
  by_zone: bool = False,
) -> Ragged:
  """Returns the token ids of a split, N memory-mapped rows, from a cache file.

  A document has at most max_tokens tokens; with by_zone, each zone does, and a
  PAD_ID stands between two zones that have words. Documents without words are
  counted in a warning. Several runs can use cache_dir at the same time.
  """
  parts = [_FORMAT, split.digest, len(split), vocab.digest, max_tokens]
  parts += ['by zone'] if by_zone else []
  name = f'{split.name}-{json_digest(*parts)[:32]}.ids'
  path = pathlib.Path(cache_dir) / 'tokens' / name
  try:
    tokens = _read(path, len(split))
    if tokens is None:
      documents = (split.documents[row] for row in range(len(split)))
      _write(path, split, _ids(documents, vocab, max_tokens, by_zone))
      tokens = _read(path, len(split))
  except OSError as error:
    raise UserError(
      f'{path}: cannot be written: {error}; set data.cache_dir to a folder '
      'that can be written'
    ) from error
  if empty := int((tokens.lengths <= vocab.n_special).sum()):
    _warn_empty(split.name, empty, len(split), path)
  return tokens


def _ids(
  documents: Iterable[Document],
  vocab: Tokenizer,
  max_tokens: int,
  by_zone: bool,
) -> Iterator[np.ndarray]:
  documents = iter(documents)
  while chunk := list(itertools.islice(documents, _AT_ONCE)):
    if not by_zone:
      texts = [document.text() for document in chunk]
      yield from vocab.encode_all(texts, max_tokens)
      continue
    for document in chunk:
      texts = [document.text([zone]) for zone in document.zones]
      zones = vocab.encode_all(texts, max_tokens)
      parts = [part for ids in zones if len(ids) for part in (_SEPARATOR, ids)]
      yield np.concatenate(parts[1:] or [_SEPARATOR[:0]])


@functools.cache
def _warn_empty(name: str, empty: int, n: int, path: pathlib.Path) -> None:
  """Logs how many documents have no words, but only once for each path."""
  del path
  logging.warning(
    f'{name}: {empty} of {n} documents have no words in the zones that are read'
  )


def _write(
  path: pathlib.Path, split: Split, rows: Iterable[np.ndarray]
) -> None:
  """Writes a split's ids document by document, to save memory."""
  n = len(split)
  lengths = np.zeros(n, _INT32)
  with atomic_write(path, 'wb') as file:
    with progress(rows, f'tokens of {split.name}', total=n) as ids_by_row:
      for row, ids in enumerate(ids_by_row):
        lengths[row] = len(ids)
        file.write(ids.astype(_INT32, copy=False).data)
    file.write(lengths.data)


def _read(path: pathlib.Path, n: int) -> Ragged | None:
  """Maps a cache file of n documents; None if it is absent or damaged."""
  if not path.exists():
    return None
  size = path.stat().st_size // _INT32.itemsize
  stored = np.zeros(0, _INT32)
  if size:  # an empty file cannot be mapped
    stored = np.memmap(path, _INT32, 'r', shape=size)
  ids, lengths = np.split(stored, [max(size - n, 0)])
  offsets = offsets_of(lengths)
  fits = len(lengths) == n and offsets[-1] == len(ids)
  if fits and lengths.min(initial=0) >= 0:
    return Ragged(offsets, ids)
  logging.warning('the cache file %s is damaged and is made again', path)
  return None
