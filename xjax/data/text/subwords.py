"""Splits texts into pieces of words, for pretrained encoders.

The tokenizer comes from Hugging Face's library `tokenizers`. The first pieces
of a text are kept, and special tokens are added around them. The ids are equal
to those of the fast tokenizers of `transformers` with truncation to max_tokens.
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
import hashlib
import os
import pathlib
import unicodedata

import numpy as np
import tokenizers
from tokenizers import normalizers, pre_tokenizers

from xjax.core.atomic import atomic_write
from xjax.core.types import offsets_of
from xjax.data.files.faults import Fault
from xjax.data.files.model_files import read_object
from xjax.data.schema import Document, nfc
from xjax.data.text.tokenizer_json import (
  TokenizerSettings,
  as_data_errors,
  canonical_json,
  folder_settings,
  pad_tokens,
  padding_settings,
  plain_settings,
  word_pieces,
)
from xjax.data.text.words import WordPlace, origins

# The version is part of the key of cached tokens. Increase it if encode_all
# changes.
SUBWORDS_VERSION = 1

# The pieces of whole texts take 80 times the memory of the texts.
_AT_ONCE = 64  # texts

_PAD_TOKENS = ('[PAD]', '<pad>')
# This text is encoded to find the special tokens that a tokenizer adds. No
# vocabulary has the first character of this text, a cuneiform sign.
_UNSEEN = '\U00012000 a'


class Subwords:
  """Turns texts into the ids of their pieces; threads can share an object."""

  def __init__(self, settings: TokenizerSettings, source: str) -> None:
    """Makes the tokenizer; turns off truncation, padding and random dropout."""
    self.source = source
    with as_data_errors(source):
      names = (*pad_tokens(settings), *_PAD_TOKENS)
      settings = plain_settings(settings)
      self._tokenizer = tokenizers.Tokenizer.from_str(canonical_json(settings))
      ids = self._tokenizer.get_vocab()
      self.size = 1 + max(ids.values(), default=-1)  # the largest id plus 1
      pad = next((name for name in names if name in ids), None)
      if pad is None:
        raise Fault(
          f'none of its {len(ids)} tokens is for padding; the vocabulary must '
          f'contain {" or ".join(_PAD_TOKENS)}, or the pad_token of '
          'tokenizer_config.json'
        )
      self.pad_id = ids[pad]
      self.before, self.after = self._around()
      # The tokenizer.json, in canonical form.
      self.text = canonical_json(
        {**settings, 'padding': padding_settings(pad, self.pad_id)}
      )
      key = f'{SUBWORDS_VERSION}\n{self.text}'
      # Of the text and of the version of encode_all.
      self.digest = hashlib.sha256(key.encode()).hexdigest()

  @classmethod
  def fit(
    cls, texts: Iterable[str], max_words: int = 1000, summary_last: bool = False
  ) -> 'Subwords':
    """Makes a small tokenizer like BERT's, for encoders without pretraining.

    All pieces are in lower case. The pieces are each character of the texts,
    once as the start of a word and once inside a word, and the max_words most
    frequent words; words of equal frequency are sorted by code points. With
    summary_last, [CLS] is the last token of a text, as for XLNet.
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
    settings = word_pieces(ids, summary_last=summary_last)
    return cls(settings, 'the tokenizer of the training split')

  @classmethod
  def of_folder(cls, folder: str | os.PathLike) -> 'Subwords':
    """Reads the tokenizer of a Hugging Face folder; faults are a DataError."""
    settings, path = folder_settings(folder)
    return cls(settings, str(path))

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Subwords':
    """Reads a tokenizer.json; a DataError if it cannot be used."""
    path = pathlib.Path(path)
    return cls(read_object(path.parent, path.name), str(path))

  def save(self, path: str | os.PathLike) -> None:
    with atomic_write(path) as file:
      file.write(f'{self.text}\n')

  def __len__(self) -> int:
    """Returns the number of ids that an encoder must accept."""
    return self.size

  @property
  def pieces(self) -> list[str | None]:
    """Returns the piece or special token of each id; None for an unused id."""
    return [self._tokenizer.id_to_token(i) for i in range(self.size)]

  @property
  def n_special(self) -> int:
    return len(self.before) + len(self.after)

  def encode(self, text: str, max_tokens: int | None = None) -> np.ndarray:
    return self.encode_all([text], max_tokens)[0]

  def encode_all(
    self, texts: Sequence[str], max_tokens: int | None = None
  ) -> list[np.ndarray]:
    """Returns the ids of each text, int32 [n], with special tokens.

    With max_tokens, n is at most this. The library `tokenizers` uses several
    cores, unless the variable TOKENIZERS_PARALLELISM is false; the ids do not
    depend on it.
    """
    pieces = self.pieces_of(texts, self._room(max_tokens))
    around = ((*self.before, *ids, *self.after) for ids in pieces)
    return [np.array(ids, np.int32) for ids in around]

  def spans(
    self, text: str, max_tokens: int | None = None
  ) -> list[tuple[int, int] | None]:
    """Returns (start, end) of each token of `encode`; None if it is special."""
    with as_data_errors(self.source):
      encoding = self._tokenizer.encode(_utf8(text), add_special_tokens=False)
    room = self._room(max_tokens)
    before, after = ([None] * len(ids) for ids in (self.before, self.after))
    return before + encoding.offsets[:room] + after

  def pieces_of(
    self, texts: Sequence[str], most: int | None = None
  ) -> list[list[int]]:
    """Returns the first ids of each text's pieces, without special tokens."""
    ids: list[list[int]] = []
    with as_data_errors(self.source):
      for start in range(0, len(texts), _AT_ONCE):
        some = [_utf8(text) for text in texts[start : start + _AT_ONCE]]
        encode = self._tokenizer.encode_batch_fast
        found = encode(some, add_special_tokens=False)
        ids += [encoding.ids[:most] for encoding in found]
    return ids

  def _room(self, max_tokens: int | None) -> int | None:
    return None if max_tokens is None else max_tokens - self.n_special

  def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids of the special tokens before and after a text."""
    # A faulty tokenizer raises a Fault here, or an error of any type.
    encoding = self._tokenizer.encode(_UNSEEN)
    special = np.array(encoding.special_tokens_mask, bool)
    inside = np.flatnonzero(~special)
    if not len(inside) or not special[-1]:
      raise Fault(
        'it adds no special tokens around the pieces of a text, unlike the '
        'tokenizers of BERT ([CLS], [SEP]), RoBERTa (<s>, </s>) and XLNet '
        '(<sep> and <cls>, both at the end)'
      )
    if max(encoding.ids) >= self.size:
      raise Fault(
        f'a special token has the id {max(encoding.ids)}, but the last id of '
        f'the vocabulary is {self.size - 1}'
      )
    before, after = encoding.ids[: inside[0]], encoding.ids[inside[-1] + 1 :]
    return tuple(before), tuple(after)


def _utf8(text: str) -> str:
  """Replaces surrogate code points by `?`, since UTF-8 cannot encode them."""
  return text.encode('utf-8', 'replace').decode()


def document_subwords(
  document: Document, tokenizer: Subwords, max_tokens: int | None = None
) -> list[WordPlace]:
  """Returns the place of each token of encode(document.text(), max_tokens).

  The place of a special token is empty: the start of the text, or the end of
  the last piece. A piece with the newline between two zones belongs to the
  first of them. Without text, the result is empty.
  """
  zones = [(zone, text) for zone, text in document.zones.items() if text]
  # A newline joins two zones.
  starts = offsets_of([len(text) + 1 for _, text in zones]).tolist()

  def place(span: tuple[int, int]) -> WordPlace:
    at = bisect.bisect_right(starts, span[0]) - 1
    (zone, text), start = zones[at], starts[at]
    return WordPlace(zone, span[0] - start, min(span[1] - start, len(text)))

  if not zones:
    return []
  spans = tokenizer.spans(document.text(), max_tokens)
  text = '\n'.join(text for _, text in zones)
  if not unicodedata.is_normalized('NFC', text):
    first, end = origins(text, nfc)
    spans = [x and (first[x[0]], max(first[x[0]], end[x[1]])) for x in spans]
  last = max((span[1] for span in spans if span), default=0)
  before = len(tokenizer.before)
  return [
    place(span or ((0, 0) if at < before else (last, last)))
    for at, span in enumerate(spans)
  ]
