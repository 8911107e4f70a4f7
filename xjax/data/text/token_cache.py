"""Token ids of a split, in a file that is made once per content.

A cache file is all ids end to end, then the length of each document (both
little-endian int32), then a trailer with both counts and a SHA-256 of all
before it. Its name is a digest of all that decides the ids.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import functools
import hashlib
import itertools
import json
import os
import pathlib
import struct
import tempfile
from typing import IO, Protocol

from absl import logging
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import UserError
from xjax.core.progress import progress
from xjax.core.types import Ragged
from xjax.data.formats.contract import DataConfig
from xjax.data.schema import Document, Split
from xjax.data.text.words import PAD_ID

_FORMAT = b'xjaxtok1'
_TRAILER = struct.Struct('<8sqq32s')  # format, ids, documents, checksum
_INT32 = np.dtype('<i4')
_BETWEEN = np.array([PAD_ID], np.int32)
_AT_ONCE = 256  # documents that memory holds


class Tokenizer(Protocol):
  """What numbers tokens: a Vocabulary, or Subwords.

  Attributes:
    digest: of all that decides the ids.
    pad_id: the id that pads.
    n_special: tokens that even an empty text has.
  """

  digest: str
  pad_id: int
  n_special: int

  def encode_all(
    self, texts: Sequence[str], max_tokens: int | None = None
  ) -> list[np.ndarray]:
    """int32 [n] of each text, n at most max_tokens."""
    ...


def default_cache_dir(config: DataConfig) -> pathlib.Path:
  """Where prepared data goes: the config's folder, else the user's.

  A config may come from another machine: where its folder cannot be used here,
  the user's is taken, and a line says so, once.
  """
  default = os.environ.get('XJAX_CACHE_DIR') or '~/.cache/xjax'
  usual = pathlib.Path(default).expanduser()
  if not config.cache_dir:
    return usual
  folder = pathlib.Path(config.cache_dir).expanduser()
  return folder if _can_be_used(folder, usual) else usual


@functools.cache
def _can_be_used(folder: pathlib.Path, instead: pathlib.Path) -> bool:
  try:
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    logging.warning(
      'data.cache_dir=%s cannot be used (%s): %s is used instead',
      folder,
      error.strerror,
      instead,
    )
    return False
  return True


def encode(
  documents: Iterable[Document],
  vocab: Tokenizer,
  max_tokens: int,
  by_zone: bool = False,
) -> Ragged:
  """Token ids of documents in memory, as tokenise."""
  return Ragged.of(list(_ids(documents, vocab, max_tokens, by_zone)))


def tokenise(
  split: Split,
  vocab: Tokenizer,
  max_tokens: int,
  cache_dir: str | os.PathLike,
  by_zone: bool = False,
) -> Ragged:
  """Token ids of a split's documents, from the cache or put there.

  How many documents have no words is logged, if any, once.

  Args:
    split: N documents, with no more than the zones to be read.
    vocab: numbers the tokens.
    max_tokens: a document's first tokens, over its zones.
    cache_dir: folder of all caches; one that runs use together is safe.
    by_zone: whether max_tokens are each zone's, and zones are told apart: there
      is a PAD_ID between them, and zones without words are left out.

  Returns:
    N rows, memory-mapped. A document without words has a row of no more than
    the special tokens.

  Raises:
    UserError: the cache cannot be written.
  """
  parts = [_FORMAT.decode(), split.digest, len(split), vocab.digest, max_tokens]
  parts += ['by zone'] if by_zone else []
  key = hashlib.sha256(json.dumps(parts).encode()).digest()
  name = f'{split.name}-{key.hex()[:32]}.ids'
  path = pathlib.Path(cache_dir) / 'tokens' / name
  try:
    tokens = _read_or_make(
      path, key, split, lambda ds: _ids(ds, vocab, max_tokens, by_zone)
    )
  except OSError as error:
    raise UserError(
      f'{path}: cannot be made: {error}; the cache of tokens needs a folder '
      f'that can be written: set data.cache_dir'
    ) from error
  if empty := int((tokens.lengths <= vocab.n_special).sum()):
    _tell_empty(split.name, empty, len(split), path)
  return tokens


def _ids(
  documents: Iterable[Document],
  vocab: Tokenizer,
  max_tokens: int,
  by_zone: bool,
) -> Iterator[np.ndarray]:
  """The row of each document, int32."""
  documents = iter(documents)
  while some := list(itertools.islice(documents, _AT_ONCE)):
    if not by_zone:
      texts = [document.text() for document in some]
      yield from vocab.encode_all(texts, max_tokens)
      continue
    for document in some:
      zones = vocab.encode_all(list(document.zones.values()), max_tokens)
      apart = [part for ids in zones if len(ids) for part in (_BETWEEN, ids)]
      yield np.concatenate(apart[1:] or [_BETWEEN[:0]])


@functools.cache
def _tell_empty(name: str, empty: int, n: int, path: pathlib.Path) -> None:
  """Logs once for each path that documents have no words."""
  del path
  logging.warning(
    '%s: %d of %d documents have no words in the zones that are read',
    name,
    empty,
    n,
  )


def _read_or_make(
  path: pathlib.Path,
  key: bytes,
  split: Split,
  encoded: Callable[[Iterable[Document]], Iterable[np.ndarray]],
) -> Ragged:
  if path.exists():
    try:
      return _read(path, key)
    except ValueError as error:
      logging.warning('%s is damaged (%s): it is made anew', path, error)
  with atomic_write(path, 'wb') as file:
    _write(file, key, split, encoded)
  return _read(path, key)


def _write(
  file: IO[bytes],
  key: bytes,
  split: Split,
  encoded: Callable[[Iterable[Document]], Iterable[np.ndarray]],
) -> None:
  """Writes a split's ids as they come, so that memory holds no split."""
  checksum = hashlib.sha256(key)
  lengths = np.zeros(len(split), _INT32)
  rows = encoded(split.documents[row] for row in range(len(split)))
  what = f'tokens of {split.name}'
  with progress(rows, what, total=len(split)) as shown:
    for row, ids in enumerate(shown):
      lengths[row] = len(ids)
      _put(file, checksum, ids.astype(_INT32, copy=False))
  _put(file, checksum, lengths)
  total = int(lengths.sum(dtype=np.int64))
  file.write(_TRAILER.pack(_FORMAT, total, len(split), checksum.digest()))


def _put(file: IO[bytes], checksum: 'hashlib._Hash', array: np.ndarray) -> None:
  file.write(array.data)
  checksum.update(array.data)


def _read(path: pathlib.Path, key: bytes) -> Ragged:
  """Maps a cache file.

  Raises:
    ValueError: it is not what _write wrote for this key.
  """
  size = path.stat().st_size - _TRAILER.size
  if size < 0:
    raise ValueError('cut short')
  with path.open('rb') as file:
    file.seek(size)
    form, total, n, checksum = _TRAILER.unpack(file.read(_TRAILER.size))
  if form != _FORMAT or min(total, n) < 0 or size != 4 * (total + n):
    raise ValueError('cut short')
  stored = np.zeros(0, _INT32)
  if size:  # nothing cannot be mapped
    stored = np.memmap(path, _INT32, 'r', shape=total + n)
  actual = hashlib.sha256(key)
  actual.update(stored.data)
  if actual.digest() != checksum:
    raise ValueError('wrong checksum')
  indptr = np.zeros(n + 1, np.int64)
  np.cumsum(stored[total:], out=indptr[1:])
  return Ragged(indptr, stored[:total])
