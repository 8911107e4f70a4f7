"""Forms of a text, and many strings in one array of bytes."""

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import operator
import re
from typing import Any, Self
import unicodedata
import zlib

import numpy as np

from xjax.core.types import Ragged, offsets_of

_ROWS = 1 << 16  # rows that are copied or converted at a time
_END = b'\xff'  # ends each string of a list; UTF-8 never contains this byte
# Soft hyphen, word joiner, byte order mark, and marks of the direction of text,
# for a pattern: nobody sees them. The joiners U+200C and U+200D are not here:
# they change words of Persian and of Indian languages.
UNSEEN = '\xad\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff'
# In texts, the zero-width space separates words of Khmer; in names it does not.
_UNSEEN_IN_NAMES = re.compile(f'[\u200b{UNSEEN}]')
# Spaces that programs leave around names, such as the non-breaking space.
ODD_SPACES = ''.join(x for x in map(chr, range(128, 0x3001)) if x.isspace())


def plain_name(name: str) -> str:
  """Returns a name in one form: NFC, single spaces, no invisible characters."""
  if name.isascii() and name.isprintable() and '  ' not in name:
    return name.strip()
  name = unicodedata.normalize('NFC', _UNSEEN_IN_NAMES.sub('', name))
  return ' '.join(name.split())


def known_name(name: str, known: Container[str]) -> str:
  """Returns a name as it is if it is known so, else in its one form."""
  return name if name in known else plain_name(name)


@dataclasses.dataclass(frozen=True, eq=False)
class Texts(Sequence):
  """Holds N strings in one array of bytes, with about 4 extra bytes each."""

  data: np.ndarray  # uint8, the bytes of all strings
  offsets: np.ndarray  # uint32 or int64 [N + 1]

  pack = staticmethod(str.encode)
  unpack = staticmethod(bytes.decode)

  @classmethod
  def of(cls, values: Iterable) -> Self:
    """Packs values, and reads each of them only once."""
    if isinstance(values, cls):
      return values
    packer = TextPacker(cls)
    for value in values:
      packer.append(value)
    return packer.done()

  @classmethod
  def concatenate(cls, parts: Sequence[Self]) -> Self:
    lengths = [np.diff(part.offsets) for part in parts]
    data = np.concatenate([part.bytes() for part in parts])
    return cls(data, _narrow(offsets_of(np.concatenate(lengths))))

  def __len__(self) -> int:
    return len(self.offsets) - 1

  def __getitem__(self, rows: int | slice | np.ndarray) -> Any:
    if isinstance(rows, np.ndarray) and rows.ndim:
      return self._take(np.flatnonzero(rows) if rows.dtype == bool else rows)
    if isinstance(rows, slice):
      start, stop, step = rows.indices(len(self))
      if step != 1:
        return self._take(np.arange(start, stop, step))
      return type(self)(self.data, self.offsets[start : max(start, stop) + 1])
    row = range(len(self))[rows]
    start, end = self.offsets[row], self.offsets[row + 1]
    return self.unpack(self.data[start:end].tobytes())

  def _take(self, rows: np.ndarray) -> Self:
    offsets = _narrow(offsets_of(np.diff(self.offsets)[rows]))
    packed, data = Ragged(self.offsets, self.data), np.empty(offsets[-1], 'u1')
    for first in range(0, len(rows), _ROWS):  # indices take much memory
      bounds = offsets[first : first + _ROWS + 1]
      part = packed.take(rows[first : first + _ROWS])
      data[bounds[0] : bounds[-1]] = part.values
    return type(self)(data, offsets)

  def bytes(self) -> np.ndarray:
    return self.data[self.offsets[0] : self.offsets[-1]]

  def packed_rows(self) -> Iterator[bytes]:
    for first in range(0, len(self), _ROWS):
      bounds = self.offsets[first : first + _ROWS + 1].tolist()
      data = self.data[bounds[0] : bounds[-1]].tobytes()
      position = 0
      for start, end in zip(bounds, bounds[1:], strict=False):
        yield data[position : (position := position + end - start)]

  def __iter__(self) -> Iterator:
    return map(self.unpack, self.packed_rows())

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Sequence) or isinstance(other, str):
      return NotImplemented
    return len(self) == len(other) and all(map(operator.eq, self, other))

  __hash__ = None

  def arrays(self, name: str) -> dict[str, np.ndarray]:
    """Returns `name/bytes` and `name/offsets`, which Arrays.strings reads."""
    offsets = self.offsets.astype(np.int64)
    return {
      f'{name}/bytes': self.bytes(),
      f'{name}/offsets': offsets - offsets[0],
    }

  @functools.cached_property
  def row_of(self) -> 'TextIndex':
    return TextIndex(self)

  def __contains__(self, text: object) -> bool:
    return isinstance(text, str) and text in self.row_of


class TextPacker:
  """Packs values one by one as they are read."""

  def __init__(self, kind: type[Texts]):
    self._kind = kind
    self._data = bytearray()
    self._ends = array('q', [0])

  def append(self, value: Any) -> None:
    self._data += self._kind.pack(value)
    self._ends.append(len(self._data))

  def done(self) -> Any:
    """Returns all added values, packed; afterwards no value can be added."""
    data = np.frombuffer(self._data, np.uint8)
    return self._kind(data, _narrow(np.asarray(self._ends)))


def _narrow(offsets: np.ndarray) -> np.ndarray:
  return offsets.astype(np.uint32 if offsets[-1] < 2**32 else np.int64)


class TextLists(Texts):
  """Holds N tuples of strings in one array of bytes."""

  @staticmethod
  def pack(value: Iterable[str]) -> bytes:
    """Returns the UTF-8 bytes of all strings, with _END after each string."""
    return b''.join(text.encode() + _END for text in value)

  @staticmethod
  def unpack(data: bytes) -> tuple[str, ...]:
    return tuple(text.decode() for text in data.split(_END)[:-1])

  def flat(self) -> tuple[str, ...]:
    """Returns the strings of all tuples."""
    return self.unpack(self.bytes().tobytes())


class TextIndex(Mapping[str, int]):
  """Maps strings to their first rows, with 8 bytes of memory per string."""

  def __init__(self, texts: Texts):
    self.texts = texts
    hashes = map(zlib.crc32, texts.packed_rows())
    hashes = np.fromiter(hashes, np.uint32, len(texts))
    order = np.argsort(hashes, kind='stable')
    self._rows = order.astype(np.int32 if len(order) < 2**31 else np.int64)
    self._hashes = hashes[order]

  def __len__(self) -> int:
    return len(self.texts)

  def __iter__(self) -> Iterator[str]:
    return iter(self.texts)

  def __getitem__(self, text: str) -> int:
    (row,) = self.find([text])
    if row == -1:
      raise KeyError(text)
    return int(row)

  def find(self, texts: Sequence[str]) -> np.ndarray:
    """Returns the row of each string as int64; -1 if a string has no row."""
    codes = np.fromiter(map(_hash, texts), np.uint32, len(texts))
    starts = np.searchsorted(self._hashes, codes)
    rows = map(self._row, texts, codes, starts)
    return np.fromiter(rows, np.int64, len(texts))

  def _row(self, text: str, code: np.uint32, at: int) -> int:
    """Returns the row of a string, or -1; `at`: first hash not below `code`."""
    while at < len(self._hashes) and self._hashes[at] == code:
      row = int(self._rows[at])
      if self.texts[row] == text:
        return row
      at += 1
    return -1

  def repeated(self) -> list[int]:
    """Returns the rows whose string is also in an earlier row, ascending."""
    same = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
    rows = np.sort(self._rows[np.union1d(same, same + 1)])
    seen: set[str] = set()
    return [
      int(row)
      for row in rows
      if (text := self.texts[row]) in seen or seen.add(text)
    ]


def _hash(text: str) -> int:
  # A lone surrogate cannot be encoded, so it is replaced. No packed text has a
  # lone surrogate, so the replacement cannot lead to a wrong row.
  return zlib.crc32(text.encode('utf-8', 'replace'))
