"""Converts Hugging Face's tensors of an encoder to our parameters, and back.

They are dicts of arrays by name, with five differences:

- Our parameters are named by path. Hugging Face's tensors are named as in
  transformers' BertModel, RobertaModel and XLNetModel.
- A parameter of the layers has all layers of the encoder, along its first axis.
  Hugging Face has a tensor for each layer.
- A kernel of ours is the transpose of Hugging Face's kernel.
- Query, key and value are three tensors of Hugging Face. We have one parameter,
  which stores the three tensors side by side.
- XLNet's attention kernels are [D, heads, size of a head]. Ours are [D, D].
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
import dataclasses
import json
import math
import re
from typing import Any, NamedTuple

import numpy as np

from xjax.core.errors import DataError
from xjax.networks.pretrained.architecture import (
  Architecture,
  BertArchitecture,
  XLNetArchitecture,
)

_FLOATS = ('float16', 'bfloat16', 'float32', 'float64')
_PREFIX = re.compile(r'(bert|roberta|transformer)\.')
_OLD_NAMES = {
  'LayerNorm.gamma': 'LayerNorm.weight',
  'LayerNorm.beta': 'LayerNorm.bias',
}
# These tensors are ignored, because they do not change what the encoder
# computes here. They are position numbers, the vector of tokens that XLNet has
# to guess, and heads of other tasks.
_EXTRA = re.compile(
  r'embeddings\.(position_ids|token_type_ids)$|mask_emb$'
  r'|(cls|lm_head|lm_loss|classifier|logits_proj|qa_outputs)\.'
  r'|(start_logits|end_logits|answer_class)\.'
)
_SHOWN = 1000  # largest number of names that a message has per type of fault


class Header(NamedTuple):
  """Holds the type and shape of a tensor, without its values."""

  dtype: str  # NumPy's name, or that in the file if it cannot be converted
  shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Pair:
  """Pairs a parameter of ours with the tensors that it has side by side.

  With `layers`, it has them for one layer after the other.
  """

  path: str  # of our parameter
  names: tuple[str, ...]  # plain names of Hugging Face's tensors, by layer
  shape: tuple[int, ...]  # of each tensor
  kernel: bool = False  # the tensors are transposed
  merged: bool = False  # before, all axes after the first become one axis
  layers: int = 0  # length of our parameter's first axis; 0 means no such axis

  @property
  def our_shape(self) -> tuple[int, ...]:
    shape = self.shape
    if self.merged:
      shape = shape[0], math.prod(shape[1:])
    shape = shape[::-1] if self.kernel else shape
    if not self.layers:
      return (*shape[:-1], shape[-1] * len(self.names))
    side_by_side = len(self.names) // self.layers
    return (self.layers, *shape[:-1], shape[-1] * side_by_side)


def parameter_shapes(
  architecture: Architecture, pooler: bool = False
) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of our parameters, by path.

  With `pooler`, they include the dense layer on [CLS], pooling/dense.
  """
  pairs = [*_encoder(architecture), *(_pooler(architecture) if pooler else ())]
  return {pair.path: pair.our_shape for pair in pairs}


def from_hugging_face(
  tensors: Mapping[str, np.ndarray], architecture: Architecture, where: str
) -> dict[str, np.ndarray]:
  """Converts Hugging Face's tensors to our parameters, float32, by path.

  Heads of other tasks are left out. There is pooling/dense if the tensors have
  a pooler. Raises DataError as match_names does, and if values are not finite.
  """
  headers = {name: Header(str(x.dtype), x.shape) for name, x in tensors.items()}
  names = match_names(headers, architecture, where)
  arrays = {name: _float32(tensors[key]) for name, key in names.items()}
  _check_finite(arrays, where)
  return {
    pair.path: _join([arrays[name] for name in pair.names], pair)
    for pair in _present_pairs(names, architecture)
  }


def match_names(
  headers: Mapping[str, Header], architecture: Architecture, where: str
) -> dict[str, str]:
  """Checks tensors, and maps their plain names to the names in the file.

  A plain name has no prefix 'bert.', 'roberta.' or 'transformer.', and has the
  current spelling (_OLD_NAMES has the old ones). One DataError lists all
  tensors that are missing, unexpected, or of another shape or type.
  """
  names: dict[str, str] = {}
  unexpected, wrong = [], []
  for key in headers:
    name = _plain_name(key)
    if not _EXTRA.match(name) and names.setdefault(name, key) != key:
      unexpected.append(f'{key} (the same as {names[name]})')
  expected = {
    name: pair.shape
    for pair in _present_pairs(names, architecture)
    for name in pair.names
  }
  missing = [name for name in expected if name not in names]
  unexpected += [key for name, key in names.items() if name not in expected]
  for name in filter(names.get, expected):
    key, shape = names[name], expected[name]
    if headers[key].dtype not in _FLOATS:
      wrong.append(f'{key} is {headers[key].dtype}, not of a floating type')
    if headers[key].shape != shape:
      wrong.append(f'{key} is {list(headers[key].shape)}, not {list(shape)}')
  faults = {'missing': missing, 'unexpected': unexpected, 'wrong': wrong}
  lines = [f'\n  {kind}: {_list_names(x)}' for kind, x in faults.items() if x]
  if lines:
    raise DataError(
      f'{where}: the tensors do not match config.json' + ''.join(lines)
    )
  return names


def parameter_paths(
  names: Collection[str], architecture: Architecture
) -> frozenset[str]:
  """Returns the paths of the parameters that plain names are converted to."""
  return frozenset(pair.path for pair in _present_pairs(names, architecture))


def to_hugging_face(
  params: Mapping[str, Any], architecture: Architecture
) -> dict[str, np.ndarray]:
  """Converts our parameters to Hugging Face's tensors, by plain name.

  Tensors are float32. Only the encoder and pooling/dense are converted.
  """
  pairs = [*_encoder(architecture)]
  if any(path.startswith(_POOLER_PATH) for path in params):
    pairs += _pooler(architecture)
  return {
    name: part
    for pair in pairs
    for name, part in zip(pair.names, _split(params[pair.path], pair))
  }


def _list_names(names: list[str]) -> str:
  """Joins names to one text, and escapes control characters."""
  # The file may come from anyone, so no control character may reach the
  # terminal.
  more = [f'and {len(names) - _SHOWN} more'] * (len(names) > _SHOWN)
  return ', '.join([json.dumps(x)[1:-1] for x in names[:_SHOWN]] + more)


def _plain_name(name: str) -> str:
  """Converts the name of a tensor to the plain name (see match_names)."""
  name = _PREFIX.sub('', name, count=1) if _PREFIX.match(name) else name
  for old, new in _OLD_NAMES.items():
    if name.endswith(old):
      return name.removesuffix(old) + new
  return name


_POOLER_PATH = 'pooling/dense/'


def _present_pairs(
  names: Collection[str], architecture: Architecture
) -> Iterator[_Pair]:
  yield from _encoder(architecture)
  pooler = [*_pooler(architecture)]
  if any(name in names for pair in pooler for name in pair.names):
    yield from pooler


def _encoder(architecture: Architecture) -> Iterator[_Pair]:
  match architecture:
    case XLNetArchitecture():
      yield from _xlnet(architecture)
    case BertArchitecture():
      yield from _bert(architecture)


def _xlnet(architecture: XLNetArchitecture) -> Iterator[_Pair]:
  dim, heads = architecture.dim, architecture.heads
  table = architecture.vocab_size, dim
  yield _Pair('encoder/embeddings/word', ('word_embedding.weight',), table)
  split, kernel = (heads, dim // heads), (dim, heads, dim // heads)
  path, name = 'encoder/layers/attention', 'layer.{}.rel_attn'
  inputs = tuple(f'{name}.{part}' for part in 'qkv')
  layer = [
    _Pair(f'{path}/inputs/kernel', inputs, kernel, merged=True),
    _Pair(f'{path}/position/kernel', (f'{name}.r',), kernel, merged=True),
    _Pair(f'{path}/output/kernel', (f'{name}.o',), kernel, True, merged=True),
    _Pair(f'{path}/word_bias', (f'{name}.r_w_bias',), split),
    _Pair(f'{path}/position_bias', (f'{name}.r_r_bias',), split),
    _Pair(f'{path}/segment_bias', (f'{name}.r_s_bias',), split),
    _Pair(f'{path}/segment', (f'{name}.seg_embed',), (2, *split)),
    *_norm(f'{path}/norm', f'{name}.layer_norm', dim),
  ]
  path, name, inner = 'encoder/layers/ffn', 'layer.{}.ff', architecture.inner
  layer += _dense(f'{path}/inner', (f'{name}.layer_1',), dim, inner)
  layer += _dense(f'{path}/output', (f'{name}.layer_2',), inner, dim)
  layer += _norm(f'{path}/norm', f'{name}.layer_norm', dim)
  yield from _stacks(layer, architecture.layers)


def _bert(architecture: BertArchitecture) -> Iterator[_Pair]:
  dim, path, name = architecture.dim, 'encoder/embeddings', 'embeddings'
  tables = {
    'word': ('word_embeddings', architecture.vocab_size),
    'position': ('position_embeddings', architecture.positions),
    'type': ('token_type_embeddings', architecture.token_types),
  }
  for ours, (theirs, rows) in tables.items():
    yield _Pair(f'{path}/{ours}', (f'{name}.{theirs}.weight',), (rows, dim))
  yield from _norm(f'{path}/norm', f'{name}.LayerNorm', dim)
  yield from _stacks(_block(dim, architecture.inner), architecture.layers)


def _stacks(layer: Iterable[_Pair], layers: int) -> Iterator[_Pair]:
  """Stacks the pairs of a layer; '{}' in a name is the layer's number."""
  for pair in layer:
    names = (name.format(i) for i in range(layers) for name in pair.names)
    yield dataclasses.replace(pair, names=tuple(names), layers=layers)


def _block(dim: int, inner: int) -> Iterator[_Pair]:
  path, name = 'encoder/layers', 'encoder.layer.{}'
  attention = f'{name}.attention'
  inputs = tuple(f'{attention}.self.{n}' for n in ('query', 'key', 'value'))
  yield from _dense(f'{path}/attention/inputs', inputs, dim, dim)
  output = (f'{attention}.output.dense',)
  yield from _dense(f'{path}/attention/output', output, dim, dim)
  yield from _norm(
    f'{path}/attention/norm', f'{attention}.output.LayerNorm', dim
  )
  between = (f'{name}.intermediate.dense',)
  yield from _dense(f'{path}/ffn/inner', between, dim, inner)
  yield from _dense(f'{path}/ffn/output', (f'{name}.output.dense',), inner, dim)
  yield from _norm(f'{path}/ffn/norm', f'{name}.output.LayerNorm', dim)


def _pooler(architecture: Architecture) -> Iterator[_Pair]:
  dim = architecture.dim
  is_xlnet = isinstance(architecture, XLNetArchitecture)
  name = 'sequence_summary.summary' if is_xlnet else 'pooler.dense'
  yield from _dense(_POOLER_PATH[:-1], (name,), dim, dim)


def _dense(
  path: str, names: tuple[str, ...], inputs: int, outputs: int
) -> Iterator[_Pair]:
  weights = tuple(f'{name}.weight' for name in names)
  biases = tuple(f'{name}.bias' for name in names)
  yield _Pair(f'{path}/kernel', weights, (outputs, inputs), kernel=True)
  yield _Pair(f'{path}/bias', biases, (outputs,))


def _norm(path: str, name: str, dim: int) -> Iterator[_Pair]:
  yield _Pair(f'{path}/scale', (f'{name}.weight',), (dim,))
  yield _Pair(f'{path}/bias', (f'{name}.bias',), (dim,))


def _join(parts: list[np.ndarray], pair: _Pair) -> np.ndarray:
  if pair.merged:
    parts = [x.reshape(len(x), -1) for x in parts]
  parts = [x.T if pair.kernel else x for x in parts]
  count = len(parts) // (pair.layers or 1)  # side by side
  rows = [
    np.concatenate(parts[i : i + count], axis=-1)
    for i in range(0, len(parts), count)
  ]
  return np.stack(rows).reshape(pair.our_shape)


def _split(param: Any, pair: _Pair) -> list[np.ndarray]:
  layers = _float32(param) if pair.layers else [_float32(param)]
  count = len(pair.names) // len(layers)
  parts = [x for layer in layers for x in np.split(layer, count, axis=-1)]
  # The file stores bytes in memory order, so arrays must be contiguous.
  parts = [np.ascontiguousarray(x.T if pair.kernel else x) for x in parts]
  return [x.reshape(pair.shape) for x in parts]


def _float32(tensor: Any) -> np.ndarray:
  with np.errstate(over='ignore'):  # _check_finite reports overflow
    return np.asarray(tensor).astype(np.float32)


def _check_finite(tensors: Mapping[str, np.ndarray], where: str) -> None:
  faulty = [name for name, x in tensors.items() if not np.isfinite(x).all()]
  if faulty:
    raise DataError(
      f'{where}: has values that are not finite (NaN, infinity, or beyond '
      f'float32) in: {_list_names(faulty)}'
    )
