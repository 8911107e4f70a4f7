"""Label rows that training changes in the pass that finds their gradient."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from xjax.config.train import NeuralTrain
from xjax.core.types import PAD
from xjax.score.heads.contract import ALL_DEVICES
from xjax.score.heads.fused import Pace
from xjax.score.heads.kahan import LEFT_OUT, PLACE, kahan_slots
from xjax.score.heads.ova import OneVsAll
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import (
  RowRule,
)
from xjax.train.optimizer import make_schedule

FREQUENT = 50  # training documents of a label that is compensated, at least


@dataclasses.dataclass(frozen=True, eq=False)
class FusedRows:
  """How rows are changed, and what is remembered of them.

  Attributes:
    rule: that they are changed by.
    rate: their learning rate by step.
    weight_decay: decoupled.
    compensated: bool [L], labels of which Storage.COMPENSATED keeps what
      rounding leaves out.
  """

  rule: RowRule
  rate: optax.Schedule
  weight_decay: float
  compensated: np.ndarray

  def slots(self, head: OneVsAll) -> nnx.State:
    """What is remembered of a fresh head's rows, and lies where they lie.

    But for the labels' places where what rounding leaves out is kept: here no
    label has one, and with_label_start() puts them in.
    """
    labels, dim = head.kernel.shape
    arrays = self.rule.slots(labels, dim)
    if head.storage is Storage.COMPENSATED:
      slots = jax.eval_shape(lambda: kahan_slots(self.compensated, dim))
      left_out = slots[LEFT_OUT]
      arrays[LEFT_OUT] = jnp.zeros(left_out.shape, left_out.dtype)
      arrays[PLACE] = jnp.full(labels, PAD, jnp.int32)
    return nnx.State(
      {
        name: nnx.Param(
          array, out_sharding=(ALL_DEVICES, *[None] * (array.ndim - 1))
        )
        for name, array in arrays.items()
      }
    )

  def pace(self, step: jax.Array, key: jax.Array) -> Pace:
    """Of a step.

    Args:
      step: int32, steps taken before it.
      key: of this step alone.
    """
    return Pace(
      rate=jnp.float32(self.rate(step)),
      decay=jnp.float32(self.weight_decay),
      key=jax.random.bits(jax.random.fold_in(key, _ROUNDING)),
    )


_ROUNDING = 2**30  # what else is drawn of a step's key folds in smaller numbers


def fused_rows(
  config: NeuralTrain, train_counts: np.ndarray
) -> FusedRows | None:
  """How label rows are changed; None: by the optimizer, as all else.

  Args:
    config: of training.
    train_counts: int [L], training documents of the labels scored.
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
