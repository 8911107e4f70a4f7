"""Defines the interfaces of losses and of label weights.

For each document, very few labels are gold. So a loss is computed in two parts:
a dense part, which treats all labels as if they were not gold, and a sparse
part for the few gold labels. Labels are processed in chunks.
"""

import abc
from collections.abc import Sequence
import dataclasses
import enum
from typing import ClassVar

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Float64, Num
import numpy as np

from xjax.core.config_part import ConfigPart, field
from xjax.core.numerics import total
from xjax.core.types import ScoreKind


class Reduction(enum.Enum):
  """Says how the losses of a document's labels become the document's loss."""

  SUM_LABELS = 'sum_labels'
  # Their sum, divided by the number of labels that the document is asked about.
  # These are all labels, or the labels on its shortlist, without padding.
  MEAN_LABELS = 'mean_labels'


@dataclasses.dataclass
class LossConfig(ConfigPart, abstract=True):
  """Chooses the loss that training minimises."""

  # LOGIT if, after training with this loss, each score is the logit of a
  # label's probability, else MARGIN.
  score_kind: ClassVar[ScoreKind] = ScoreKind.LOGIT
  # Whether the loss is for heads that write labels one after the other
  # (HeadConfig.sequential), and not for other heads.
  sequential: ClassVar[bool] = False

  @abc.abstractmethod
  def build(self) -> 'ChunkLoss':
    """Returns the loss."""

  def first_priors(
    self, priors_L: Float64[np.ndarray, ' L']
  ) -> Float64[np.ndarray, ' L']:
    """Returns the probability whose logit is the label's score before training.

    By default, the probability is the label's prior. If a model must give all
    documents the same scores, the logits of the priors minimise binary cross
    entropy without label weights, and nearly minimise softmax cross entropy.
    They do not minimise focal loss, or a loss with label weights. Priors and
    results are strictly between 0 and 1.
    """
    return priors_L


@dataclasses.dataclass(kw_only=True)
class LabelLossConfig(LossConfig, abstract=True):
  """Chooses a loss that is computed for each label separately (LabelLoss)."""

  reduction: Reduction = field(
    Reduction.SUM_LABELS,
    "How the losses of a document's labels become the document's loss. "
    'MEAN_LABELS divides their sum by the number of labels that are scored: '
    'all labels, or those on a shortlist. So the norm of the gradient hardly '
    'depends on this number, and train.clip_norm and the eps of Adam are those '
    'of papers that take the mean.',
  )


@dataclasses.dataclass
class LabelWeightsConfig(ConfigPart, abstract=True):
  """Chooses the label weights, which can be combined with any loss."""

  even: ClassVar[bool] = False  # all weights are equal, so build returns None

  @abc.abstractmethod
  def build(
    self,
    train_counts: Num[np.ndarray, ' L'],
    n_train: int,
    propensity: Sequence[float],
  ) -> 'LabelWeights | None':
    """Returns the weights of the labels, or None if all have weight 1.

    `propensity` has A and B of the formula. A DataError says that there are
    fewer than 3 training documents, too few for propensities.
    """


@struct.dataclass
class LabelWeights:
  """Holds the factors by which the loss of each label of a head is multiplied.

  positive_L applies to documents where the label is gold, and negative_L to
  other documents. Both are at least 0; padding rows may have any finite value.
  """

  positive_L: jax.Array
  negative_L: jax.Array


class ChunkLoss:
  """Computes a loss over all labels, one chunk of labels at a time."""

  # A loss is hashable: it is part of the key of compiled training steps.

  # Whether the loss of a label depends on the logits of all labels. If so, a
  # first pass over the labels computes their normaliser, from which alone
  # with_normaliser() makes the loss of the second pass and its derivative. Gold
  # labels are also in weight_C, which a normalised loss must ignore.
  normalised = False
  # The methods of this class always return sums. The functions that score
  # labels divide the sums.
  reduction = Reduction.SUM_LABELS

  def gold(
    self, logits_BP: Float32[Array, 'B P']
  ) -> tuple[Float32[Array, 'B P'], Float32[Array, 'B P']]:
    """Returns the loss of gold labels (finite logits), and its derivative."""
    raise NotImplementedError

  def absent(
    self,
    logits_BC: Float32[Array, 'B C'],
    weight_C: Float32[Array, ' C'] | None = None,
  ) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
    """Returns the loss of labels that are not gold, and its derivative.

    Args:
      logits_BC: The value -inf marks padding labels, rows that only fill the
        batch, and gold labels; the loss of these entries is 0. But if the loss
        is normalised, gold labels keep their logits, because the derivative
        also depends on these logits.
      weight_C: factor of each label's loss, or None if all are 1.

    Returns:
      The sum over documents and labels, which is 0 if the loss is normalised,
      and the derivative, which is 0 where logits are -inf.
    """
    raise NotImplementedError

  def with_normaliser(
    self, normaliser_B: Float32[Array, ' B'], gold_B: Float32[Array, ' B']
  ) -> 'ChunkLoss':
    """Returns the loss for the second pass, if the loss is normalised.

    `normaliser_B` is log sum exp(logit) over all labels; `gold_B` is the sum of
    the weights of a document's gold labels.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelLoss(ChunkLoss):
  """Computes a loss for each label separately."""

  reduction: Reduction = Reduction.SUM_LABELS

  def __call__(
    self, logits_BC: Float32[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float32[Array, 'B C'], Float32[Array, 'B C']]:
    """Returns losses and derivatives, 0 for labels of -inf and not gold."""
    raise NotImplementedError

  def summed(
    self, logits_BC: Float32[Array, 'B C'], targets_BC: Bool[Array, 'B C']
  ) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
    """Returns the sum of the losses of all labels, and its derivative."""
    loss_BC, dlogits_BC = self(logits_BC, targets_BC)
    return total(loss_BC), dlogits_BC

  def gold(
    self, logits_BP: Float32[Array, 'B P']
  ) -> tuple[Float32[Array, 'B P'], Float32[Array, 'B P']]:
    return self(logits_BP, jnp.ones_like(logits_BP, bool))

  def absent(
    self,
    logits_BC: Float32[Array, 'B C'],
    weight_C: Float32[Array, ' C'] | None = None,
  ) -> tuple[Float32[Array, ''], Float32[Array, 'B C']]:
    loss_BC, dlogits_BC = self(logits_BC, jnp.zeros_like(logits_BC, bool))
    if weight_C is not None:
      loss_BC, dlogits_BC = loss_BC * weight_C, dlogits_BC * weight_C
    return total(loss_BC), dlogits_BC
