"""The tokenizer in the folder of a pretrained encoder."""

import io
import json
import os
import pathlib

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from xjax.core.errors import DataError
from xjax.data.files.faults import Fault
from xjax.data.files.model_files import (
  has_file,
  read_object,
  read_small,
  small_file,
)
from xjax.data.text.tokenizer_settings import Settings, understood, word_pieces

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
  with understood(str(folder / WORD_PIECES)):
    text = read_small(folder, WORD_PIECES).decode('utf-8')
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
  with understood(' with '.join(str(folder / name) for name in BYTE_PAIRS)):
    paths = [str(small_file(folder, name)) for name in BYTE_PAIRS]
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
