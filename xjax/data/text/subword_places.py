"""Where the pieces of words that an encoder reads stand in a document."""

import bisect

from xjax.data.schema import Document
from xjax.data.text.subwords import Subwords
from xjax.data.text.word_places import WordPlace


def document_subwords(
  document: Document, tokenizer: Subwords, max_tokens: int | None = None
) -> list[WordPlace]:
  """The places of tokenizer.encode(document.text(), max_tokens), one by one.

  Special tokens have no characters: they stand before the first piece and after
  the last. A piece that goes over the newline between zones, as that of several
  spaces may, is said to be of the first. A document without text has no places.

  Raises:
    DataError: the tokenizer fails.
  """
  zones = [(zone, text) for zone, text in document.zones.items() if text]
  begins, begin = [], 0
  for _, text in zones:
    begins.append(begin)
    begin += len(text) + 1  # a newline joins them

  def place(span: tuple[int, int]) -> WordPlace:
    at = bisect.bisect_right(begins, span[0]) - 1
    (zone, text), begin = zones[at], begins[at]
    return WordPlace(zone, span[0] - begin, min(span[1] - begin, len(text)))

  if not zones:
    return []
  spans = tokenizer.spans(document.text(), max_tokens)
  last = max((span[1] for span in spans if span), default=0)
  before = len(tokenizer.before)
  return [
    place(span or ((0, 0) if at < before else (last, last)))
    for at, span in enumerate(spans)
  ]
