"""Defines the rule that changes label rows as soon as a gradient is computed.

The optimizer does not change these rows.
"""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from xjax.core.types import PAD
from xjax.networks.heads.chunks import row_spec
from xjax.networks.heads.head import Head
from xjax.networks.heads.ova import OneVsAll
from xjax.networks.rows.any_head import row_shape
from xjax.networks.rows.fused import StepScalars
from xjax.networks.rows.kahan import LEFT_OUT, PLACE, kahan_slots
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import (
  RowRule,
)
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer import make_schedule

# Rounding errors are kept for labels with at least this many train documents.
FREQUENT = 50


@dataclasses.dataclass(frozen=True, eq=False)
class FusedRows:
  """Holds the rule by which label rows change, and the rule's settings.

  Attributes:
    rule: turns gradients into changes of rows.
    rate: learning rate of label rows by step.
    compensated: bool [L], the labels whose rounding errors Storage.COMPENSATED
      keeps. Other storages ignore this array.
  """

  rule: RowRule
  rate: optax.Schedule
  weight_decay: float
  compensated: np.ndarray

  def slots(self, head: Head) -> nnx.State:
    """Returns the slots (arrays kept between steps) for a new head's rows.

    The slots are sharded like the rows. Storage.COMPENSATED adds two slots: the
    rounding errors, and each label's index into them, PAD until
    with_label_start() sets it.
    """
    labels, dim = row_shape(head)
    arrays = self.rule.slots(labels, dim)
    if isinstance(head, OneVsAll) and head.storage is Storage.COMPENSATED:
      slots = jax.eval_shape(lambda: kahan_slots(self.compensated, dim))
      left_out = slots[LEFT_OUT]
      arrays[LEFT_OUT] = jnp.zeros(left_out.shape, left_out.dtype)
      arrays[PLACE] = jnp.full(labels, PAD, jnp.int32)
    return nnx.State(
      {
        name: nnx.Param(
          array,
          out_sharding=(*row_spec(head.axes), *[None] * (array.ndim - 1)),
        )
        for name, array in arrays.items()
      }
    )

  def pace(self, step: jax.Array, key: jax.Array) -> StepScalars:
    """Returns the learning rate, weight decay and random bits of a step.

    `key` must be used only in this step.
    """
    return StepScalars(
      rate=jnp.float32(self.rate(step)),
      decay=jnp.float32(self.weight_decay),
      key=jax.random.bits(jax.random.fold_in(key, _ROUNDING)),
      step=step,
    )


_ROUNDING = 2**30  # larger than the other numbers folded into a step's key


def fused_rows(
  config: NeuralTrain, train_counts: np.ndarray
) -> FusedRows | None:
  """Returns the rule for label rows, or None if the optimizer changes them.

  train_counts [L] has the number of training documents of each scored label.
  """
  if not config.rows.fused:
    return None
  schedule, peak = make_schedule(config), config.learning_rate
  return FusedRows(
    config.rows.build(),
    lambda step: config.rows.learning_rate / peak * schedule(step),
    config.rows.weight_decay,
    np.asarray(train_counts) >= FREQUENT,
  )
