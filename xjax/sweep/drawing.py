"""Draws the values of a new trial from the results of earlier trials."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from xjax.sweep.config import Tpe

# A repeated trial is wasted, but if fields have few values, the TPE sampler
# often draws an earlier trial again. After _TRIES attempts, draws are random.
_TRIES, _RANDOM_TRIES = 10, 100


def draw(
  search: Tpe,
  space: Mapping[str, BaseDistribution],
  trials: Sequence[FrozenTrial],
) -> dict[str, Any]:
  """Draws the parameters of the next trial, from the results of earlier trials.

  They depend only on the seed and on `trials`, which are all trials so far,
  also those that run. So a sweep that was killed draws the same trials again. A
  trial is repeated only if all attempts drew earlier trials.
  """
  earlier = [trial.params for trial in trials]
  parameters: dict[str, Any] = {}
  for attempt in range(_TRIES + _RANDOM_TRIES):
    seed = np.random.SeedSequence([search.seed, len(trials), attempt])
    sampler = _sampler(search, int(seed.generate_state(1)[0]), attempt)
    study = optuna.create_study(direction='maximize', sampler=sampler)
    study.add_trials(trials)
    parameters = study.ask(dict(space)).params
    if parameters not in earlier:
      break
  return parameters


def _sampler(
  search: Tpe, seed: int, attempt: int
) -> optuna.samplers.BaseSampler:
  if attempt >= _TRIES:
    return optuna.samplers.RandomSampler(seed=seed)
  return optuna.samplers.TPESampler(
    n_startup_trials=search.startup_trials, seed=seed
  )
