"""Reads the tokenizer in the folder of a pretrained encoder."""

from collections.abc import Iterator, Sequence
import contextlib
import io
import json
import os
import pathlib
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from xjax.core.errors import DataError, Preempted
from xjax.data.files.faults import Fault
from xjax.data.files.model_files import read_file, read_object, safe_path

TokenizerSettings = dict[str, Any]  # the object in a tokenizer.json

# These errors do not come from the tokenizer, even if they are raised while the
# tokenizer works. For example, a signal handler may raise an error at any time.
_FOREIGN_ERRORS = DataError, MemoryError, Preempted
_EXITS = GeneratorExit, KeyboardInterrupt, SystemExit


@contextlib.contextmanager
def as_data_errors(source: str) -> Iterator[None]:
  """Turns any error that a faulty tokenizer raises into a DataError."""
  # Panics of the library are no subclasses of Exception. Errors from outside,
  # such as those of signals, are not changed.
  try:
    yield
  except (*_FOREIGN_ERRORS, *_EXITS):
    raise
  except BaseException as error:
    raise DataError(
      f'{source}: the tokenizer cannot be used: {error}; get the folder of the '
      'encoder again'
    ) from error


def canonical_json(settings: TokenizerSettings) -> str:
  """Returns settings as JSON text; equal settings give the same text."""
  return json.dumps(settings, sort_keys=True, ensure_ascii=False)


def padding_settings(token: str, id_: int) -> TokenizerSettings:
  """Returns the value of the field `padding` for a padding token."""
  return {
    'strategy': 'BatchLongest',
    'direction': 'Right',
    'pad_to_multiple_of': None,
    'pad_id': id_,
    'pad_type_id': 0,
    'pad_token': token,
  }


def pad_tokens(settings: TokenizerSettings) -> list[str]:
  """Returns a list with the padding token of the field `padding`, if any."""
  padding = settings.get('padding')
  name = padding.get('pad_token') if isinstance(padding, dict) else None
  return [name] if isinstance(name, str) else []


def plain_settings(settings: TokenizerSettings) -> TokenizerSettings:
  """Returns the settings without truncation, padding and random dropout."""
  model = settings.get('model')
  if isinstance(model, dict) and model.get('dropout') is not None:
    settings = {**settings, 'model': {**model, 'dropout': None}}
  return {**settings, 'truncation': None, 'padding': None}


def word_pieces(
  ids: dict[str, int],
  *,
  unknown: str = '[UNK]',
  first: str = '[CLS]',
  last: str = '[SEP]',
  others: Sequence[str] = ('[PAD]', '[MASK]'),
  summary_last: bool = False,
  **normal: bool | None,
) -> TokenizerSettings:
  """Makes the settings of BERT's WordPiece tokenizer (Devlin et al. 2019).

  `ids` maps pieces to ids; pieces inside a word start with ##. The special
  tokens `unknown`, `first` and `last` must be among them; `others` may be
  missing. With summary_last, `first` comes after `last`, as in XLNet. `normal`
  has the arguments of normalizers.BertNormalizer.
  """
  tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=unknown))
  tokenizer.normalizer = normalizers.BertNormalizer(**normal)
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = decoders.WordPiece()
  before, after = ([], [f'{first}:2']) if summary_last else ([first], [])
  tokenizer.post_processor = processors.TemplateProcessing(
    single=[*before, '$A', last, *after],
    pair=[*before, '$A', last, '$B:1', f'{last}:1', *after],
    special_tokens=[(first, ids[first]), (last, ids[last])],
  )
  tokenizer.add_special_tokens(
    [token for token in (unknown, first, last, *others) if token in ids]
  )
  return json.loads(tokenizer.to_str())


TOKENIZER = 'tokenizer.json'
WORD_PIECES = 'vocab.txt'
BYTE_PAIRS = ('vocab.json', 'merges.txt')

# tokenizer_config.json can change settings in these parts of tokenizer.json.
# A part changes only if it has the type that is given first. The inner
# dictionaries map names in tokenizer_config.json to names in tokenizer.json.
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
) -> tuple[TokenizerSettings, pathlib.Path]:
  """Returns the tokenizer's settings in a Hugging Face folder, and their file.

  The settings come from tokenizer.json, or else from vocab.txt (BERT), or else
  from vocab.json and merges.txt (RoBERTa). tokenizer_config.json overrides
  tokenizer.json for lower case, accents, Chinese characters, a space at the
  beginning and the padding token.
  """
  folder = pathlib.Path(folder)
  config = _config(folder)
  if (folder / TOKENIZER).exists():
    name = TOKENIZER
    settings = _override(read_object(folder, name), config)
  elif (folder / WORD_PIECES).exists():
    name = WORD_PIECES
    settings = _read_word_pieces(folder, config)
  elif all((folder / name).exists() for name in BYTE_PAIRS):
    name = BYTE_PAIRS[0]
    settings = _read_byte_pairs(folder, config)
  else:
    raise DataError(
      f'{folder}: has no tokenizer; the folder must have {TOKENIZER}, or '
      f'{WORD_PIECES}, or both {" and ".join(BYTE_PAIRS)}'
    )
  if pad := _token(config, 'pad', ''):
    settings['padding'] = {'pad_token': pad}
  return settings, folder / name


def _config(folder: pathlib.Path) -> TokenizerSettings:
  """Returns settings beside a tokenizer; tokenizer_config.json comes first."""
  config = {}
  for name in ('special_tokens_map.json', 'tokenizer_config.json'):
    if (folder / name).exists():
      fields = read_object(folder, name)
      config |= {key: v for key, v in fields.items() if v is not None}
  return config


def _token(config: TokenizerSettings, name: str, default: str) -> str:
  """Returns a special token, which the config has as text or in an object."""
  token = config.get(f'{name}_token', default)
  if isinstance(token, dict):
    token = token.get('content')
  return token if isinstance(token, str) else default


def _override(
  settings: TokenizerSettings, config: TokenizerSettings
) -> TokenizerSettings:
  settings = dict(settings)
  for part, (kind, names) in _RENAMED.items():
    value = settings.get(part)
    if isinstance(value, dict) and value.get('type') == kind:
      changes = {
        new: config[old] for old, new in names.items() if old in config
      }
      settings[part] = value | changes
  return settings


def _read_word_pieces(
  folder: pathlib.Path, config: TokenizerSettings
) -> TokenizerSettings:
  with as_data_errors(str(folder / WORD_PIECES)):
    text = read_file(folder, WORD_PIECES).decode('utf-8')
    lines = io.StringIO(text, newline=None).read().split('\n')
    ids = {piece: i for i, piece in enumerate(lines)}
    if not lines[-1]:
      del ids['']
    roles = {'unknown': 'unk', 'first': 'cls', 'last': 'sep'}
    tokens = {
      role: _token(config, name, f'[{name.upper()}]')
      for role, name in roles.items()
    }
    for token in tokens.values():
      if token not in ids:
        raise Fault(f'the vocabulary has no {token}')
    others = [_token(config, n, f'[{n.upper()}]') for n in ('pad', 'mask')]
    return word_pieces(
      ids,
      **tokens,
      others=others,
      lowercase=config.get('do_lower_case', True),
      strip_accents=config.get('strip_accents'),
      handle_chinese_chars=config.get('tokenize_chinese_chars', True),
    )


def _read_byte_pairs(
  folder: pathlib.Path, config: TokenizerSettings
) -> TokenizerSettings:
  """Makes the settings for RoBERTa's byte pairs (Radford et al. 2019)."""
  with as_data_errors(' with '.join(str(folder / name) for name in BYTE_PAIRS)):
    paths = [str(safe_path(folder, name)) for name in BYTE_PAIRS]
    ids, merges = models.BPE.read_file(*paths)
    first = _token(config, 'cls', '<s>')
    last = _token(config, 'sep', '</s>')
    for token in (first, last):
      if token not in ids:
        raise Fault(f'the vocabulary has no {token}')
    space = config.get('add_prefix_space', False)
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
      (last, ids[last]), (first, ids[first]), add_prefix_space=space
    )
    others = [_token(config, n, f'<{n}>') for n in ('unk', 'pad', 'mask')]
    tokens = [first, last, *others]
    tokenizer.add_special_tokens([token for token in tokens if token in ids])
    return json.loads(tokenizer.to_str())
