"""Computes embeddings of label names with a pretrained encoder."""

from collections.abc import Sequence
import dataclasses
import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.progress import progress
from xjax.core.types import Ragged
from xjax.data.schema import Label
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import has_letters
from xjax.score.heads.contract import DescriptorConfig, TokenFeatures
from xjax.score.pooling import Mean

_ROWS = 128  # number of names that are encoded at a time


@dataclasses.dataclass(frozen=True, eq=False)
class NameEncoder:
  """Turns the names of labels into embeddings.

  The embedding of a name is the mean of the last layer's states, including the
  states of special tokens. The mean is scaled to length 1, as in sentence
  encoders (Reimers and Gurevych 2019, Section 3.1). The embedding of a label is
  the mean of its names' embeddings.

  Attributes:
    config: which names to use, and how many tokens of each name.
    tokenizer: the tokenizer of the encoder.
    encoder: the encoder with its weights.
  """

  config: DescriptorConfig
  tokenizer: Subwords
  encoder: nnx.Module

  def encode(self, labels: Sequence[Label]) -> np.ndarray:
    """Returns the embeddings of labels, float32 [labels, E].

    The embedding of a label is 0 if no name of the label has a letter.
    """
    names = [self._names(label) for label in labels]
    vectors = self._vectors([name for group in names for name in group])
    ends = np.cumsum([len(group) for group in names])
    rows = np.zeros((len(labels), self.encoder.dim), np.float32)
    for row, (end, group) in enumerate(zip(ends, names)):
      if group:
        rows[row] = vectors[end - len(group) : end].mean(axis=0)
    return rows

  def _names(self, label: Label) -> list[str]:
    """Returns the names of a label that have a letter."""
    names = (label.name, *label.alt) if self.config.alt else (label.name,)
    return list(filter(has_letters, names))

  def _vectors(self, names: Sequence[str]) -> np.ndarray:
    """Returns embeddings of names, float32 [names, E], scaled to length 1."""
    # max_words does not count special tokens.
    longest = self.config.max_words + self.tokenizer.n_special
    tokens = Ragged.of([self.tokenizer.encode(n, longest) for n in names])
    order = np.argsort(tokens.lengths, kind='stable')
    graphdef, params = nnx.split(self.encoder)
    run = jax.jit(functools.partial(_embed, graphdef))
    vectors = np.zeros((len(names), self.encoder.dim), np.float32)
    starts = range(0, len(names), _ROWS)
    with progress(starts, 'label names', unit='batch') as bar:
      for start in bar:
        rows = order[start : start + _ROWS]
        lengths = np.ones(_ROWS, np.int32)
        lengths[: len(rows)] = tokens.lengths[rows]
        # Widths are powers of 2, so that the program is compiled for few
        # widths.
        width = max(8, 1 << int(lengths.max() - 1).bit_length())
        ids_BT = np.full((_ROWS, width), self.tokenizer.pad_id, np.int32)
        ids_BT[: len(rows)] = tokens.padded(rows, width, self.tokenizer.pad_id)
        vectors[rows] = run(params, ids_BT, lengths)[: len(rows)]
    return vectors


def _embed(
  graphdef: nnx.GraphDef,
  params: nnx.State,
  ids_BT: jax.Array,
  lengths_B: jax.Array,
) -> jax.Array:
  """Returns the mean state of each row's tokens, [B, D], scaled to length 1."""
  encoder = nnx.merge(graphdef, params)
  real_BT = jnp.arange(ids_BT.shape[1]) < lengths_B[:, None]
  h_BTD = encoder(ids_BT.T, real_BT.T, None).swapaxes(0, 1)
  mean = Mean(encoder.dim)
  mean_BD = mean(TokenFeatures(h_BTD, lengths_B)).astype(jnp.float32)
  return mean_BD / jnp.linalg.norm(mean_BD, axis=1, keepdims=True)
