"""Defines the base class of heads that emit some labels for a document."""

from collections.abc import Mapping
import enum
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from xjax.core.mesh import padded_labels
from xjax.networks.heads.head import Frozen, Head, label_rows


class Ranking(enum.Enum):
  """Says which labels are ranked by a head that emits labels step by step."""

  # Only the labels that are emitted. A list has no other label, so every other
  # gold label counts as missed, as in Bertalis et al. (2025).
  EMITTED = 'emitted'
  # All labels. The scores of emitted labels are as in EMITTED, and are above
  # those of all other labels.
  FULL = 'full'


class EmittingHead(Head):
  """Is the base class of heads that emit labels step by step.

  `prepare` emits the labels of documents, and returns the scores of all label
  rows, -inf for labels that are not ranked.
  """

  def __init__(self, n_labels: int, chunk: int):
    self.n_labels, self.chunk = n_labels, chunk
    index = jnp.arange(padded_labels(n_labels), dtype=jnp.int32)
    self.index = label_rows(index, Frozen)

  def prepare_loss(self, features: Any) -> Any:
    # The loss needs no emitted labels.
    return features

  def logits(
    self,
    scores_BL: Float32[Array, 'B L_or_more'],
    chunk: Mapping[str, jax.Array],
  ) -> Float32[Array, 'B C']:
    return scores_BL[:, chunk['index']]
