"""Where the words that a model reads stand in a document, as it was given."""

from collections.abc import Iterator
import itertools
from typing import NamedTuple
import unicodedata

from xjax.data.schema import Document
from xjax.data.text.words import find_words

_FIRST_MARK = '\u0300'  # no character below it joins what stands before it


class WordPlace(NamedTuple):
  """A word of a document.

  Attributes:
    zone: whose text has it.
    start, end: the characters [start, end) of that text.
  """

  zone: str
  start: int
  end: int


def document_words(document: Document) -> list[WordPlace]:
  """The places of split_words(document.text()), word by word.

  Zones are joined by a newline, which no word goes across.
  """
  return [
    WordPlace(zone, start, end)
    for zone, text in document.zones.items()
    for start, end in word_spans(text)
  ]


def word_spans(text: str) -> list[tuple[int, int]]:
  """[start, end) in the text of each of split_words(text).

  Characters are those of Python's strings, code points. Where lower case or
  NFC makes several of one or one of several, a word has all that it is made
  of.
  """
  lower = text.lower()
  # Lower case never takes characters away: as many are the same ones.
  if len(lower) == len(text) and unicodedata.is_normalized('NFC', lower):
    return find_words(lower)
  origin = [at for at, char in enumerate(text) for _ in char.lower()]
  composed, starts, ends = [], [], []
  for first, last in itertools.pairwise(_cuts(lower)):
    piece = unicodedata.normalize('NFC', lower[first:last])
    composed.append(piece)
    starts += [origin[first]] * len(piece)
    ends += [origin[last - 1] + 1] * len(piece)
  spans = find_words(''.join(composed))
  return [(starts[start], ends[end - 1]) for start, end in spans]


def _cuts(text: str) -> Iterator[int]:
  """Where a text can be cut so that NFC of the parts is that of the whole."""
  begin = 0
  for at, char in enumerate(text):
    if at and not unicodedata.combining(char):
      if char < _FIRST_MARK or not _join(text[begin:at], char):
        yield begin
        begin = at
  yield begin
  yield len(text)


def _join(piece: str, char: str) -> bool:
  """Whether NFC makes something else of both together than of each."""
  apart = unicodedata.normalize('NFC', piece) + unicodedata.normalize(
    'NFC', char
  )
  return unicodedata.normalize('NFC', piece + char) != apart
