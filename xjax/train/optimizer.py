"""The optimizer, from the config."""

from typing import Any

import jax
import optax

from xjax.config.parameter_groups import rate_factors
from xjax.config.run import NeuralTrain, Optimizer
from xjax.train.schedule import make_schedule
from xjax.train.state import by_path, from_paths


def make_optimizer(config: NeuralTrain) -> optax.GradientTransformation:
  """Clipping, then Adam (Kingma & Ba 2015) or AdamW (Loshchilov & Hutter 2019).

  Element-wise clipping comes first, then clipping by the global norm, of what
  is trained. Weight decay spares vectors and scalars (biases). Learning rates
  by group are part of the decay, too; the highest layer of layer_decay is the
  highest that is trained.
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
  if config.rates or config.layer_decay != 1:
    chain.append(_scale_by_group(config))
  chain.append(optax.scale_by_learning_rate(make_schedule(config)))
  return optax.chain(*chain)


def _scale_by_group(config: NeuralTrain) -> optax.GradientTransformation:
  def scaled(updates: Any, params: Any) -> Any:
    del params
    leaves = by_path(updates)
    factors = rate_factors(config, leaves)
    return from_paths(
      updates, {path: x * factors[path] for path, x in leaves.items()}
    )

  return optax.stateless(scaled)


def _matrices(params: Any) -> Any:
  return jax.tree.map(lambda param: param.ndim > 1, params)
