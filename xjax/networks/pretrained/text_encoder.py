"""Turns short texts, such as label names, into vectors by an encoder."""

from collections.abc import Iterator, Sequence
import dataclasses
import functools

from flax import nnx
import jax
import jax.numpy as jnp
from jaxtyping import Float32, Int
import numpy as np

from xjax.core.processes.forks import check_jax_runs
from xjax.core.progress import progress
from xjax.core.types import Ragged
from xjax.data.schema import Label
from xjax.data.text.subwords import Subwords
from xjax.networks.heads.head import DescriptorConfig, TokenFeatures
from xjax.networks.pooling import Mean
from xjax.networks.pretrained.descriptor_encoder import label_names

# The numbers of rows of a batch, so that the program is compiled for few shapes
# and one text alone needs no large batch.
_ROWS = (1, 16, 128)


@dataclasses.dataclass(frozen=True, eq=False)
class TextEncoder:
  """Turns texts into vectors of length 1.

  A vector is the mean of the last layer's states, including the states of
  special tokens, scaled to length 1, as in sentence encoders (Reimers and
  Gurevych 2019, Section 3.1).
  """

  tokenizer: Subwords
  encoder: nnx.Module
  max_tokens: int  # read from the start of a text, with special tokens

  @property
  def dim(self) -> int:
    return self.encoder.dim

  def vectors(self, texts: Sequence[str]) -> Float32[np.ndarray, 'N E']:
    """Returns the vectors of N texts."""
    check_jax_runs()
    tokens = Ragged.of(self.tokenizer.encode_all(texts, self.max_tokens))
    vectors_NE = np.zeros((len(texts), self.dim), np.float32)
    program, params = self._program
    # A batch has texts of about the same length. So a vector depends on the
    # other texts at most by rounding errors.
    for rows, width in _batches(tokens.lengths, self.max_tokens):
      n = next(n for n in _ROWS if n >= len(rows))
      lengths_B = np.ones(n, np.int32)
      lengths_B[: len(rows)] = tokens.lengths[rows]
      ids_BT = np.full((n, width), self.tokenizer.pad_id, np.int32)
      ids_BT[: len(rows)] = tokens.padded(rows, width, self.tokenizer.pad_id)
      vectors_NE[rows] = program(params, ids_BT, lengths_B)[: len(rows)]
    return vectors_NE

  def warmup(self) -> None:
    """Compiles the program for all shapes of batches."""
    program, params = self._program
    lengths = np.arange(1, self.max_tokens + 1)
    for n in _ROWS:
      for width in np.unique(_widths(lengths, self.max_tokens)).tolist():
        ids_BT = np.full((n, width), self.tokenizer.pad_id, np.int32)
        program(params, ids_BT, np.ones(n, np.int32))

  @functools.cached_property
  def _program(self) -> tuple:
    graphdef, params = nnx.split(self.encoder)
    return jax.jit(functools.partial(_embed, graphdef)), params


def _widths(
  lengths: Int[np.ndarray, ' N'], max_tokens: int
) -> Int[np.ndarray, ' N']:
  # Widths are powers of 2, so that the program is compiled for few widths.
  powers = np.ceil(np.log2(np.maximum(lengths, 8))).astype(np.int64)
  return np.minimum(2**powers, max_tokens)


def _batches(
  lengths: Int[np.ndarray, ' N'], max_tokens: int
) -> Iterator[tuple[Int[np.ndarray, ' B'], int]]:
  widths = _widths(lengths, max_tokens)
  for width in np.unique(widths):
    rows = np.flatnonzero(widths == width)
    for start in range(0, len(rows), _ROWS[-1]):
      yield rows[start : start + _ROWS[-1]], int(width)


def _embed(graphdef, params, ids_BT, lengths_B) -> jax.Array:
  """Returns the mean state of each row's tokens, [B, E], scaled to length 1."""
  encoder = nnx.merge(graphdef, params)
  real_BT = jnp.arange(ids_BT.shape[1]) < lengths_B[:, None]
  h_BTE = encoder(ids_BT.T, real_BT.T, None).swapaxes(0, 1)
  mean = Mean(encoder.dim)
  mean_BE = mean(TokenFeatures(h_BTE, lengths_B)).astype(jnp.float32)
  return mean_BE / jnp.linalg.norm(mean_BE, axis=1, keepdims=True)


_NAMES = 4096  # number of names that are encoded at a time


@dataclasses.dataclass(frozen=True, eq=False)
class NameEncoder:
  """Turns the names of labels into embeddings.

  The embedding of a name is its vector (TextEncoder). The embedding of a label
  is the mean of its names' embeddings.
  """

  config: DescriptorConfig
  tokenizer: Subwords
  encoder: nnx.Module

  def encode(self, labels: Sequence[Label]) -> np.ndarray:
    """Returns the embeddings of labels, float32 [labels, E].

    The embedding of a label is 0 if no name of the label has a letter.
    """
    names = [label_names(label, self.config.alt) for label in labels]
    vectors = self._vectors([name for group in names for name in group])
    ends = np.cumsum([len(group) for group in names])
    rows = np.zeros((len(labels), self.encoder.dim), np.float32)
    for row, (end, group) in enumerate(zip(ends, names)):
      if group:
        rows[row] = vectors[end - len(group) : end].mean(axis=0)
    return rows

  def _vectors(self, names: Sequence[str]) -> np.ndarray:
    """Returns embeddings of names, float32 [names, E], scaled to length 1."""
    # max_words does not count special tokens.
    longest = self.config.max_words + self.tokenizer.n_special
    encode = TextEncoder(self.tokenizer, self.encoder, longest).vectors
    parts = [np.zeros((0, self.encoder.dim), np.float32)]
    with progress(range(0, len(names), _NAMES), 'label names') as starts:
      parts += [encode(names[start : start + _NAMES]) for start in starts]
    return np.concatenate(parts)
