"""The head contract: logits of one chunk of labels.

A head is a module whose parameters of one row per label are created with
`out_sharding=(LABEL, ...)`, or `((LABEL, DATA), ...)` where `axes` says so, and
padded to core.mesh.padded_labels(n_labels) rows. It says only how a chunk of
labels is scored; the loss (streaming.py) and the selection (topk.py) cut the
rows, over chunks and over mesh shards.
"""

import abc
from collections.abc import Iterator, Mapping
import dataclasses
import enum
from typing import Any, ClassVar, NamedTuple

from flax import nnx, struct
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np

from xjax.core.config_part import AT_LEAST_1, ConfigPart, field
from xjax.core.mesh import DATA, LABEL


class Frozen(nnx.Param):
  """A parameter without gradient, optimizer slots or updates.

  It is saved, restored and sharded as any other.
  """


@dataclasses.dataclass
class HeadConfig(ConfigPart, abstract=True):
  """What scores labels.

  Attributes:
    pooled: whether it reads one vector of a document, and needs a pooling.
    attends: whether labels attend to tokens, so that it can say why.
    describes: whether labels are known by descriptors, so that more can be
      added by name.
    on_all_devices: whether its label rows lie on all devices, not on those of
      the label axis alone; its `axes` are ALL_DEVICES then.
    fusable: whether training can change its label rows in the pass that finds
      their gradient (train.rows); of OneVsAllConfig and what extends it.
    hidden_labels: rare labels that are hidden from its rows, to calibrate the
      scores of labels never seen.
    aligned: whether descriptors and tokens are of one space from the start.
  """

  pooled: ClassVar[bool] = False
  attends: ClassVar[bool] = False
  describes: ClassVar[bool] = False
  on_all_devices: ClassVar[bool] = False
  fusable: ClassVar[bool] = False
  hidden_labels = 0
  aligned = False

  chunk: int = field(
    512,
    'Labels scored at a time; bounds memory, never changes results.',
    AT_LEAST_1,
    tiny=8,
  )

  @abc.abstractmethod
  def build(self, inputs: 'HeadInputs', rngs: nnx.Rngs) -> 'Head':
    """The head.

    Args:
      inputs: what it is made for.
      rngs: stream `params`.
    """

  def check(self, config: Any, path: str) -> Iterator[str]:
    pooling = config.model.pooling
    kind = type(pooling).__name__
    if self.pooled != pooling.pools:
      yield (
        f'config.model.pooling={kind}(): {path}={type(self).__name__}(...) '
        + ('needs a pooling' if self.pooled else 'reads tokens: NoPooling()')
      )


@dataclasses.dataclass(frozen=True, eq=False)
class HeadInputs:
  """What a head is made for.

  Attributes:
    dim: size of what it reads, a token's vector or the document's.
    n_labels: labels to score, L.
    bias_L: float64 [L], the first biases; None: zeros.
    seen_L: bool [L], labels that training documents have and that are not
      hidden.
    hidden_L: bool [L], labels hidden to calibrate by.
    descriptor_dim: size of a label's descriptor.
  """

  dim: int
  n_labels: int
  bias_L: np.ndarray | None
  seen_L: np.ndarray
  hidden_L: np.ndarray
  descriptor_dim: int


class DescriptorWeights(enum.Enum):
  """What the words of descriptors count."""

  UNIFORM = 'uniform'
  IDF = 'idf'


@dataclasses.dataclass
class DescriptorConfig(ConfigPart):
  """How a label's descriptor becomes a vector: a mean of word vectors."""

  alt: bool = field(
    False, 'Whether the words of alternative names count as well.'
  )
  weights: DescriptorWeights = field(
    DescriptorWeights.UNIFORM,
    'Uniform (Chalkidis et al. 2019: the centroid), or by the inverse '
    'frequency of a word in the descriptors of all labels.',
  )
  max_words: int = field(
    15,
    'Of each name, its first ones; with BertConfig its first pieces, which '
    'with the special tokens around them must not be more than the encoder '
    'reads.',
    AT_LEAST_1,
  )


@dataclasses.dataclass
class DescriptorHeadConfig(HeadConfig, abstract=True):
  """A head that knows labels by their descriptors."""

  attends = True
  describes = True

  descriptor: DescriptorConfig = field(
    DescriptorConfig, 'How these become vectors.'
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    where = f'{path}.descriptor'
    dense = config.data.tokens.dense
    if dense and self.descriptor != DescriptorConfig():
      yield (
        f'{where}={self.descriptor}: labels have vectors of the outside '
        'encoder here, and no words are read: DescriptorConfig()'
      )
    weights = self.descriptor.weights
    if (
      config.model.encoder.pretrained
      and weights is not DescriptorWeights.UNIFORM
    ):
      yield (
        f'{where}.weights={weights}: the encoder reads names as a whole: '
        'DescriptorWeights.UNIFORM'
      )


ALL_DEVICES = (LABEL, DATA)


@struct.dataclass
class TokenFeatures:
  """Encoded tokens, what a sequence encoder hands to a head.

  Attributes:
    hidden_BTD: features, 0 beyond a document's length.
    lengths_B: int32 number of tokens; 0 in rows that only fill the batch.
  """

  hidden_BTD: jax.Array
  lengths_B: jax.Array

  @property
  def real_BT(self) -> jax.Array:
    """Where tokens are: bool [B, T], False beyond a document's length."""
    return jnp.arange(self.hidden_BTD.shape[1]) < self.lengths_B[:, None]


class Head(nnx.Module):
  """Scores labels chunk by chunk.

  Attributes:
    n_labels: labels that exist; further rows are padding.
    chunk: labels scored at a time.
    axes: mesh axes that label rows are divided among. On the data axis as well,
      no row is on two devices and no row's gradient is sent: documents are,
      which pays where their features are small.
  """

  n_labels: int
  chunk: int
  axes: tuple[str, ...] = (LABEL,)

  def logits(self, features: Any, chunk: Mapping[str, jax.Array]) -> jax.Array:
    """Scores of a chunk of labels.

    Args:
      features: what prepare returned, a pytree of arrays with documents first.
      chunk: this head's label rows by attribute name, cut to C of them; its
        other parameters are read from self.

    Returns:
      logits_BC: float32.
    """
    raise NotImplementedError

  def prepare(self, features: Any) -> Any:
    """What all chunks share, computed once from the encoder's features."""
    return features

  def learns(self, chunk: Mapping[str, jax.Array]) -> jax.Array | None:
    """bool_C, the labels that the loss is over; None: all."""
    del chunk

  def with_dropout(self, rngs: nnx.Rngs) -> 'Head':
    """The head of one training step, in which a part may be dropped.

    Args:
      rngs: stream `dropout`.
    """
    del rngs
    return self


def padded_row(values: np.ndarray | None, rows: int) -> jax.Array:
  """float32 [rows] of a value for each label [L], then 0; None: all 0."""
  if values is None:
    return jnp.zeros(rows)  # nothing is made where only shapes are asked for
  padded = np.zeros(rows, np.float32)
  padded[: len(values)] = values
  return jnp.asarray(padded)


class HeadParts(NamedTuple):
  """A head taken apart.

  Attributes:
    graphdef: its structure.
    rows: its parameters with a row per label.
    shared: all others.
  """

  graphdef: nnx.GraphDef
  rows: nnx.State
  shared: nnx.State

  def logits(
    self, features: Any, rows: nnx.State, shared: nnx.State
  ) -> jax.Array:
    """logits_BC of cut rows, as a pure function of the parameters."""
    head = nnx.merge(self.graphdef, rows, shared)
    return head.logits(features, nnx.to_pure_dict(rows))

  def learns(self, rows: nnx.State, shared: nnx.State) -> jax.Array | None:
    """bool_C, of cut rows: the labels that the loss is over; None: all."""
    head = nnx.merge(self.graphdef, rows, shared)
    return head.learns(nnx.to_pure_dict(rows))


def split_head(head: Head) -> HeadParts:
  """Tells a head's label rows from its other parameters."""
  return HeadParts(*nnx.split(head, is_label_row, ...))


def is_label_row(path: tuple, variable: Any) -> bool:
  """Whether a variable has a row per label; a filter of nnx."""
  del path
  return on_labels(variable.get_metadata().get('out_sharding'))


def on_labels(spec: Any) -> bool:
  """Whether a partition spec is of arrays with labels first."""
  return bool(spec) and spec[0] in (LABEL, ALL_DEVICES)


def row_spec(axes: tuple[str, ...]) -> P:
  """The partition spec of label rows on these mesh axes."""
  return P(axes) if len(axes) > 1 else P(*axes)
