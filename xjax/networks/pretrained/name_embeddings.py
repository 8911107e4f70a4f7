"""Computes embeddings of label names with a pretrained encoder."""

from collections.abc import Sequence
import dataclasses

from flax import nnx
import numpy as np

from xjax.core.progress import progress
from xjax.data.schema import Label
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import has_letters
from xjax.networks.heads.head import DescriptorConfig
from xjax.networks.pretrained.text_encoder import TextEncoder

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
    names = [self._names(label) for label in labels]
    vectors = self._vectors([name for group in names for name in group])
    ends = np.cumsum([len(group) for group in names])
    rows = np.zeros((len(labels), self.encoder.dim), np.float32)
    for row, (end, group) in enumerate(zip(ends, names)):
      if group:
        rows[row] = vectors[end - len(group) : end].mean(axis=0)
    return rows

  def _names(self, label: Label) -> list[str]:
    names = (label.name, *label.alt) if self.config.alt else (label.name,)
    return list(filter(has_letters, names))

  def _vectors(self, names: Sequence[str]) -> np.ndarray:
    """Returns embeddings of names, float32 [names, E], scaled to length 1."""
    # max_words does not count special tokens.
    longest = self.config.max_words + self.tokenizer.n_special
    encode = TextEncoder(self.tokenizer, self.encoder, longest).vectors
    parts = [np.zeros((0, self.encoder.dim), np.float32)]
    with progress(range(0, len(names), _NAMES), 'label names') as starts:
      parts += [encode(names[start : start + _NAMES]) for start in starts]
    return np.concatenate(parts)
