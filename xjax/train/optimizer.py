"""Builds the optimizer, the schedule and the rule of label rows of a config."""

import dataclasses
from typing import Any, NamedTuple

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
from xjax.networks.rows.update import FusedRowsConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.parameters import (
  STACKS,
  by_part,
  by_path,
  from_paths,
  parts_of,
  rate_factors,
)


def make_schedule(config: NeuralTrain) -> optax.Schedule:
  """Returns the learning rate by step: a warm-up, then a flat or falling rate.

  The warm-up is linear. With w steps of warm-up, step 0 has the rate peak /
  (w + 1), so no step has rate 0. Linear and cosine schedules reach 0 after the
  last step.
  """
  peak, warmup = config.learning_rate, config.warmup
  rest = max(1, config.steps - warmup)
  match config.schedule:
    case Schedule.CONSTANT:
      after = optax.constant_schedule(peak)
    case Schedule.LINEAR:
      after = optax.linear_schedule(peak, 0.0, rest)
    case Schedule.COSINE:
      after = optax.cosine_decay_schedule(peak, rest)
  if not warmup:
    return after
  before = optax.linear_schedule(peak / (warmup + 1), peak, warmup)
  return optax.join_schedules([before, after], [warmup])


def make_optimizer(config: NeuralTrain) -> optax.GradientTransformation:
  """Chains clipping, the optimizer's rule, weight decay and learning rates.

  - First, gradients that are much larger than recent gradients are clipped,
    then each element, and then the global norm, without frozen parameters.
  - Vectors and scalars, such as biases of any layer, have no weight decay.
  - The learning rate of a group of parameters also scales its weight decay.
  """
  chain = []
  if config.clip_outliers:
    chain.append(clip_outliers(config.clip_outliers))
  if config.clip_value:
    chain.append(optax.clip(config.clip_value))
  if config.clip_norm:
    chain.append(optax.clip_by_global_norm(config.clip_norm))
  chain.append(config.optimizer.build())
  # The decay comes after the optimizer's rule, so that the rule does not scale
  # it (decoupled weight decay, Loshchilov & Hutter 2019).
  if (decay := config.optimizer.weight_decay) is not None:
    chain.append(optax.add_decayed_weights(decay, _matrices))
  if config.rates or config.layer_decay != 1 or config.freeze:
    chain.append(_scale_by_group(config))
  chain.append(optax.scale_by_learning_rate(make_schedule(config)))
  return optax.chain(*chain)


class RecentNorms(NamedTuple):
  norms: jax.Array  # float32 [5], newest last; infinite before first steps


def clip_outliers(factor: float) -> optax.GradientTransformation:
  """Clips gradients whose norm is above `factor` times the recent norms.

  A larger gradient is scaled down to this limit. The recent norms are those of
  the last five gradients before clipping, of which the largest counts; each is
  counted as at most twice the largest norm before it. So the first five
  gradients are not clipped, and the limit follows a lasting growth of the norm.

  AttentionXML (You et al. 2019) trains with this rule and factor 5, in its
  public code. There, a recent norm is counted as at most 1. The same limit, 5
  times 1, is train.clip_norm=5 after this rule.
  """

  def init(params: Any) -> RecentNorms:
    del params
    return RecentNorms(jnp.full(5, jnp.inf))

  def update(
    updates: Any, state: RecentNorms, params: Any = None
  ) -> tuple[Any, RecentNorms]:
    del params
    norm, largest = optax.tree.norm(updates), state.norms.max()
    # Gradients that were all 0 say nothing about the size of later gradients.
    largest = jnp.where(largest > 0, largest, jnp.inf)
    limit = factor * largest
    scale = jnp.where(norm > limit, limit / norm, 1.0)
    updates = jax.tree.map(lambda x: (x * scale).astype(x.dtype), updates)
    newest = jnp.minimum(norm, 2 * largest)[None]
    return updates, RecentNorms(jnp.concatenate([state.norms[1:], newest]))

  return optax.GradientTransformation(init, update)


def _scale_by_group(config: NeuralTrain) -> optax.GradientTransformation:
  def scaled(updates: Any, params: Any) -> Any:
    del params
    leaves = by_path(updates)
    factors = rate_factors(config, parts_of(leaves))
    return from_paths(
      updates,
      {p: x * by_part(p, x, factors.get) for p, x in leaves.items()},
    )

  return optax.stateless(scaled)


def _matrices(params: Any) -> Any:
  axes = {path: param.ndim for path, param in by_path(params).items()}
  # A stack of biases has two axes.
  return from_paths(
    params, {path: n - path.startswith(STACKS) > 1 for path, n in axes.items()}
  )


# Rounding errors are kept for labels with at least this many train documents.
FREQUENT = 50


@dataclasses.dataclass(frozen=True, eq=False)
class LabelRowOptimizer:
  """Holds the rule that changes label rows as soon as gradients are known."""

  rule: FusedRowsConfig  # turns gradients into changes of rows
  rate: optax.Schedule  # learning rate of label rows by step
  weight_decay: float
  # bool [L], the labels whose rounding errors Storage.COMPENSATED keeps. Other
  # storages ignore this array.
  compensated: np.ndarray

  def slots(self, head: Head) -> nnx.State:
    """Returns the slots (arrays kept between steps) for a new head's rows."""
    # They are sharded like the rows. Storage.COMPENSATED adds the rounding
    # errors, and each label's index into them, PAD until with_label_start().
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
          array, out_sharding=(*row_spec(head.axes), *[None] * (array.ndim - 1))
        )
        for name, array in arrays.items()
      }
    )

  def scalars(self, step: jax.Array, key: jax.Array) -> StepScalars:
    """Returns the learning rate, weight decay and random bits of a step."""
    # `key` must be used only in this step.
    return StepScalars(
      rate=jnp.float32(self.rate(step)),
      decay=jnp.float32(self.weight_decay),
      key=jax.random.bits(jax.random.fold_in(key, _ROUNDING)),
      step=step,
    )


_ROUNDING = 2**30  # larger than the other numbers folded into a step's key


def label_row_optimizer(
  config: NeuralTrain, train_counts: np.ndarray
) -> LabelRowOptimizer | None:
  """Returns the rule for label rows, or None if the optimizer changes them."""
  if not config.rows.fused:
    return None
  schedule, peak = make_schedule(config), config.learning_rate
  return LabelRowOptimizer(
    config.rows,
    # The schedule of all parameters, with a peak of its own.
    lambda step: config.rows.learning_rate / peak * schedule(step),
    config.rows.weight_decay,
    np.asarray(train_counts) >= FREQUENT,
  )
