"""Pieces of words, numbered as encoders of the BERT family read them.

The tokenizer is one of Hugging Face's library `tokenizers`. The ids of a text
are those that the fast tokenizers of `transformers` give with truncation to
max_tokens: of its first pieces, with the special tokens around them.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
import hashlib
import os
import pathlib

import numpy as np
import tokenizers
from tokenizers import normalizers, pre_tokenizers

from xjax.core.atomic import atomic_write
from xjax.data.files.faults import Fault
from xjax.data.files.model_files import read_object
from xjax.data.schema import Document
from xjax.data.text.tokenizer_json import (
  Settings,
  as_data_errors,
  canonical_json,
  ends_words_at_spaces,
  folder_settings,
  pad_tokens,
  padding_settings,
  plain_settings,
  word_pieces,
)
from xjax.data.text.words import WordPlace

# Part of the key of cached tokens: raise it when encode_all changes.
SUBWORDS_VERSION = 1

# Characters for each piece wanted that are tried first: few texts need more.
_CHARS_PER_PIECE = 8

_PAD_TOKENS = ('[PAD]', '<pad>')
_UNSEEN = '\U00012000 a'  # cuneiform, which vocabularies lack, and a letter


class Subwords:
  """A tokenizer: from texts to the ids of their pieces.

  Threads may share one.

  Attributes:
    source: where it is from; for messages.
    text: its tokenizer.json, in one spelling.
    digest: hex digest of that, and of how long texts are cut.
    size: its largest id, plus 1.
    pad_id: the id that pads.
    before, after: ids of the special tokens around every text.
  """

  def __init__(self, settings: Settings, source: str) -> None:
    """Takes a tokenizer over, without what truncates, pads, or is random.

    Args:
      settings: the object in a tokenizer.json.
      source: where it is from; for messages.

    Raises:
      DataError: it cannot be used.
    """
    self.source = source
    with as_data_errors(source):
      names = (*pad_tokens(settings), *_PAD_TOKENS)
      settings = plain_settings(settings)
      self._tokenizer = tokenizers.Tokenizer.from_str(canonical_json(settings))
      ids = self._tokenizer.get_vocab()
      self.size = 1 + max(ids.values(), default=-1)
      pad = next((name for name in names if name in ids), None)
      if pad is None:
        raise Fault(
          f'none of its {len(ids)} tokens pads: {" or ".join(_PAD_TOKENS)}, or '
          'the pad_token of tokenizer_config.json'
        )
      self.pad_id = ids[pad]
      self.before, self.after = self._around()
      self.text = canonical_json(
        {**settings, 'padding': padding_settings(pad, self.pad_id)}
      )
      key = f'{SUBWORDS_VERSION}\n{self.text}'
      self.digest = hashlib.sha256(key.encode()).hexdigest()
      self._may_cut = ends_words_at_spaces(settings)

  @classmethod
  def fit(cls, texts: Iterable[str], max_words: int = 1000) -> 'Subwords':
    """A small tokenizer like BERT's, for encoders that nobody trained.

    It has the texts' characters, alone and inside words, and their most
    frequent words, ties by word; everything in lower case.
    """
    lower = normalizers.BertNormalizer().normalize_str
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    counts = Counter()
    for text in texts:
      counts.update(word for word, _ in cut(lower(_utf8(text))))
    letters = sorted(set(''.join(counts)))
    inside = [f'##{letter}' for letter in letters]
    words = sorted(counts, key=lambda word: (-counts[word], word))[:max_words]
    special = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
    pieces = dict.fromkeys((*special, *letters, *inside, *words))
    ids = {piece: i for i, piece in enumerate(pieces)}
    return cls(word_pieces(ids), 'the tokenizer of the training split')

  @classmethod
  def of_folder(cls, folder: str | os.PathLike) -> 'Subwords':
    """Reads the tokenizer of a Hugging Face folder.

    Raises:
      DataError: none is there, or it is damaged or elsewhere, or as load.
    """
    settings, path = folder_settings(folder)
    return cls(settings, str(path))

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Subwords':
    """Reads a tokenizer.json.

    Raises:
      DataError: as read_object, or its tokenizer puts no special tokens around
        texts.
    """
    path = pathlib.Path(path)
    return cls(read_object(path.parent, path.name), str(path))

  def save(self, path: str | os.PathLike) -> None:
    """Writes a tokenizer.json."""
    with atomic_write(path) as file:
      file.write(f'{self.text}\n')

  def __len__(self) -> int:
    """The number of ids that an encoder must have."""
    return self.size

  @property
  def pieces(self) -> list[str | None]:
    """The piece of each id, special tokens included; None: it has none."""
    return [self._tokenizer.id_to_token(i) for i in range(self.size)]

  @property
  def n_special(self) -> int:
    """Special tokens of each text."""
    return len(self.before) + len(self.after)

  def encode(self, text: str, max_tokens: int | None = None) -> np.ndarray:
    """The ids of a text, as encode_all gives them."""
    return self.encode_all([text], max_tokens)[0]

  def encode_all(
    self, texts: Sequence[str], max_tokens: int | None = None
  ) -> list[np.ndarray]:
    """The ids of each text, int32 [n], special tokens included.

    Several cores are used, unless TOKENIZERS_PARALLELISM=false; the ids are the
    same.

    Args:
      texts: where one has no word, the special tokens are all.
      max_tokens: n is at most this; None: of all the text.

    Raises:
      ValueError: max_tokens has no room for the special tokens.
      DataError: the tokenizer fails.
    """
    if max_tokens is None:
      return [self._with_special(ids) for ids in self._pieces(texts)]
    room = max_tokens - self.n_special
    if room < 0:
      raise ValueError(f'{max_tokens=}: {self.n_special} are special tokens')
    begun = texts
    if self._may_cut:
      begun = [_first_words(text, _CHARS_PER_PIECE * room) for text in texts]
    found = self._pieces(begun)
    more = [
      i
      for i, ids in enumerate(found)
      if len(ids) < room and len(begun[i]) < len(texts[i])
    ]
    for i, ids in zip(more, self._pieces([texts[i] for i in more])):
      found[i] = ids
    return [self._with_special(ids[:room]) for ids in found]

  def spans(
    self, text: str, max_tokens: int | None = None
  ) -> list[tuple[int, int] | None]:
    """[start, end) in the text of each token of encode; None: a special one.

    Characters are those of Python's strings, code points.

    Raises:
      DataError: the tokenizer fails.
    """
    with as_data_errors(self.source):
      found = self._tokenizer.encode(_utf8(text), add_special_tokens=False)
    room = None if max_tokens is None else max_tokens - self.n_special
    return (
      [None] * len(self.before)
      + found.offsets[:room]
      + [None] * len(self.after)
    )

  def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
    with as_data_errors(self.source):
      found = self._tokenizer.encode_batch_fast(
        [_utf8(text) for text in texts], add_special_tokens=False
      )
    return [encoding.ids for encoding in found]

  def _with_special(self, ids: list[int]) -> np.ndarray:
    return np.array([*self.before, *ids, *self.after], np.int32)

  def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens before and after a text.

    Raises:
      Fault: there are none, or they have no ids of their own.
      Exception: whatever the library raises of a tokenizer with a fault.
    """
    found = self._tokenizer.encode(_UNSEEN)
    special = np.array(found.special_tokens_mask, bool)
    inside = np.flatnonzero(~special)
    if not len(inside) or special[[0, -1]].sum() < 2:
      raise Fault(
        'it does not put special tokens around the pieces of a text, as those '
        'of BERT ([CLS], [SEP]) and RoBERTa (<s>, </s>) do'
      )
    if max(found.ids) >= self.size:
      raise Fault(
        f'a special token has the id {max(found.ids)}, but the last one of its '
        f'vocabulary is {self.size - 1}'
      )
    before, after = found.ids[: inside[0]], found.ids[inside[-1] + 1 :]
    return tuple(before), tuple(after)


def _first_words(text: str, length: int) -> str:
  """A text up to a space that follows a word, at most so many characters.

  All of it, where there is no such space.
  """
  if len(text) <= length:
    return text
  at = text.rfind(' ', 0, length + 1)
  while at > 0 and text[at - 1].isspace():
    at = text.rfind(' ', 0, at)
  return text[:at] if at > 0 else text


def _utf8(text: str) -> str:
  """A text without halves of surrogate pairs, which are no characters."""
  return text.encode('utf-8', 'replace').decode()


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
