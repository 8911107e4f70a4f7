"""The tokenizer in the folder of a pretrained encoder."""

from collections.abc import Iterator, Sequence
import contextlib
import io
import json
import os
import pathlib
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
from xjax.data.files.faults import Fault
from xjax.data.files.model_files import (
  has_file,
  read_object,
  read_small_file,
  safe_small_path,
)

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
def as_data_errors(source: str) -> Iterator[None]:
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


def canonical_json(settings: Settings) -> str:
  """The same text for the same settings."""
  return json.dumps(settings, sort_keys=True, ensure_ascii=False)


def padding_settings(token: str, id_: int) -> Settings:
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


def plain_settings(settings: Settings) -> Settings:
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


TOKENIZER = 'tokenizer.json'
WORD_PIECES = 'vocab.txt'
BYTE_PAIRS = ('vocab.json', 'merges.txt')

# What tokenizer_config.json calls settings of tokenizer.json, by their part.
_RENAMED = {
  'normalizer': (
    'BertNormalizer',
    {
      'do_lower_case': 'lowercase',
      'strip_accents': 'strip_accents',
      'tokenize_chinese_chars': 'handle_chinese_chars',
    },
  ),
  'pre_tokenizer': ('ByteLevel', {'add_prefix_space': 'add_prefix_space'}),
}


def folder_settings(
  folder: str | os.PathLike,
) -> tuple[Settings, pathlib.Path]:
  """What a tokenizer.json of a Hugging Face folder's tokenizer says.

  It is made of tokenizer.json, else of vocab.txt (BERT), else of vocab.json and
  merges.txt (RoBERTa). What tokenizer_config.json says of lower case, accents,
  Chinese characters, a space at the beginning and the token that pads goes
  before what tokenizer.json says.

  Returns:
    The settings, and the file that they are of.

  Raises:
    DataError: none of these is there, or one is damaged, or a link out of the
      folder.
  """
  folder = pathlib.Path(folder)
  config = _config(folder)
  if has_file(folder, TOKENIZER):
    name = TOKENIZER
    settings = _overridden(read_object(folder, name), config)
  elif has_file(folder, WORD_PIECES):
    name = WORD_PIECES
    settings = _read_word_pieces(folder, config)
  elif all(has_file(folder, name) for name in BYTE_PAIRS):
    name = BYTE_PAIRS[0]
    settings = _read_byte_pairs(folder, config)
  else:
    raise DataError(
      f'{folder}: has no tokenizer: neither {TOKENIZER} nor {WORD_PIECES}, nor '
      f'{" with ".join(BYTE_PAIRS)}'
    )
  if pad := _token(config, 'pad_token', ''):
    settings['padding'] = {'pad_token': pad}
  return settings, folder / name


def _config(folder: pathlib.Path) -> Settings:
  """What is said beside the tokenizer, of both files where they are there."""
  config = {}
  for name in ('special_tokens_map.json', 'tokenizer_config.json'):
    if has_file(folder, name):
      found = read_object(folder, name)
      config |= {key: v for key, v in found.items() if v is not None}
  return config


def _token(config: Settings, name: str, default: str) -> str:
  """A special token, which stands there bare or in an object."""
  token = config.get(name, default)
  if isinstance(token, dict):
    token = token.get('content')
  return token if isinstance(token, str) else default


def _overridden(settings: Settings, config: Settings) -> Settings:
  """The settings, as far as tokenizer_config.json does not say otherwise."""
  settings = dict(settings)
  for part, (kind, names) in _RENAMED.items():
    held = settings.get(part)
    if isinstance(held, dict) and held.get('type') == kind:
      said = {new: config[old] for old, new in names.items() if old in config}
      settings[part] = held | said
  return settings


def _read_word_pieces(folder: pathlib.Path, config: Settings) -> Settings:
  with as_data_errors(str(folder / WORD_PIECES)):
    text = read_small_file(folder, WORD_PIECES).decode('utf-8')
    lines = io.StringIO(text, newline=None).read().split('\n')
    ids = {piece: i for i, piece in enumerate(lines)}
    if not lines[-1]:
      del ids['']
    roles = {'unknown': 'unk', 'first': 'cls', 'last': 'sep'}
    tokens = {
      role: _token(config, f'{name}_token', f'[{name.upper()}]')
      for role, name in roles.items()
    }
    for token in tokens.values():
      if token not in ids:
        raise Fault(f'it has no {token}')
    others = [
      _token(config, f'{n}_token', f'[{n.upper()}]') for n in ('pad', 'mask')
    ]
    return word_pieces(
      ids,
      **tokens,
      others=others,
      lowercase=config.get('do_lower_case', True),
      strip_accents=config.get('strip_accents'),
      handle_chinese_chars=config.get('tokenize_chinese_chars', True),
    )


def _read_byte_pairs(folder: pathlib.Path, config: Settings) -> Settings:
  """Of RoBERTa's kind: byte pairs (Radford et al. 2019)."""
  with as_data_errors(' with '.join(str(folder / name) for name in BYTE_PAIRS)):
    paths = [str(safe_small_path(folder, name)) for name in BYTE_PAIRS]
    ids, merges = models.BPE.read_file(*paths)
    first = _token(config, 'cls_token', '<s>')
    last = _token(config, 'sep_token', '</s>')
    for token in (first, last):
      if token not in ids:
        raise Fault(f'it has no {token}')
    space = config.get('add_prefix_space', False)
    made = tokenizers.Tokenizer(models.BPE(ids, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(
      (last, ids[last]), (first, ids[first]), add_prefix_space=space
    )
    others = {
      'unk_token': '<unk>',
      'pad_token': '<pad>',
      'mask_token': '<mask>',
    }
    tokens = [first, last, *(_token(config, *one) for one in others.items())]
    made.add_special_tokens([token for token in tokens if token in ids])
    return json.loads(made.to_str())
