"""Hugging Face's tensors of an encoder become our parameters, and back.

Both are dicts. Ours are named by path and multiply from the right; theirs are
named as transformers' BertModel and RobertaModel name them, and multiply from
the left: kernels are transposed. Query, key and value are three of theirs and,
side by side, one of ours.
"""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import json
import re
from typing import Any, NamedTuple

import numpy as np

from xjax.core.errors import DataError
from xjax.score.pretrained.architecture import Architecture

_FLOATS = ('float16', 'bfloat16', 'float32', 'float64')
_PREFIX = re.compile(r'(bert|roberta)\.')
_OLD_NAMES = {
  'LayerNorm.gamma': 'LayerNorm.weight',
  'LayerNorm.beta': 'LayerNorm.bias',
}
# What encoders are saved with and does not change what they compute here:
# numbers of positions, and heads of other tasks.
_EXTRA = re.compile(
  r'embeddings\.(position_ids|token_type_ids)$'
  r'|(cls|lm_head|classifier|qa_outputs)\.'
)
_SHOWN = 1000  # names that a message lists of each kind


class Header(NamedTuple):
  """What is known of a tensor without reading it.

  Attributes:
    dtype: as NumPy calls it, else as the file does.
    shape: its axes.
  """

  dtype: str
  shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Pair:
  """One parameter of ours, and what it is made of.

  Attributes:
    path: ours.
    names: theirs, without prefix, side by side in ours.
    shape: of each of theirs.
    kernel: whether they are transposed.
  """

  path: str
  names: tuple[str, ...]
  shape: tuple[int, ...]
  kernel: bool = False

  @property
  def our_shape(self) -> tuple[int, ...]:
    """The shape of the parameter."""
    shape = self.shape[::-1] if self.kernel else self.shape
    return (*shape[:-1], shape[-1] * len(self.names))


def parameter_shapes(
  architecture: Architecture, pooler: bool = False
) -> dict[str, tuple[int, ...]]:
  """The shapes of our parameters, by path.

  Args:
    architecture: of the encoder.
    pooler: whether the dense layer on [CLS] counts: pooling/dense.
  """
  pairs = [*_encoder(architecture), *(_pooler(architecture) if pooler else ())]
  return {pair.path: pair.our_shape for pair in pairs}


def from_hugging_face(
  tensors: Mapping[str, np.ndarray], architecture: Architecture, where: str
) -> dict[str, np.ndarray]:
  """Our parameters.

  Args:
    tensors: theirs, of any floating type; names may begin with 'bert.' or
      'roberta.'. Heads of other tasks are left out.
    architecture: what they should be of.
    where: their file, for messages.

  Returns:
    float32 by path; pooling/dense as well, where tensors have a pooler.

  Raises:
    DataError: tensors are missing, unexpected, or of another shape or type,
      all told at once; or values are not finite.
  """
  headers = {name: Header(str(x.dtype), x.shape) for name, x in tensors.items()}
  names = wanted_names(headers, architecture, where)
  given = {name: _float32(tensors[own]) for name, own in names.items()}
  _check_finite(given, where)
  return {
    pair.path: _joined([given[name] for name in pair.names], pair.kernel)
    for pair in _present(names, architecture)
  }


def wanted_names(
  headers: Mapping[str, Header], architecture: Architecture, where: str
) -> dict[str, str]:
  """Which tensors make the parameters.

  Args:
    headers: of all tensors there are, by name.
    architecture: what they should be of.
    where: their file, for messages.

  Returns:
    The plain name -> the name there is, prefix and all.

  Raises:
    DataError: tensors are missing, unexpected, or of another shape or type;
      one message lists them all.
  """
  faults = _Faults()
  names: dict[str, str] = {}
  for own in headers:
    name = _plain(own)
    if not _EXTRA.match(name) and names.setdefault(name, own) != own:
      faults.unexpected.append(f'{own} (the same as {names[name]})')
  expected = {
    name: pair.shape
    for pair in _present(names, architecture)
    for name in pair.names
  }
  faults.missing += [name for name in expected if name not in names]
  faults.unexpected += [own for n, own in names.items() if n not in expected]
  for name, shape in expected.items():
    if name in names:
      faults.compare(names[name], headers[names[name]], shape)
  faults.refuse(where)
  return names


def made_paths(
  names: Iterable[str], architecture: Architecture
) -> frozenset[str]:
  """Paths of the parameters that tensors make; a pooler's, if there is one.

  Args:
    names: plain ones, as of wanted_names.
    architecture: of the encoder.
  """
  return frozenset(pair.path for pair in _present(names, architecture))


def to_hugging_face(
  params: Mapping[str, Any], architecture: Architecture, where: str
) -> dict[str, np.ndarray]:
  """Their tensors, named without prefix.

  Args:
    params: ours by path, NumPy's or JAX's; what is neither of the encoder nor
      pooling/dense is left out.
    architecture: of the encoder.
    where: what they are of, for messages.

  Returns:
    float32 by name, contiguous; the pooler's only where params have one.

  Raises:
    DataError: parameters are missing, unexpected or of another shape, all
      told at once.
  """
  own = {
    path: x
    for path, x in params.items()
    if path.startswith(('encoder/', _POOLER_PATH))
  }
  pairs = [*_encoder(architecture)]
  if any(path.startswith(_POOLER_PATH) for path in own):
    pairs += _pooler(architecture)
  shapes = {pair.path: pair.our_shape for pair in pairs}
  faults = _Faults()
  faults.missing += [path for path in shapes if path not in own]
  faults.unexpected += [path for path in own if path not in shapes]
  for path in shapes.keys() & own.keys():
    found = Header(str(own[path].dtype), tuple(own[path].shape))
    faults.compare(path, found, shapes[path])
  faults.refuse(where)
  return {
    name: part
    for pair in pairs
    for name, part in zip(pair.names, _parted(own[pair.path], pair))
  }


class _Faults:
  """What is wrong with a set of tensors."""

  def __init__(self) -> None:
    self.missing: list[str] = []
    self.unexpected: list[str] = []
    self.wrong: list[str] = []

  def compare(self, name: str, found: Header, shape: tuple[int, ...]) -> None:
    """Notes another type or shape than expected."""
    if found.dtype not in _FLOATS:
      self.wrong.append(f'{name} is {found.dtype}, not of a floating type')
    if found.shape != shape:
      self.wrong.append(f'{name} is {list(found.shape)}, not {list(shape)}')

  def refuse(self, where: str) -> None:
    """Raises DataError with all of them, if there are any."""
    told = [
      f'  {kind}: {_listed(names)}'
      for kind, names in vars(self).items()
      if names
    ]
    if told:
      raise DataError(
        f'{where}: not the tensors that its config.json asks for\n'
        + '\n'.join(told)
      )


def _listed(names: list[str]) -> str:
  # Of a file that may be anyone's: no control characters reach the terminal.
  shown = [json.dumps(name)[1:-1] for name in names[:_SHOWN]]
  more = [f'and {len(names) - _SHOWN} more'] if len(names) > _SHOWN else []
  return ', '.join([*shown, *more])


def _plain(name: str) -> str:
  name = _PREFIX.sub('', name, count=1) if _PREFIX.match(name) else name
  for old, new in _OLD_NAMES.items():
    if name.endswith(old):
      return name.removesuffix(old) + new
  return name


_POOLER_PATH = 'pooling/dense/'


def _present(
  names: Iterable[str], architecture: Architecture
) -> Iterator[_Pair]:
  """The parameters asked for: a pooler only where there is some of one."""
  yield from _encoder(architecture)
  if any(name.startswith('pooler.') for name in names):
    yield from _pooler(architecture)


def _encoder(architecture: Architecture) -> Iterator[_Pair]:
  dim, path, name = architecture.dim, 'encoder/embeddings', 'embeddings'
  tables = {
    'word': ('word_embeddings', architecture.vocab_size),
    'position': ('position_embeddings', architecture.positions),
    'type': ('token_type_embeddings', architecture.token_types),
  }
  for ours, (theirs, rows) in tables.items():
    yield _Pair(f'{path}/{ours}', (f'{name}.{theirs}.weight',), (rows, dim))
  yield from _norm(f'{path}/norm', f'{name}.LayerNorm', dim)
  for layer in range(architecture.layers):
    yield from _block(layer, dim, architecture.inner)


def _block(layer: int, dim: int, inner: int) -> Iterator[_Pair]:
  path, name = f'encoder/layers/{layer}', f'encoder.layer.{layer}'
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
  yield from _dense(_POOLER_PATH[:-1], ('pooler.dense',), dim, dim)


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


def _joined(parts: list[np.ndarray], kernel: bool) -> np.ndarray:
  whole = np.concatenate([x.T if kernel else x for x in parts], axis=-1)
  return np.ascontiguousarray(whole)


def _parted(param: Any, pair: _Pair) -> list[np.ndarray]:
  parts = np.split(_float32(param), len(pair.names), axis=-1)
  # Files take the bytes as they lie in memory.
  return [np.ascontiguousarray(x.T if pair.kernel else x) for x in parts]


def _float32(tensor: Any) -> np.ndarray:
  with np.errstate(over='ignore'):  # the values are looked at afterwards
    return np.asarray(tensor).astype(np.float32)


def _check_finite(tensors: Mapping[str, np.ndarray], where: str) -> None:
  faulty = [name for name, x in tensors.items() if not np.isfinite(x).all()]
  if faulty:
    raise DataError(
      f'{where}: has values that are not finite (NaN, infinity, or beyond '
      f'float32) in: {_listed(faulty)}'
    )
