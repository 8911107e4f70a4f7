"""Defines the base class of heads, which score one chunk of labels at a time.

A head is a module. Parameters with one row per label are called label rows.
Label rows are created with `out_sharding=(LABEL, ...)`, or
`((LABEL, DATA), ...)` if `Head.axes` is chunks.ALL_DEVICES. Label rows are
padded to core.mesh.padded_labels(n_labels) rows. The head only defines how a
chunk of labels is scored. The loss (streaming.py) and the selection
(networks/topk.py) cut the rows into chunks and mesh shards.
"""

import abc
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import enum
import typing
from typing import Any, ClassVar

from flax import nnx, struct
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.config_part import (
  AT_LEAST_1,
  ConfigPart,
  field,
  kinds_that,
)
from xjax.core.mesh import LABEL
from xjax.core.types import Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.losses.loss import ChunkLoss, LabelWeights, LossConfig
from xjax.networks.heads.streaming import head_loss

if typing.TYPE_CHECKING:
  from xjax.data.label_trees.levels import LabelLevels


class Frozen(nnx.Param):
  """Holds a parameter without gradient, optimizer slots or updates.

  The parameter is saved, restored and sharded like other parameters.
  """


@dataclasses.dataclass
class HeadConfig(ConfigPart, abstract=True):
  """Chooses the head, which computes the scores of labels.

  Attributes:
    pooled: whether the head reads one vector per document. Such a head needs a
      pooling.
    attends: whether labels attend to tokens, so that attention weights can
      explain the scores.
    describes: whether descriptors represent the labels, so that further labels
      can be added by name.
    row_biases: whether the run sets the first values of the label rows `bias`,
      to the logits of the labels' priors. If False, the head gets the logits
      when it is built (HeadInputs.bias_L), and decides how its biases start.
    on_all_devices: whether the label rows are divided over all devices, not
      only over the label axis. If so, the head's `axes` is ALL_DEVICES.
    fusable: whether training can change the label rows in the pass that
      computes their gradient (train.rows). OneVsAllConfig and its subclasses
      set this to True.
    trains_rows: whether training changes float parameters with one row per
      label.
    hidden_labels: number of rare labels that training treats as unseen, to
      calibrate the scores of unseen labels.
    aligned: whether the vectors of descriptors and of tokens are in the same
      space from the start of training.
    levels: the config of the levels of clusters that the head goes down, or
      None. If it is given, the head gets these levels (HeadInputs.levels).
    reads_parents: whether the head reads the parents of labels. If so, the head
      gets the hierarchy of the run (HeadInputs.hierarchy).
    max_levels: largest number of levels that labels can have; None if any
      number is possible. Only heads that read parents can have such a limit.
    appended: number of vectors that the head appends to the tokens of a
      document. The encoder must have positions for them.
    embeds_labels: whether labels have vectors in the space of the encoder's
      pieces. If so, the vectors start from the names of labels
      (train/initial/label_vectors.py).
    sequential: whether the head writes labels one after the other. Such a head
      needs a loss of sequences (LossConfig.sequential).
  """

  pooled: ClassVar[bool] = False
  attends: ClassVar[bool] = False
  describes: ClassVar[bool] = False
  row_biases: ClassVar[bool] = True
  on_all_devices: ClassVar[bool] = False
  fusable: ClassVar[bool] = False
  trains_rows: ClassVar[bool] = True
  sequential: ClassVar[bool] = False
  hidden_labels = 0
  aligned = False
  levels = None
  reads_parents = False
  max_levels = None
  appended = 0
  embeds_labels = False

  chunk: int = field(
    512,
    'Number of labels that are scored at a time. A smaller number takes less '
    'memory. The number never changes results.',
    AT_LEAST_1,
    tiny=8,
  )

  @abc.abstractmethod
  def build(self, inputs: 'HeadInputs', rngs: nnx.Rngs) -> 'Head':
    """Makes the head, with fresh parameters.

    Args:
      inputs: sizes and facts about the labels.
      rngs: stream `params`.
    """

  def check_labels(self, n_labels: int) -> None:
    """Checks before training that the head suits the number of labels.

    Args:
      n_labels: number of labels to score.

    Raises:
      ConfigError: the config does not suit this number of labels.
    """

  def check_hierarchy(self, hierarchy: Hierarchy) -> None:
    """Checks before training that the head suits the hierarchy of labels.

    Only heads that read parents are checked.

    Args:
      hierarchy: the hierarchy of the labels to score.

    Raises:
      ConfigError: the config does not suit this hierarchy.
    """

  def check_gold(
    self, levels: 'LabelLevels', gold: Ragged, ids: Sequence[str]
  ) -> None:
    """Checks before training that the head suits the training documents.

    Only heads with levels are checked.

    Args:
      levels: the levels of the run.
      gold: N rows of gold labels.
      ids: ids of the N documents.

    Raises:
      ConfigError: the config does not suit a document; the message names it.
    """

  def faults(self, config: Any, path: str) -> Iterator[str]:
    pooling = config.model.pooling
    kind = type(pooling).__name__
    if self.pooled != pooling.pools:
      yield (
        f'config.model.pooling={kind}(): {path}={type(self).__name__}(...) '
        + (
          'needs a pooling'
          if self.pooled
          else 'reads tokens and needs NoPooling()'
        )
      )
    loss = config.train.loss
    if loss.sequential != self.sequential:
      needed = (
        f'{path}={type(self).__name__}(...) needs '
        f'{kinds_that("sequential", LossConfig)}'
        if self.sequential
        else f'needs {path}={kinds_that("sequential", HeadConfig)}'
      )
      yield f'config.train.loss={type(loss).__name__}(...): {needed}'


@dataclasses.dataclass(frozen=True, eq=False)
class HeadInputs:
  """Holds the facts about a run that a head needs when it is built.

  Attributes:
    dim: size of a vector that the head reads. There is one vector for each
      token or for each document.
    n_labels: number L of labels to score.
    bias_L: float64 [L], the initial biases, or None for zeros.
    seen_L: bool [L], True for labels that training documents have, except the
      hidden labels.
    hidden_L: bool [L], True for labels that are hidden for calibration.
    descriptor_dim: size of the vector of a label's descriptor.
    counts_L: int [L], the number of training documents of each label, or None
      if the numbers are not known.
    joined: number of layers of the encoder that are joined in a vector.
    levels: the levels of clusters, for a head that goes down a tree.
    hierarchy: the hierarchy of the labels, for a head that reads their parents.
      Its first nodes are the L labels.
    encoder: the encoder of the model, for a head that runs the encoder's layers
      itself.
  """

  dim: int
  n_labels: int
  bias_L: np.ndarray | None
  seen_L: np.ndarray
  hidden_L: np.ndarray
  descriptor_dim: int
  counts_L: np.ndarray | None = None
  joined: int = 1
  levels: 'LabelLevels | None' = None
  hierarchy: Hierarchy | None = None
  encoder: nnx.Module | None = None


class DescriptorWeights(enum.Enum):
  """Defines the weights of words in the mean of a descriptor's word vectors."""

  UNIFORM = 'uniform'
  IDF = 'idf'


@dataclasses.dataclass
class DescriptorConfig(ConfigPart):
  """Chooses how word vectors are averaged into the vector of a descriptor."""

  alt: bool = field(
    False, 'Whether the mean includes the words of alternative names.'
  )
  weights: DescriptorWeights = field(
    DescriptorWeights.UNIFORM,
    'Weights of the words. UNIFORM gives all words the same weight (the '
    'centroid of Chalkidis et al. 2019). IDF uses the inverse frequency of a '
    'word in the descriptors of all labels.',
  )
  max_words: int = field(
    15,
    'Largest number of words that are read from the start of each name. With '
    'BertConfig, subwords are counted instead of words. The encoder must be '
    'able to read this number of subwords and the special tokens at once.',
    AT_LEAST_1,
  )


@dataclasses.dataclass
class GraphConfig(ConfigPart, abstract=True):
  """Chooses what a head reads from the parents and children of a label.

  Attributes:
    reads_parents: whether the head reads parents and children.
  """

  reads_parents: ClassVar[bool] = False

  @abc.abstractmethod
  def attach(
    self, head: 'Head', inputs: 'HeadInputs', rngs: nnx.Rngs
  ) -> 'Head':
    """Adds the graph to a new head, and returns the head.

    Args:
      head: a head that knows labels by descriptors.
      inputs: sizes and facts about the labels.
      rngs: stream `params`.
    """


@dataclasses.dataclass
class NoGraph(GraphConfig):
  """Reads neither parents nor children."""

  def attach(
    self, head: 'Head', inputs: 'HeadInputs', rngs: nnx.Rngs
  ) -> 'Head':
    return head


@dataclasses.dataclass
class DescriptorHeadConfig(HeadConfig, abstract=True):
  """Chooses a head that represents labels by their descriptors.

  Attributes:
    concatenates: whether the head can score labels by the descriptor and the
      vector of the graph side by side (Joining.CONCAT).
  """

  attends = True
  describes = True
  row_biases = False  # a label's bias also depends on its descriptor
  concatenates: ClassVar[bool] = False

  descriptor: DescriptorConfig = field(
    DescriptorConfig, 'How descriptors become vectors.'
  )
  graph: GraphConfig = field(
    NoGraph, 'What the head reads from the parents and children of a label.'
  )

  @property
  def reads_parents(self) -> bool:
    """Returns whether the head reads the parents of labels."""
    return self.graph.reads_parents

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    where = f'{path}.descriptor'
    dense = config.data.tokens.dense
    if dense and self.descriptor != DescriptorConfig():
      yield (
        f'{where}={self.descriptor}: must be DescriptorConfig(), because the '
        'vectors of labels come from an outside encoder, and no words are read'
      )
    weights = self.descriptor.weights
    if (
      config.model.encoder.pretrained
      and weights is not DescriptorWeights.UNIFORM
    ):
      yield (
        f'{where}.weights={weights}: must be DescriptorWeights.UNIFORM, '
        'because the encoder reads each name as one text'
      )


@struct.dataclass
class TokenFeatures:
  """Holds the encoded tokens of a batch, which an encoder returns.

  Attributes:
    hidden_BTD: features, 0 beyond a document's length.
    lengths_B: int32, number of tokens, 0 in rows that only fill the batch.
    summary_last: whether the token [CLS] is a document's last token, not its
      first.
    values_BTU: vectors that a head has computed from the features, to be summed
      with attention weights. None if the features themselves are summed.
  """

  hidden_BTD: jax.Array
  lengths_B: jax.Array
  summary_last: bool = struct.field(pytree_node=False, default=False)
  values_BTU: jax.Array | None = None

  @property
  def real_BT(self) -> jax.Array:
    """Returns bool [B, T], True at a document's tokens, False beyond them."""
    return jnp.arange(self.hidden_BTD.shape[1]) < self.lengths_B[:, None]

  @property
  def summary_BD(self) -> jax.Array:
    """Returns the features of each document's token [CLS]."""
    if not self.summary_last:
      return self.hidden_BTD[:, 0]
    # A sum stays on its device. A gather might not.
    places_T = jnp.arange(self.hidden_BTD.shape[1])
    is_last_BT = places_T == self.lengths_B[:, None] - 1
    return jnp.where(is_last_BT[:, :, None], self.hidden_BTD, 0).sum(axis=1)


class Head(nnx.Module):
  """Scores labels chunk by chunk.

  Attributes:
    n_labels: number of labels. The rows after these labels are padding.
    chunk: number of labels scored at a time.
    axes: mesh axes over which label rows are divided. If the data axis is one
      of them, no row is on two devices, and the gradients of rows are not sent
      between devices. The features of documents are sent instead, which is
      faster if the features are small.
    shortlist_size: number of labels of a document that the head scores. All
      other labels get the score -inf. None if the head scores all labels.
    kept_clusters: how many clusters of a document each level keeps, if the
      shortlist has the labels of clusters. Levels go from coarse to fine.
    reads_prefix: whether the head runs the encoder's layers on vectors that
      follow the tokens of a document. If so, `prepare` and `prepare_loss` get
      an encoders.prefix.Prefix.
  """

  n_labels: int
  chunk: int
  axes: tuple[str, ...] = (LABEL,)
  shortlist_size: int | None = None
  kept_clusters: tuple[int, ...] = ()
  reads_prefix: bool = False

  def logits(self, features: Any, chunk: Mapping[str, jax.Array]) -> jax.Array:
    """Computes the scores of a chunk of labels.

    Args:
      features: result of `prepare`, a pytree of arrays whose first axis is
        documents.
      chunk: maps the names of the head's attributes to the label rows of C
        labels. The other parameters are read from self.

    Returns:
      logits_BC: float32.
    """
    raise NotImplementedError

  def prepare(self, features: Any) -> Any:
    """Computes the features that `logits` reads for every chunk of labels."""
    return features

  def prepare_loss(self, features: Any) -> Any:
    """Computes the features that `loss` reads, which are those of `prepare`.

    A head whose loss needs less than its scores replaces this method.
    """
    return self.prepare(features)

  def narrowed(self, features: Any, logs: jax.Array) -> Any:
    """Returns features for lists that only some labels may be in.

    A head with a shortlist_size chooses the labels that it scores among these
    labels.

    Args:
      features: result of `prepare`.
      logs: float32 [L or more] or [B, L or more], the log weight of each label,
        -inf for labels that must not be in a list.
    """
    del logs
    return features

  def kept_gold(self, features: Any, positives_BP: jax.Array) -> jax.Array:
    """Counts the gold labels that each step of a document's search keeps.

    Only heads with a shortlist_size have this method.

    Args:
      features: result of `prepare` or `narrowed`.
      positives_BP: int32 gold labels, PAD elsewhere.

    Returns:
      int32 [B, steps]. The steps are the levels of kept_clusters, and last the
      shortlist.
    """
    raise NotImplementedError

  def learns(self, chunk: Mapping[str, jax.Array]) -> jax.Array | None:
    """Returns which labels the loss includes.

    Args:
      chunk: label rows of C labels, as in `logits`.

    Returns:
      bool [C], or None if the loss includes all labels.
    """
    del chunk

  def loss(
    self,
    features: Any,
    positives_BP: jax.Array,
    mask_B: jax.Array,
    loss: ChunkLoss,
    weights: LabelWeights | None = None,
  ) -> jax.Array:
    """Returns the loss over all labels, summed over documents.

    By default, the loss is computed chunk by chunk (streaming.head_loss). A
    head with a loss of its own replaces this method.

    Args:
      features: result of `prepare`.
      positives_BP, mask_B, loss, weights: as in streaming.head_loss.

    Returns:
      float32 scalar.
    """
    return head_loss(self, features, positives_BP, mask_B, loss, weights)

  def with_dropout(self, rngs: nnx.Rngs) -> 'Head':
    """Returns the head that a training step uses. Some heads add dropout.

    Args:
      rngs: stream `dropout`.
    """
    del rngs
    return self

  def ready(self, rngs: nnx.Rngs | None = None) -> 'Head':
    """Returns the head that scores the labels of one batch.

    A head may compute label rows from its parameters here, once for all chunks
    of labels. These rows can be differentiated like parameters. By default, the
    head only gets its dropout.

    Args:
      rngs: stream `dropout`, or None for no dropout, as in evaluation.
    """
    return self if rngs is None else self.with_dropout(rngs)


@dataclasses.dataclass(frozen=True, eq=False)
class HeadWithDropout:
  """Trains a head whose loss takes the stream `dropout`.

  Attributes:
    head: the head.
    rngs: stream `dropout`.
  """

  head: Head
  rngs: nnx.Rngs

  def loss(self, *arguments: Any) -> jax.Array:
    """Returns the loss of the head.

    Args:
      arguments: arguments of the head's `loss`.
    """
    return self.head.loss(*arguments, rngs=self.rngs)


def padded_row(values: np.ndarray | None, rows: int) -> jax.Array:
  """Adds zeros to the end of an array that has one value for each label.

  Args:
    values: [L], or None if all values are 0.
    rows: size of the result.

  Returns:
    float32 [rows].
  """
  if values is None:
    return jnp.zeros(rows)  # under jax.eval_shape, this allocates no memory
  padded = np.zeros(rows, np.float32)
  padded[: len(values)] = values
  return jnp.asarray(padded)
