"""The head contract: logits of one chunk of labels.

A head is a module whose parameters of one row per label are created with
`out_sharding=(LABEL, ...)`, or `((LABEL, DATA), ...)` where `axes` says so, and
padded to core.mesh.padded_labels(n_labels) rows. It says only how a chunk of
labels is scored; the loss (streaming.py) and the selection (topk.py) cut the
rows, over chunks and over mesh shards.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from flax import nnx, struct
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np

from xjax.core.mesh import DATA, LABEL

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

  def thinned(self, rngs: nnx.Rngs) -> 'Head':
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
