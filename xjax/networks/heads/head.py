"""Defines the base class of heads, which score one chunk of labels at a time.

A head is a module. Parameters with one row per label are called label rows.
Label rows are created by label_rows, or with the sharding ((LABEL, DATA), ...)
if `Head.axes` is chunks.ALL_DEVICES. They are padded to
core.mesh.padded_labels(n_labels) rows. The loss (streaming.py) and the
selection (networks/topk.py) cut the rows into chunks and mesh shards.
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
from jaxtyping import Array, Float32
import numpy as np

from xjax.core.config_part import AT_LEAST_1, ConfigPart, field, kinds_that
from xjax.core.mesh import LABEL, padded_labels
from xjax.core.types import Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import ChunkLoss, LabelWeights, LossConfig
from xjax.networks.heads.streaming import head_loss

if typing.TYPE_CHECKING:
  from xjax.data.label_trees.levels import LabelLevels


class Frozen(nnx.Param):
  """Holds a parameter without gradient, optimizer slots or updates.

  The parameter is saved, restored and sharded like other parameters.
  """


def chunk_field(default: int) -> int:
  """Makes the settings field `chunk` of a head."""
  return field(
    default,
    'Number of labels that are scored at a time. A smaller number takes less '
    'memory. The number never changes results.',
    AT_LEAST_1,
  )


@dataclasses.dataclass
class HeadConfig(ConfigPart, abstract=True):
  """Chooses the head, which computes the scores of labels."""

  pooled: ClassVar[bool] = False  # reads one vector per document (a pooling's)
  attends: ClassVar[bool] = False  # attention to tokens can explain the scores
  describes: ClassVar[bool] = False  # labels can be added by their descriptors
  # Whether the run sets the label rows `bias` to the logits of the labels'
  # priors. If False, the head itself starts its biases (HeadInputs.bias_L).
  row_biases: ClassVar[bool] = True
  # Whether the label rows are divided over all devices, not only over the label
  # axis. If so, the head's `axes` is ALL_DEVICES.
  on_all_devices: ClassVar[bool] = False
  # Whether training can change the label rows in the pass that computes their
  # gradient (train.rows).
  fusable: ClassVar[bool] = False
  trains_rows: ClassVar[bool] = True  # some label rows are float and not frozen
  # Whether the head writes labels one after the other. If so, it needs a loss
  # of sequences (LossConfig.sequential).
  sequential: ClassVar[bool] = False
  # What a config must choose beside the head, and why.
  multiplies: ClassVar[bool] = False  # BCEConfig: scores are probabilities
  # ... and heads whose `loss` calls the config's loss on logits themselves: it
  # must be a LabelLoss that is not normalised.
  chooses_labels: ClassVar[bool] = False  # AllLabels: makes its own shortlist
  weighs_evenly: ClassVar[bool] = False  # EvenWeights: its loss has no weights
  levels = None  # config of the levels of clusters that the head goes down
  reads_parents = False  # needs the hierarchy of the run (HeadInputs.hierarchy)
  appended = 0  # vectors after a document's tokens, which need positions
  # How the vectors of labels are trained before the documents are read, for
  # heads whose labels have vectors in the space of the encoder's pieces
  # (train/initial/label_vectors.py).
  pretraining = None

  chunk: int = chunk_field(512)

  @abc.abstractmethod
  def build(self, inputs: 'HeadInputs', rngs: nnx.Rngs) -> 'Head':
    """Makes the head, with fresh parameters from the stream `params`."""

  def draw_hidden(self, counts_L: np.ndarray, seed: int) -> np.ndarray:
    """Returns the labels that training treats as unseen, bool [L].

    counts_L has the training documents of each label. A ConfigError says that
    the corpus has too few labels to hide.
    """
    del seed
    return np.zeros(len(counts_L), bool)

  def check_labels(self, n_labels: int) -> None:
    """Raises ConfigError if the head does not suit the number of labels."""

  def check_hierarchy(self, hierarchy: Hierarchy) -> None:
    """Raises ConfigError if the head does not suit the hierarchy of labels.

    Only heads that read parents are checked.
    """

  def check_gold(
    self, levels: 'LabelLevels', gold: Ragged, ids: Sequence[str]
  ) -> None:
    """Raises ConfigError if the head does not suit the training documents.

    Only heads with levels are checked. `ids` are those of the documents.
    """

  def faults(self, config: Any, path: str) -> Iterator[str]:
    pooling, loss = config.model.pooling, config.train.loss
    own = f'{path}={type(self).__name__}(...)'
    if self.pooled != pooling.pools:
      needed = 'reads tokens and needs NoPooling()'
      if self.pooled:
        needed = 'needs a pooling'
      yield f'config.model.pooling={type(pooling).__name__}(): {own} {needed}'
    if loss.sequential != self.sequential:
      needed = f'needs {path}={kinds_that("sequential", HeadConfig)}'
      if self.sequential:
        needed = f'{own} needs {kinds_that("sequential", LossConfig)}'
      yield f'config.train.loss={type(loss).__name__}(...): {needed}'
    elif self.multiplies and not isinstance(loss, BCEConfig):
      yield (
        f'config.train.loss={type(loss).__name__}(...): {own} needs '
        'BCEConfig(), because it computes with probabilities of labels'
      )
    if self.chooses_labels and config.model.shortlist.proposes:
      yield (
        f'config.model.shortlist: must be AllLabels(), because {own} chooses '
        'labels itself'
      )
    weights = config.train.label_weights
    if self.weighs_evenly and not weights.even:
      yield f'config.train.label_weights={weights}: {own} needs EvenWeights()'


@dataclasses.dataclass(frozen=True, eq=False)
class HeadInputs:
  """Holds the facts about a run that a head needs when it is built."""

  dim: int  # size of the vector of a token, or of a document, that it reads
  n_labels: int
  bias_L: np.ndarray | None = None  # float64, the initial biases; None: zeros
  # For heads that read descriptors: bool, labels with training documents,
  # without hidden_L, and labels that are hidden for calibration.
  seen_L: np.ndarray | None = None
  hidden_L: np.ndarray | None = None
  descriptor_dim: int = 0  # size of the vector of a label's descriptor
  counts_L: np.ndarray | None = None  # training documents, None if not known
  joined: int = 1  # layers of the encoder that are joined in a vector
  levels: 'LabelLevels | None' = None  # for heads that go down a tree
  # For heads that read parents. The first nodes are the labels.
  hierarchy: Hierarchy | None = None
  encoder: nnx.Module | None = None  # for heads that run the encoder's layers


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
  """Chooses what a head reads from the parents and children of a label."""

  reads_parents: ClassVar[bool] = False  # and children

  @abc.abstractmethod
  def attach(
    self, head: 'Head', inputs: 'HeadInputs', rngs: nnx.Rngs
  ) -> 'Head':
    """Adds the graph to a new DescriptorHead, and returns the head."""


@dataclasses.dataclass
class NoGraph(GraphConfig):
  """Reads neither parents nor children."""

  def attach(
    self, head: 'Head', inputs: 'HeadInputs', rngs: nnx.Rngs
  ) -> 'Head':
    return head


@dataclasses.dataclass
class DescriptorHeadConfig(HeadConfig, abstract=True):
  """Chooses a head that represents labels by their descriptors."""

  attends = True
  describes = True
  row_biases = False  # a label's bias also depends on its descriptor
  concatenates: ClassVar[bool] = False  # can use Joining.CONCAT

  descriptor: DescriptorConfig = field(
    DescriptorConfig, 'How descriptors become vectors.'
  )
  graph: GraphConfig = field(
    NoGraph, 'What the head reads from the parents and children of a label.'
  )

  @property
  def reads_parents(self) -> bool:
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
  """Holds the encoded tokens of a batch, which an encoder returns."""

  hidden_BTD: jax.Array  # features, 0 beyond a document's length
  lengths_B: jax.Array  # int32, 0 in rows that only fill the batch
  # Whether the token [CLS] is a document's last token, not its first.
  summary_last: bool = struct.field(pytree_node=False, default=False)
  # Vectors that a head has computed from the features, to be summed with
  # attention weights. None if the features themselves are summed.
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
  """Scores labels chunk by chunk."""

  n_labels: int  # the rows after these labels are padding
  chunk: int  # number of labels scored at a time
  # Mesh axes over which label rows are divided. If the data axis is one of
  # them, no row is on two devices, and the gradients of rows are not sent
  # between devices. The features of documents are sent instead, which is faster
  # if they are small.
  axes: tuple[str, ...] = (LABEL,)
  # Number of labels of a document that the head scores; others get -inf.
  shortlist_size: int | None = None
  # How many clusters of a document each level keeps, from coarse to fine, if
  # the shortlist has the labels of clusters.
  kept_clusters: tuple[int, ...] = ()
  # Whether the head runs the encoder's layers on vectors that follow tokens. If
  # so, `prepare` and `prepare_loss` get an encoders.prefix.Prefix.
  reads_prefix: bool = False

  def logits(self, features: Any, chunk: Mapping[str, jax.Array]) -> jax.Array:
    """Computes the scores of a chunk of labels, float32, without randomness.

    `features` is the result of `prepare`, a pytree of arrays whose first axis
    is documents. `chunk` maps the names of the head's attributes to the label
    rows of C labels. The other parameters are read from self.
    """
    raise NotImplementedError

  def prepare(self, features: Any) -> Any:
    """Computes the features that `logits` reads for every chunk of labels."""
    return features

  def prepare_loss(self, features: Any) -> Any:
    """Computes the features that `loss` reads, which are those of `prepare`."""
    return self.prepare(features)

  def narrowed(self, features: Any, logs: jax.Array) -> Any:
    """Returns features for lists that only some labels may be in.

    A head with a shortlist_size chooses the labels that it scores among these
    labels. `logs` are float32 [L or more] or [B, L or more], the log weight of
    each label, -inf for labels that must not be in a list.
    """
    del logs
    return features

  def kept_gold(self, features: Any, positives_BP: jax.Array) -> jax.Array:
    """Counts the gold labels that each step of a document's search keeps.

    Only heads with a shortlist_size have this method. positives_BP has PAD
    elsewhere. The result is int32 [B, steps]. The steps are the levels of
    kept_clusters, and last the shortlist.
    """
    raise NotImplementedError

  def learns(self, chunk: Mapping[str, jax.Array]) -> jax.Array | None:
    """Returns which labels of a chunk the loss includes; None for all."""
    del chunk

  def loss(
    self,
    features: Any,
    positives_BP: jax.Array,
    mask_B: jax.Array,
    loss: ChunkLoss,
    weights: LabelWeights | None = None,
    rngs: nnx.Rngs | None = None,
  ) -> jax.Array:
    """Returns the loss over all labels, summed over documents.

    The arguments are those of streaming.head_loss, which computes the loss
    chunk by chunk. A head with a loss of its own replaces this method; `rngs`
    are for its dropout, and None if there is none.
    """
    del rngs
    return head_loss(self, features, positives_BP, mask_B, loss, weights)

  def with_dropout(self, rngs: nnx.Rngs) -> 'Head':
    """Returns the head that a training step uses. Some heads add dropout."""
    del rngs
    return self

  def ready(self, rngs: nnx.Rngs | None = None) -> 'Head':
    """Returns the head that scores the labels of one batch.

    A head may compute label rows from its parameters here, once for all chunks
    of labels. These rows can be differentiated like parameters. By default, the
    head only gets its dropout, if there are rngs.
    """
    return self if rngs is None else self.with_dropout(rngs)


def normal(
  rngs: nnx.Rngs, shape: tuple[int, ...], stddev: float
) -> Float32[Array, '...']:
  """Draws the initial values of a parameter, from the stream `params`."""
  return nnx.initializers.normal(stddev)(rngs.params(), shape)


def label_rows(
  values: Any, kind: type[nnx.Param] = nnx.Param, padding: int = 0
) -> nnx.Param:
  """Makes label rows that are divided over the label axis.

  The values are [L] or [L, ...], with or without the rows of padding.
  """
  if missing := padded_labels(len(values)) - len(values):
    sides = [(0, missing)] + [(0, 0)] * (values.ndim - 1)
    values = np.pad(np.asarray(values), sides, constant_values=padding)
  sharding = LABEL, *[None] * (values.ndim - 1)
  return kind(jnp.asarray(values), out_sharding=sharding)


def padded_row(values: np.ndarray | None, rows: int) -> jax.Array:
  """Adds zeros to values [L], to float32 [rows]; None stands for zeros."""
  if values is None:
    return jnp.zeros(rows)  # under jax.eval_shape, this allocates no memory
  padded = np.zeros(rows, np.float32)
  padded[: len(values)] = values
  return jnp.asarray(padded)


def mean_bias(inputs: HeadInputs) -> float:
  """Returns the mean of the initial biases of seen labels, or 0."""
  if inputs.bias_L is None or not inputs.seen_L.any():
    return 0.0
  return float(np.asarray(inputs.bias_L)[inputs.seen_L].mean())
