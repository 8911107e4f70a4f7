"""The optimizer and its learning-rate schedule, from the config."""

from typing import Any

import jax
import optax

from xjax.train.config import NeuralTrain, Optimizer, Schedule


def make_schedule(config: NeuralTrain) -> optax.Schedule:
  """Learning rate by step: linear warm-up, then constant or down to 0.

  Step 0 of a warm-up of w steps has the rate peak / (w + 1), so that no step
  is lost; a falling schedule reaches 0 after the last step.
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
  first = peak / (warmup + 1)
  before = optax.linear_schedule(first, peak, warmup)
  return optax.join_schedules([before, after], [warmup])


def make_optimizer(config: NeuralTrain) -> optax.GradientTransformation:
  """Clipping, then Adam (Kingma & Ba 2015) or AdamW (Loshchilov & Hutter 2019).

  Element-wise clipping comes first, then clipping by the global norm. Weight
  decay spares vectors and scalars (biases).
  """
  chain = []
  if config.clip_value:
    chain.append(optax.clip(config.clip_value))
  if config.clip_norm:
    chain.append(optax.clip_by_global_norm(config.clip_norm))
  chain.append(optax.scale_by_adam(config.b1, config.b2, config.eps))
  match config.optimizer:
    case Optimizer.ADAM:
      pass
    case Optimizer.ADAMW:
      chain.append(optax.add_decayed_weights(config.weight_decay, _matrices))
  chain.append(optax.scale_by_learning_rate(make_schedule(config)))
  return optax.chain(*chain)


def _matrices(params: Any) -> Any:
  return jax.tree.map(lambda param: param.ndim > 1, params)
