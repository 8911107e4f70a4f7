"""Reads the sizes of a pretrained encoder from Hugging Face's config.json."""

from collections.abc import Iterator, Mapping
import dataclasses
import enum
from typing import Any, ClassVar, NamedTuple

from xjax.core.errors import DataError
from xjax.data.files.model_files import shown


class Activation(enum.Enum):
  """Chooses the activation after the first layer of a feed-forward network."""

  GELU = 'gelu'  # the exact function, x Phi(x)
  GELU_TANH = 'gelu_tanh'  # the approximation with tanh
  RELU = 'relu'


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Holds the sizes that every pretrained encoder has."""

  summary_last: ClassVar[bool] = False  # [CLS] is the last token, not the first
  # Whether pretrained folders have a pooler, the dense layer on [CLS]. If not,
  # a pooler starts from fresh weights where the folder has none.
  has_pooler: ClassVar[bool] = True

  vocab_size: int  # number of token ids, and of rows of the word table
  dim: int  # number of features of a token (D)
  layers: int
  heads: int  # a divisor of dim
  inner: int  # number of features inside a feed-forward network
  activation: Activation
  norm_eps: float  # what layer normalisation adds to a variance
  pad_id: int

  @property
  def max_tokens(self) -> int | None:
    """Returns the largest length of a document, with special tokens, if any."""
    return None


@dataclasses.dataclass(frozen=True)
class BertArchitecture(Architecture):
  """Holds the sizes of an encoder of the BERT family."""

  positions: int  # number of rows of the position table
  token_types: int
  position_offset: int  # row of the position table for the first token

  @property
  def max_tokens(self) -> int:
    return self.positions - self.position_offset


@dataclasses.dataclass(frozen=True)
class XLNetArchitecture(Architecture):
  """Holds the sizes of XLNet, whose relative positions have no limit."""

  summary_last = True
  has_pooler = False


class _Names(NamedTuple):
  dim: str
  layers: str
  heads: str
  inner: str
  activation: str


_BERT = _Names(
  'hidden_size',
  'num_hidden_layers',
  'num_attention_heads',
  'intermediate_size',
  'hidden_act',
)
_XLNET = _Names('d_model', 'n_layer', 'n_head', 'd_inner', 'ff_activation')
# The token id of padding for each supported value of model_type.
_PAD_IDS = {
  'bert': 0,
  'roberta': 1,
  'xlm-roberta': 1,
  'camembert': 1,
  'xlnet': 5,
}
_ACTIVATIONS = {
  'gelu': Activation.GELU,
  'gelu_new': Activation.GELU_TANH,
  'gelu_pytorch_tanh': Activation.GELU_TANH,
  'relu': Activation.RELU,
}
# The only value of each field that is implemented, for all and for a family.
_ONLY = {
  'is_decoder': False,
  'add_cross_attention': False,
  'pruned_heads': {},
  'quantization_config': None,
}
_ONLY_BERT = {'position_embedding_type': 'absolute'}
_ONLY_XLNET = {
  'attn_type': 'bi',
  'bi_data': False,
  'clamp_len': -1,
  'summary_activation': 'tanh',
  'summary_type': 'last',
}

# The largest allowed value of each field. Real encoders have far smaller
# values. If a config has a larger value, it is damaged, or was made to exhaust
# the memory.
_VOCABULARY = 10**7
_SIZES = {'dim': 2**16, 'layers': 1000, 'heads': 2**12, 'inner': 2**19}
_POSITIONS = 2**20
_TOKEN_TYPES = 2**10
_SPECIAL_TOKENS = 2  # added to each document


def architecture_of(config: Mapping[str, Any], where: str) -> Architecture:
  """Reads the sizes of an encoder, and checks all fields that matter.

  Absent fields that are not sizes take the default values of transformers.
  DataError has one line per fault, with `where`, the path of config.json.
  """
  model = _value_or(config, 'model_type', None)
  if not isinstance(model, str) or model not in _PAD_IDS:
    kinds = ', '.join(_PAD_IDS)
    raise DataError(
      f'{where}: "model_type" is {shown(model)}; only these encoders are '
      f'supported: {kinds}'
    )
  names = _XLNET if model == 'xlnet' else _BERT
  faults = [*_size_faults(config, names)] or [*_other_faults(config, names)]
  if faults:
    raise DataError('\n'.join(f'{where}: {fault}' for fault in faults))
  shared = {
    **{size: config[getattr(names, size)] for size in _SIZES},
    'vocab_size': config['vocab_size'],
    'activation': _ACTIVATIONS[_value_or(config, names.activation, 'gelu')],
    'norm_eps': float(_value_or(config, 'layer_norm_eps', 1e-12)),
    'pad_id': _pad_id(config),
  }
  if names is _XLNET:
    return XLNetArchitecture(**shared)
  return BertArchitecture(
    **shared,
    positions=config['max_position_embeddings'],
    token_types=_value_or(config, 'type_vocab_size', 2),
    position_offset=_position_offset(config),
  )


def small_encoder(
  kind: type[Architecture], vocab_size: int, longest: int
) -> dict[str, Any]:
  """Returns the config.json of a small encoder, in which padding has id 0.

  It can read `longest` tokens.
  """
  xlnet = issubclass(kind, XLNetArchitecture)
  names = _XLNET if xlnet else _BERT
  sizes = {
    'vocab_size': vocab_size,
    'pad_token_id': 0,
    names.dim: 16,
    names.layers: 2,
    names.heads: 2,
    names.inner: 32,
  }
  if xlnet:
    return {'model_type': 'xlnet', **sizes}
  return {'model_type': 'bert', **sizes, 'max_position_embeddings': longest}


def _size_faults(config: Mapping[str, Any], names: _Names) -> Iterator[str]:
  ranges = {'vocab_size': (config.get('vocab_size'), 1, _VOCABULARY)}
  for size, most in _SIZES.items():
    name = getattr(names, size)
    ranges[name] = config.get(name), 1, most
  if names is _BERT:
    name = 'max_position_embeddings'
    ranges[name] = config.get(name), 1, _POSITIONS
    types = _value_or(config, 'type_vocab_size', 2)
    ranges['type_vocab_size'] = types, 1, _TOKEN_TYPES
  ranges['pad_token_id'] = _pad_id(config), 0, _VOCABULARY
  for name, (value, least, most) in ranges.items():
    if type(value) is not int or not least <= value <= most:
      yield (
        f'"{name}" is {shown(value)}; it must be a whole number from {least} '
        f'to {most}'
      )


def _other_faults(config: Mapping[str, Any], names: _Names) -> Iterator[str]:
  """Yields the faults of a config whose sizes are whole numbers in range."""
  dim, heads = config[names.dim], config[names.heads]
  eps = _value_or(config, 'layer_norm_eps', 1e-12)
  if type(eps) not in (int, float) or not 0 < eps < 1:
    yield f'"layer_norm_eps" is {shown(eps)}; it must be between 0 and 1'
  activation = _value_or(config, names.activation, 'gelu')
  if not isinstance(activation, str) or activation not in _ACTIVATIONS:
    kinds = ', '.join(_ACTIVATIONS)
    yield (
      f'"{names.activation}" is {shown(activation)}; only these activations '
      f'are implemented: {kinds}'
    )
  if names is _XLNET:
    own = _ONLY_XLNET | {'d_head': dim // heads}
  else:
    own = _ONLY_BERT | {'embedding_size': dim}
  for name, only in (_ONLY | own).items():
    if (value := _value_or(config, name, only)) != only:
      yield f'"{name}" is {shown(value)}; only {shown(only)} is implemented'
  divisor = heads if names is _BERT or dim % heads else 2
  if dim % divisor:
    yield f'"{names.dim}" is {dim}, which is not a multiple of {divisor}'
  pad_id, size = _pad_id(config), config['vocab_size']
  if pad_id >= size:
    yield f'"pad_token_id" is {pad_id}, but "vocab_size" is only {size}'
  if names is _BERT:
    positions = config['max_position_embeddings']
    if positions - _position_offset(config) <= _SPECIAL_TOKENS:
      yield (
        f'"max_position_embeddings" is {positions}, which leaves no room for a '
        'document'
      )


def _pad_id(config: Mapping[str, Any]) -> Any:
  return _value_or(config, 'pad_token_id', _PAD_IDS[config['model_type']])


def _position_offset(config: Mapping[str, Any]) -> int:
  # RoBERTa and similar models reserve the rows up to pad_id for padding.
  return 0 if config['model_type'] == 'bert' else _pad_id(config) + 1


def _value_or(config: Mapping[str, Any], name: str, default: Any) -> Any:
  value = config.get(name)
  return default if value is None else value
