"""Computes vectors of texts with a pretrained encoder that is not trained."""

from collections.abc import Mapping, Sequence
import functools
import hashlib
import json
import os
from typing import Any

from flax import nnx
import jax.numpy as jnp
from jaxtyping import Float32
import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.config_part import kinds
from xjax.core.errors import ConfigError
from xjax.data.files.faults import Fault
from xjax.data.files.json_lines import parse_object
from xjax.data.text.subwords import Subwords
from xjax.data.tokens_config import TextVectorsConfig

# Encoders are found among the classes that are imported.
from xjax.networks.encoders import bert, xlnet  # noqa: F401
from xjax.networks.encoders.encoder import EncoderInputs, PretrainedConfig
from xjax.networks.pretrained.architecture import (
  Architecture,
  BertArchitecture,
  architecture_of,
  small_encoder,
)
from xjax.networks.pretrained.convert import parameter_shapes
from xjax.networks.pretrained.model_folder import ModelFolder, check_vocabulary
from xjax.networks.pretrained.text_encoder import TextEncoder
from xjax.train.parameters import by_path, filled

_ENCODER = 'encoder/'


class TextVectors:
  """Computes one vector of length 1 per text (data.text.TextFeatures)."""

  def __init__(
    self,
    sizes: Mapping[str, Any],  # the content of the encoder's config.json
    tokenizer: Subwords,
    weights: Mapping[str, np.ndarray],  # by path: 'encoder/embeddings/word'
    max_tokens: int,  # read from the start of a text
  ):
    self._sizes, self._tokenizer = dict(sizes), tokenizer
    self._weights, self._max_tokens = dict(weights), max_tokens
    architecture = architecture_of(self._sizes, tokenizer.source)
    # An encoder without arrays, whose parameters are replaced by the weights:
    # no fresh weights are drawn.
    encoder = filled(_module(architecture), weights, _ENCODER)
    self._encoder = TextEncoder(tokenizer, encoder, max_tokens)
    self.n_features = self._encoder.dim

  @classmethod
  def fit(
    cls, texts: Sequence[str], config: TextVectorsConfig
  ) -> 'TextVectors':
    """Reads the encoder of a new run.

    Without config.folder, a small encoder with fresh weights is made, and its
    tokenizer from the training texts.
    """
    if not config.folder:
      tokenizer = Subwords.fit(texts)
      sizes = small_encoder(BertArchitecture, len(tokenizer), config.max_tokens)
      return cls(sizes, tokenizer, _fresh(sizes), config.max_tokens)
    folder, tokenizer = check_folder(config)
    wanted = parameter_shapes(folder.architecture)
    weights = {
      path: x for path, x in folder.parameters().items() if path in wanted
    }
    return cls(folder.config, tokenizer, weights, config.max_tokens)

  @functools.cached_property
  def digest(self) -> str:
    """Returns the hex digest of all that decides the vectors."""
    digest = hashlib.sha256()
    for name, values in self._arrays().items():
      digest.update(f'{name} {values.dtype} {values.shape} '.encode())
      digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the vectors of N texts, float32 [N, D]; no entry is left out."""
    return dense_rows(self.vectors(texts))

  def vectors(self, texts: Sequence[str]) -> Float32[np.ndarray, 'N D']:
    return self._encoder.vectors(texts)

  def warmup(self) -> None:
    self._encoder.warmup()

  def save(self, path: str | os.PathLike) -> None:
    write_npz(path, self._arrays())

  def _arrays(self) -> dict[str, np.ndarray]:
    sizes = json.dumps(self._sizes, sort_keys=True)
    return {
      # Bytes, because .npz files of text would need pickle or fixed widths.
      'sizes': np.frombuffer(sizes.encode(), np.uint8),
      'tokenizer': np.frombuffer(self._tokenizer.text.encode(), np.uint8),
      'max_tokens': np.int64(self._max_tokens),
      **dict(sorted(self._weights.items())),
    }

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'TextVectors':
    """Reads the file of `save`, or raises a DataError."""
    arrays = Arrays.read(path)
    sizes, where = _object(arrays, 'sizes'), f'{path}: tokenizer'
    tokenizer = Subwords(_object(arrays, 'tokenizer'), where)
    architecture = architecture_of(sizes, f'{path}: sizes')
    # Sizes are checked before arrays of these sizes are read.
    check_vocabulary(len(tokenizer), architecture, where, True)
    max_tokens = arrays.count('max_tokens')
    if fault := _length_fault(max_tokens, architecture, tokenizer):
      arrays.fail('max_tokens', f'is {max_tokens}; {fault}')
    weights = {}
    for name, shape in parameter_shapes(architecture).items():
      weights[name] = arrays.take(name, np.float32, shape)
      arrays.check(name, ~np.isfinite(weights[name]), 'is not finite')
    arrays.finish()
    return cls(sizes, tokenizer, weights, max_tokens)


def check_folder(config: TextVectorsConfig) -> tuple[ModelFolder, Subwords]:
  """Checks the folder of an encoder, config.folder, without its weights."""
  folder = ModelFolder.at(config.folder)
  tokenizer = folder.tokenizer(spare_rows=True)
  if fault := _length_fault(config.max_tokens, folder.architecture, tokenizer):
    raise ConfigError(
      f'config.data.tokens.max_tokens={config.max_tokens}: {folder.path}: '
      f'{fault}'
    )
  folder.paths()
  return folder, tokenizer


def _length_fault(
  max_tokens: int, architecture: Architecture, tokenizer: Subwords
) -> str | None:
  longest, special = architecture.max_tokens, tokenizer.n_special
  if longest is not None and max_tokens > longest:
    return f'the encoder reads at most {longest} tokens'
  if max_tokens <= special:
    return (
      f'max_tokens must be more than {special}, the number of special tokens '
      'that the tokenizer puts around a text'
    )
  return None


def dense_rows(vectors_ND: Float32[np.ndarray, 'N D']) -> sparse.csr_array:
  """Returns vectors as rows of features, in which no entry is left out."""
  n, dim = vectors_ND.shape
  # int64 only where int32 is too small for the number of entries.
  index = sparse.get_index_dtype(maxval=n * dim)
  columns = np.tile(np.arange(dim, dtype=index), n)
  indptr = np.arange(n + 1, dtype=index) * dim
  return sparse.csr_array((vectors_ND.reshape(-1), columns, indptr), (n, dim))


def _module(architecture: Any, rngs: nnx.Rngs | None = None) -> nnx.Module:
  kind = next(
    kind
    for kind in kinds(PretrainedConfig)
    if isinstance(architecture, kind.architecture)
  )
  inputs = EncoderInputs(0, jnp.float32, architecture)
  if rngs is None:
    # Shapes only.
    return nnx.eval_shape(lambda: kind().build(inputs, nnx.Rngs(0)))
  return kind().build(inputs, rngs)


def _fresh(sizes: Mapping[str, Any]) -> dict[str, np.ndarray]:
  module = _module(architecture_of(sizes, 'the small encoder'), nnx.Rngs(0))
  params = by_path(nnx.state(module, nnx.Param))
  return {f'{_ENCODER}{path}': np.asarray(x) for path, x in params.items()}


def _object(arrays: Arrays, name: str) -> dict[str, Any]:
  text = arrays.take(name, np.uint8, (None,)).tobytes()
  try:
    return parse_object(text)
  except Fault as fault:
    arrays.fail(name, f'cannot be read: {fault}')
