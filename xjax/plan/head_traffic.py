"""What a training step of a one-vs-all head computes, moves and holds.

A formula, exact for collectives and for what is held between steps; of memory
read and written and of the peak it counts what cannot be spared and says what
it takes for granted. A test compares the collectives with compiled programs.
"""

import dataclasses
import math

import jax

from xjax.core.mesh import LABEL_MULTIPLE
from xjax.score.heads import chunks
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import RowRule

_FLOAT32 = 4
_INT32 = 4
_BOOL = 1
_MOMENTS = 2  # of Adam


@dataclasses.dataclass(frozen=True)
class HeadPass:
  """The passes of a batch over all label rows, and the step of them.

  Attributes:
    documents: B, of the whole batch.
    positives: P, places for gold labels of a document.
    labels: L, padded (core.mesh.padded_labels).
    dim: D, of what label rows read.
    data, label: devices along each axis of the mesh.
    feature_bytes: of a feature, as of train.compute_dtype.
    storage: what a weight is stored as.
    rule: by which rows are changed in the pass; None: by Adam after it, from
      their gradient [L, D].
    normalised: whether the loss needs a pass before (ChunkLoss.normalised).
    chunk: labels scored at a time, at most.
    compensated: of Storage.COMPENSATED, the most compensated labels among the
      rows of one of LABEL_MULTIPLE blocks (kahan.py).
    accumulate: micro-batches, each with a pass of its own, whose gradients are
      summed; above 1 there is no rule.
  """

  documents: int
  positives: int
  labels: int
  dim: int
  data: int
  label: int
  feature_bytes: int
  storage: Storage
  rule: RowRule | None
  normalised: bool = False
  chunk: int = 8192
  compensated: int = 0
  accumulate: int = 1

  @property
  def rows(self) -> int:
    """Label rows of a device."""
    return self.labels // (self.data * self.label)

  @property
  def chunk_rows(self) -> int:
    """Label rows of all chunks but the last."""
    return chunks.chunk_size(self.rows, self.chunk)

  @property
  def n_chunks(self) -> int:
    """Chunks of a device."""
    return math.ceil(self.rows / self.chunk_rows)


@dataclasses.dataclass(frozen=True)
class MemoryMoved:
  """Bytes a device reads from memory and writes to it in a step.

  Attributes:
    rows: label rows read and written.
    slots: what the rule or Adam remembers, read and written.
    gradient: of rows, where it goes through memory.
    logits: with their derivatives, where they go through memory.
    features: those of all documents and the sums of their gradient.
  """

  rows: int
  slots: int
  gradient: int
  logits: int
  features: int

  @property
  def total(self) -> int:
    return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class Collectives:
  """Bytes of the operands a device gives to collectives in a step, by kind.

  Attributes:
    all_gather: of features and gold labels, over the data axis.
    reduce_scatter: of the features' gradient, over the data axis.
    all_reduce: of the same, over the label axis.
    scalars: all-reduces over all devices: of the loss, and of a normalised
      loss 3 numbers a document.
  """

  all_gather: int
  reduce_scatter: int
  all_reduce: int
  scalars: int

  @property
  def total(self) -> int:
    return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class MemoryHeld:
  """Bytes a device holds at the peak of a pass.

  What a compiler copies comes on top: on CPUs, with rows of bfloat16 and a
  normalised loss, XLA keeps all of a device's rows as float32.

  Attributes:
    rows: label rows; they are overwritten where they lie.
    slots: what the rule or Adam remembers of them.
    gradient: of rows, [L, D], where Adam needs it; and the sums, where those of
      micro-batches are summed.
    features: those of a pass's documents, their gradient, and gold labels.
    chunk: a chunk's logits, their derivative, its rows as operands, and their
      gradient; all else is made of these in passing.
  """

  rows: int
  slots: int
  gradient: int
  features: int
  chunk: int

  @property
  def total(self) -> int:
    return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class HeadTraffic:
  """Of one device and one training step; the encoder is not in it.

  Attributes:
    operations: of matrix products, a multiplication and an addition being 2.
    moved: memory read and written.
    collectives: operands of collectives.
    held: the peak of memory.
  """

  operations: int
  moved: MemoryMoved
  collectives: Collectives
  held: MemoryHeld


def head_traffic(given: HeadPass, in_cache: bool = True) -> HeadTraffic:
  """What a step costs each device.

  Args:
    given: the pass.
    in_cache: whether what belongs to a chunk (its rows, logits and gradient)
      stays in a cache while the chunk lasts, as it does on CPUs. Else rows are
      read by each product and by the step of them, and logits, their derivative
      and the rows' gradient go through memory as float32, the derivative as an
      operand as well.

  Returns:
    Padded label rows and documents that only fill the batch count like others.
  """
  products = 4 if given.normalised else 3
  return HeadTraffic(
    operations=2 * products * given.documents * given.rows * given.dim,
    moved=_moved(given, in_cache),
    collectives=_collectives(given),
    held=_held(given),
  )


def _moved(given: HeadPass, in_cache: bool) -> MemoryMoved:
  """Of the features it is taken for granted that they do not stay in a cache.

  Each chunk reads all, and reads and writes the sums of their gradient.
  """
  reads = given.accumulate * ((1 if in_cache else 2) + given.normalised)
  if given.rule is None or not in_cache:
    reads += 1  # by the step of them
  logit = 0
  if not in_cache:
    # Each is written and read, the operand read twice.
    logit = _FLOAT32 * (4 + 2 * given.normalised) + given.feature_bytes * 3
  feature = given.documents * given.dim
  looks = given.n_chunks * (1 + given.normalised)
  return MemoryMoved(
    rows=(reads + 1) * _row_bytes(given),
    slots=2 * _slot_bytes(given),
    gradient=_gradient_passes(given, in_cache) * _gradient_bytes(given),
    logits=logit * given.documents * given.rows,
    features=feature * given.feature_bytes * (1 + looks)
    + feature * _FLOAT32 * 2 * given.n_chunks,
  )


def _gradient_passes(given: HeadPass, in_cache: bool) -> int:
  """How often the rows' gradient is written or read."""
  if given.rule is None and given.accumulate == 1:
    return 3  # written, and read for its norm and by Adam
  if given.rule is None:
    # Each is written, read, and added to sums, which are read and written.
    return 4 * given.accumulate + 2
  return 0 if in_cache else 2


def _collectives(given: HeadPass) -> Collectives:
  own = given.documents // given.data
  gold = given.positives * _INT32 + _BOOL
  features = given.dim * given.feature_bytes
  gradient = given.dim * _FLOAT32
  scalars = given.accumulate + 3 * given.documents * given.normalised
  return Collectives(
    all_gather=own * (gold + features) * (given.data > 1),
    reduce_scatter=given.documents * gradient * (given.data > 1),
    all_reduce=own * gradient * (given.label > 1),
    scalars=_FLOAT32 * scalars * (given.data * given.label > 1),
  )


def _held(given: HeadPass) -> MemoryHeld:
  documents = given.documents // given.accumulate
  gradients = (given.rule is None) * min(given.accumulate, 2)
  document = given.dim * (given.feature_bytes + _FLOAT32)
  document += given.positives * _INT32 + _BOOL
  logit = weight = _FLOAT32 + given.feature_bytes
  return MemoryHeld(
    rows=_row_bytes(given),
    slots=_slot_bytes(given),
    gradient=gradients * _gradient_bytes(given),
    features=documents * document,
    chunk=given.chunk_rows * (documents * logit + given.dim * weight),
  )


def _row_bytes(given: HeadPass) -> int:
  """A device's kernel and bias, and exponents where there are some."""
  exponent = given.storage is Storage.FLOAT8
  each = given.dim * given.storage.bytes + _FLOAT32 + exponent
  return given.rows * each


def _gradient_bytes(given: HeadPass) -> int:
  """The gradient of a device's rows, float32."""
  return given.rows * (given.dim + 1) * _FLOAT32


def _slot_bytes(given: HeadPass) -> int:
  """What is remembered of a device's rows."""
  if given.rule is None:
    return _MOMENTS * _gradient_bytes(given)
  arrays = jax.eval_shape(lambda: given.rule.slots(given.rows, given.dim))
  size = sum(x.size * x.dtype.itemsize for x in arrays.values())
  if given.storage is Storage.COMPENSATED:
    places = LABEL_MULTIPLE * max(1, given.compensated)
    places //= given.data * given.label
    size += given.rows * _INT32 + places * given.dim * given.storage.bytes
  return size
