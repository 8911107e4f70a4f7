"""What a tokenizer.json says: read, written in one spelling, judged."""

from collections.abc import Iterator, Sequence
import contextlib
import json
from typing import Any

import tokenizers
from tokenizers import (
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
)

from xjax.core.errors import DataError, Preempted

Settings = dict[str, Any]  # the object in a tokenizer.json

# What is raised while a tokenizer works and is not its fault: the handler of a
# signal raises wherever the main thread is.
_NOT_ITS_FAULT = (
  DataError,
  GeneratorExit,
  KeyboardInterrupt,
  MemoryError,
  Preempted,
  SystemExit,
)

# What is done to texts first, and what cuts them into words then: with these
# two, a space that follows a word ends it, whatever comes after.
_CUT_AT_SPACES = {('BertNormalizer', 'BertPreTokenizer'), (None, 'ByteLevel')}


@contextlib.contextmanager
def understood(source: str) -> Iterator[None]:
  """Makes whatever a faulty tokenizer raises within a DataError.

  A panic of the library is no Exception to Python. What comes from outside, as
  signals do, stays as it is.
  """
  try:
    yield
  except _NOT_ITS_FAULT:
    raise
  except BaseException as error:
    raise DataError(
      f'{source}: no tokenizer that can be used here: {error}; get the folder '
      'of the encoder anew'
    ) from error


def spelled(settings: Settings) -> str:
  """The same text for the same settings."""
  return json.dumps(settings, sort_keys=True, ensure_ascii=False)


def padding_of(token: str, id_: int) -> Settings:
  """The field `padding` that tells the token that pads."""
  return {
    'strategy': 'BatchLongest',
    'direction': 'Right',
    'pad_to_multiple_of': None,
    'pad_id': id_,
    'pad_type_id': 0,
    'pad_token': token,
  }


def pad_tokens(settings: Settings) -> list[str]:
  """The token that the field `padding` tells, if any."""
  padding = settings.get('padding')
  name = padding.get('pad_token') if isinstance(padding, dict) else None
  return [name] if isinstance(name, str) else []


def plain(settings: Settings) -> Settings:
  """The settings without what truncates, pads, or is random."""
  model = settings.get('model')
  if isinstance(model, dict) and model.get('dropout') is not None:
    settings = {**settings, 'model': {**model, 'dropout': None}}
  return {**settings, 'truncation': None, 'padding': None}


def ends_words_at_spaces(settings: Settings) -> bool:
  """Whether a text's first words have the same ids without the others.

  Args:
    settings: that the library could read.
  """
  normal, cut = settings.get('normalizer'), settings.get('pre_tokenizer')
  kinds = tuple(part and part.get('type') for part in (normal, cut))
  if kinds not in _CUT_AT_SPACES or not cut.get('use_regex', True):
    return False
  return all(
    not any(map(str.isspace, token['content']))
    and (normal is None or not token['normalized'])
    for token in settings.get('added_tokens', ())
  )


def word_pieces(
  ids: dict[str, int],
  *,
  unknown: str = '[UNK]',
  first: str = '[CLS]',
  last: str = '[SEP]',
  others: Sequence[str] = ('[PAD]', '[MASK]'),
  **normal: bool | None,
) -> Settings:
  """Those of a tokenizer of BERT's kind (Devlin et al. 2019: WordPiece).

  Args:
    ids: piece -> id; ## begins those inside a word.
    unknown, first, last: special tokens, all in ids.
    others: further special tokens, where they are in ids.
    **normal: of normalizers.BertNormalizer.
  """
  made = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=unknown))
  made.normalizer = normalizers.BertNormalizer(**normal)
  made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  made.decoder = decoders.WordPiece()
  made.post_processor = processors.TemplateProcessing(
    single=[first, '$A', last],
    pair=[first, '$A', last, '$B:1', f'{last}:1'],
    special_tokens=[(first, ids[first]), (last, ids[last])],
  )
  made.add_special_tokens(
    [token for token in (unknown, first, last, *others) if token in ids]
  )
  return json.loads(made.to_str())
