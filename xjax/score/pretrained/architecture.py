"""The sizes of an encoder of the BERT family, from Hugging Face's config.json.

Devlin et al. 2019 (BERT), Liu et al. 2019 (RoBERTa).
"""

from collections.abc import Iterator, Mapping
import dataclasses
import enum
from typing import Any

from xjax.core.errors import DataError
from xjax.data.files.model_files import shown


class Activation(enum.Enum):
  """What follows the inner layer of a block's feed-forward network."""

  GELU = 'gelu'  # x Phi(x), exactly
  GELU_TANH = 'gelu_tanh'  # approximated by a tanh
  RELU = 'relu'


@dataclasses.dataclass(frozen=True)
class Architecture:
  """An encoder's sizes.

  Attributes:
    vocab_size: token ids, rows of the word table.
    dim: features of a token (D).
    layers: blocks.
    heads: of attention; they divide dim.
    inner: features inside a feed-forward network (F).
    positions: rows of the position table.
    token_types: rows of the type table.
    activation: of the feed-forward networks.
    norm_eps: added to a variance.
    pad_id: the token id that the tokenizer pads with.
    position_offset: row of the position table for a document's first token.
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
    """The most tokens it reads of a document, special ones included."""
    return self.positions - self.position_offset


# The kinds of model that are built alike, and the ids they pad with.
_PAD_IDS = {'bert': 0, 'roberta': 1, 'xlm-roberta': 1, 'camembert': 1}
_ACTIVATIONS = {
  'gelu': Activation.GELU,
  'gelu_new': Activation.GELU_TANH,
  'gelu_pytorch_tanh': Activation.GELU_TANH,
  'relu': Activation.RELU,
}

# Field -> the largest value believed. All are far beyond any real encoder; a
# config that asks for more is damaged, or wants to fill the memory.
_SIZES = {
  'vocab_size': 10**7,
  'hidden_size': 2**16,
  'num_hidden_layers': 1000,
  'num_attention_heads': 2**12,
  'intermediate_size': 2**19,
  'max_position_embeddings': 2**20,
}
_TOKEN_TYPES = 2**10
_SPECIAL_TOKENS = 2  # around a document's own


def architecture_of(config: Mapping[str, Any], where: str) -> Architecture:
  """The sizes that a config.json gives.

  Args:
    config: its JSON object. Absent fields other than sizes take the values
      that transformers gives them.
    where: its path, for messages.

  Raises:
    DataError: a field is absent or absurd, or asks for what is not
      implemented; one line per fault.
  """
  model = _given(config, 'model_type', None)
  if not isinstance(model, str) or model not in _PAD_IDS:
    kinds = ', '.join(_PAD_IDS)
    raise DataError(
      f'{where}: "model_type" is {shown(model)}; only these kinds of encoder '
      f'can be read: {kinds}'
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
    token_types=_given(config, 'type_vocab_size', 2),
    activation=_ACTIVATIONS[_given(config, 'hidden_act', 'gelu')],
    norm_eps=float(_given(config, 'layer_norm_eps', 1e-12)),
    pad_id=_pad_id(config),
    position_offset=_position_offset(config),
  )


def _size_faults(config: Mapping[str, Any]) -> Iterator[str]:
  for name, most in _SIZES.items():
    if name not in config:
      yield f'"{name}" is missing'
    else:
      yield from _outside(name, config[name], 1, most)
  types = _given(config, 'type_vocab_size', 2)
  yield from _outside('type_vocab_size', types, 1, _TOKEN_TYPES)
  pad_id = _pad_id(config)
  yield from _outside('pad_token_id', pad_id, 0, _SIZES['vocab_size'])


def _outside(name: str, value: Any, least: int, most: int) -> Iterator[str]:
  if type(value) is not int or not least <= value <= most:
    yield (
      f'"{name}" is {shown(value)}; it must be a whole number from {least} '
      f'to {most}'
    )


def _other_faults(config: Mapping[str, Any]) -> Iterator[str]:
  eps = _given(config, 'layer_norm_eps', 1e-12)
  if type(eps) not in (int, float) or not 0 < eps < 1:
    yield f'"layer_norm_eps" is {shown(eps)}; it must be between 0 and 1'
  activation = _given(config, 'hidden_act', 'gelu')
  if not isinstance(activation, str) or activation not in _ACTIVATIONS:
    kinds = ', '.join(_ACTIVATIONS)
    yield f'"hidden_act" is {shown(activation)}; implemented are: {kinds}'
  places = _given(config, 'position_embedding_type', 'absolute')
  if places != 'absolute':
    yield (
      f'"position_embedding_type" is {shown(places)}; only absolute '
      'positions are implemented'
    )
  for name in ('is_decoder', 'add_cross_attention', 'pruned_heads'):
    if config.get(name):
      yield f'"{name}" is {shown(config[name])}; it is not implemented'
  if _given(config, 'quantization_config', None) is not None:
    yield 'has a "quantization_config"; quantized weights cannot be read'


def _joint_faults(config: Mapping[str, Any]) -> Iterator[str]:
  dim, heads = config['hidden_size'], config['num_attention_heads']
  if dim % heads:
    yield (
      f'"hidden_size" is {dim}, which does not divide among '
      f'"num_attention_heads", {heads}'
    )
  narrow = _given(config, 'embedding_size', dim)
  if narrow != dim:
    yield (
      f'"embedding_size" is {shown(narrow)} and "hidden_size" is {dim}; only '
      'equal ones are implemented'
    )
  pad_id, size = _pad_id(config), config['vocab_size']
  if pad_id >= size:
    yield f'"pad_token_id" is {pad_id}, and "vocab_size" is only {size}'
  positions = config['max_position_embeddings']
  if positions - _position_offset(config) <= _SPECIAL_TOKENS:
    yield (
      f'"max_position_embeddings" is {positions}, which leaves no room for a '
      'document'
    )


def _pad_id(config: Mapping[str, Any]) -> Any:
  return _given(config, 'pad_token_id', _PAD_IDS[config['model_type']])


def _position_offset(config: Mapping[str, Any]) -> int:
  # RoBERTa and its kin keep the rows up to that of the padding id for padding.
  return 0 if config['model_type'] == 'bert' else _pad_id(config) + 1


def _given(config: Mapping[str, Any], name: str, default: Any) -> Any:
  value = config.get(name)
  return default if value is None else value
