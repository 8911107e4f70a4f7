"""The learning rate by step, from the config."""

import optax

from xjax.config.run import NeuralTrain, Schedule


def make_schedule(config: NeuralTrain) -> optax.Schedule:
  """Learning rate by step: linear warm-up, then constant or down.

  Step 0 of a warm-up of w steps has the rate peak / (w + 1), so that no step
  is lost; linear and cosine schedules reach 0 after the last step. The slanted
  triangular one (Howard & Ruder 2018, Equation 3, with cut = warmup) begins at
  peak / ratio, at the peak if there is no warm-up, and is at peak / ratio after
  the last step.
  """
  peak, warmup = config.learning_rate, config.warmup
  first, rest = peak / (warmup + 1), max(1, config.steps - warmup)
  match config.schedule:
    case Schedule.CONSTANT:
      after = optax.constant_schedule(peak)
    case Schedule.LINEAR:
      after = optax.linear_schedule(peak, 0.0, rest)
    case Schedule.COSINE:
      after = optax.cosine_decay_schedule(peak, rest)
    case Schedule.SLANTED:
      first = peak / config.ratio
      after = optax.linear_schedule(peak, first, rest)
  if not warmup:
    return after
  before = optax.linear_schedule(first, peak, warmup)
  return optax.join_schedules([before, after], [warmup])
