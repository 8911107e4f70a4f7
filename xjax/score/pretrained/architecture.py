"""Reads the sizes of a BERT-like encoder from Hugging Face's config.json.

BERT is by Devlin et al. 2019, and RoBERTa is by Liu et al. 2019.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import enum
from typing import Any

from xjax.core.errors import DataError
from xjax.data.files.model_files import shown


class Activation(enum.Enum):
  """Chooses the activation after the first layer of a feed-forward network."""

  GELU = 'gelu'  # the exact function, x Phi(x)
  GELU_TANH = 'gelu_tanh'  # the approximation with tanh
  RELU = 'relu'


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Holds the sizes of an encoder.

  Attributes:
    vocab_size: number of token ids, which is the number of rows of the word
      table.
    dim: number of features of a token (D).
    layers: number of blocks.
    heads: number of attention heads, a divisor of dim.
    inner: number of features inside a feed-forward network.
    positions: number of rows of the position table.
    token_types: number of rows of the type table.
    activation: the activation of the feed-forward networks.
    norm_eps: the number that layer normalisation adds to a variance.
    pad_id: the token id of padding.
    position_offset: the row of the position table that belongs to the first
      token of a document.
  """

  vocab_size: int
  dim: int
  layers: int
  heads: int
  inner: int
  positions: int
  token_types: int
  activation: Activation
  norm_eps: float
  pad_id: int
  position_offset: int

  @property
  def max_tokens(self) -> int:
    """Returns the largest length of a document, including special tokens."""
    return self.positions - self.position_offset


# The token id of padding for each supported value of model_type.
_PAD_IDS = {'bert': 0, 'roberta': 1, 'xlm-roberta': 1, 'camembert': 1}
_ACTIVATIONS = {
  'gelu': Activation.GELU,
  'gelu_new': Activation.GELU_TANH,
  'gelu_pytorch_tanh': Activation.GELU_TANH,
  'relu': Activation.RELU,
}

# The largest allowed value of each field. Real encoders have far smaller
# values. If a config has a larger value, it is damaged, or was made to exhaust
# the memory.
_SIZES = {
  'vocab_size': 10**7,
  'hidden_size': 2**16,
  'num_hidden_layers': 1000,
  'num_attention_heads': 2**12,
  'intermediate_size': 2**19,
  'max_position_embeddings': 2**20,
}
_TOKEN_TYPES = 2**10
_SPECIAL_TOKENS = 2  # added to each document


def architecture_of(config: Mapping[str, Any], where: str) -> Architecture:
  """Reads the sizes of an encoder, and checks all fields that matter.

  Args:
    config: the JSON object of config.json. Absent fields that are not sizes
      take the default values of transformers.
    where: the path of config.json, for messages.

  Raises:
    DataError: a size is absent, a value is impossible, or a field asks for a
      feature that is not implemented. The message has one line per fault.
  """
  model = _value_or(config, 'model_type', None)
  if not isinstance(model, str) or model not in _PAD_IDS:
    kinds = ', '.join(_PAD_IDS)
    raise DataError(
      f'{where}: "model_type" is {shown(model)}; only these encoders are '
      f'supported: {kinds}'
    )
  faults = [*_size_faults(config), *_other_faults(config)]
  faults = faults or [*_joint_faults(config)]
  if faults:
    raise DataError('\n'.join(f'{where}: {fault}' for fault in faults))
  return Architecture(
    vocab_size=config['vocab_size'],
    dim=config['hidden_size'],
    layers=config['num_hidden_layers'],
    heads=config['num_attention_heads'],
    inner=config['intermediate_size'],
    positions=config['max_position_embeddings'],
    token_types=_value_or(config, 'type_vocab_size', 2),
    activation=_ACTIVATIONS[_value_or(config, 'hidden_act', 'gelu')],
    norm_eps=float(_value_or(config, 'layer_norm_eps', 1e-12)),
    pad_id=_pad_id(config),
    position_offset=_position_offset(config),
  )


def _size_faults(config: Mapping[str, Any]) -> Iterator[str]:
  """Yields the faults of sizes and of the padding id."""
  for name, most in _SIZES.items():
    if name not in config:
      yield f'"{name}" is missing'
    else:
      yield from _outside(name, config[name], 1, most)
  types = _value_or(config, 'type_vocab_size', 2)
  yield from _outside('type_vocab_size', types, 1, _TOKEN_TYPES)
  pad_id = _pad_id(config)
  yield from _outside('pad_token_id', pad_id, 0, _SIZES['vocab_size'])


def _outside(name: str, value: Any, least: int, most: int) -> Iterator[str]:
  """Yields a fault if a value is not a whole number from least to most."""
  if type(value) is not int or not least <= value <= most:
    yield (
      f'"{name}" is {shown(value)}; it must be a whole number from {least} '
      f'to {most}'
    )


def _other_faults(config: Mapping[str, Any]) -> Iterator[str]:
  """Yields the faults of single fields that are not sizes."""
  eps = _value_or(config, 'layer_norm_eps', 1e-12)
  if type(eps) not in (int, float) or not 0 < eps < 1:
    yield f'"layer_norm_eps" is {shown(eps)}; it must be between 0 and 1'
  activation = _value_or(config, 'hidden_act', 'gelu')
  if not isinstance(activation, str) or activation not in _ACTIVATIONS:
    kinds = ', '.join(_ACTIVATIONS)
    yield (
      f'"hidden_act" is {shown(activation)}; only these activations are '
      f'implemented: {kinds}'
    )
  places = _value_or(config, 'position_embedding_type', 'absolute')
  if places != 'absolute':
    yield (
      f'"position_embedding_type" is {shown(places)}; only absolute '
      'positions are implemented'
    )
  for name in ('is_decoder', 'add_cross_attention', 'pruned_heads'):
    if config.get(name):
      yield f'"{name}" is {shown(config[name])}; it is not implemented'
  if _value_or(config, 'quantization_config', None) is not None:
    yield 'has a "quantization_config"; quantized weights cannot be read'


def _joint_faults(config: Mapping[str, Any]) -> Iterator[str]:
  """Yields the faults of fields that do not fit together."""
  dim, heads = config['hidden_size'], config['num_attention_heads']
  if dim % heads:
    yield (
      f'"hidden_size" is {dim}, which is not a multiple of '
      f'"num_attention_heads" ({heads})'
    )
  narrow = _value_or(config, 'embedding_size', dim)
  if narrow != dim:
    yield (
      f'"embedding_size" is {shown(narrow)} and "hidden_size" is {dim}; only '
      'equal values are implemented'
    )
  pad_id, size = _pad_id(config), config['vocab_size']
  if pad_id >= size:
    yield f'"pad_token_id" is {pad_id}, but "vocab_size" is only {size}'
  positions = config['max_position_embeddings']
  if positions - _position_offset(config) <= _SPECIAL_TOKENS:
    yield (
      f'"max_position_embeddings" is {positions}, which leaves no room for a '
      'document'
    )


def _pad_id(config: Mapping[str, Any]) -> Any:
  return _value_or(config, 'pad_token_id', _PAD_IDS[config['model_type']])


def _position_offset(config: Mapping[str, Any]) -> int:
  """Returns the row of the position table for a document's first token."""
  # RoBERTa and similar models reserve the rows up to pad_id for padding.
  return 0 if config['model_type'] == 'bert' else _pad_id(config) + 1


def _value_or(config: Mapping[str, Any], name: str, default: Any) -> Any:
  """Returns the value of a field, or a default if it is absent or null."""
  value = config.get(name)
  return default if value is None else value
