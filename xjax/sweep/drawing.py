"""Values of a trial drawn in the light of other trials, none drawn twice."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from xjax.sweep.config import Tpe

# A run repeated is a run wasted: of few values the estimator soon draws what
# it drew before. At random it leaves that corner.
_TRIES, _RANDOM_TRIES = 10, 100


def draw(
  search: Tpe,
  space: Mapping[str, BaseDistribution],
  trials: Sequence[FrozenTrial],
) -> dict[str, Any]:
  """The parameters of the next trial.

  They follow from the seed and the trials alone: a sweep that was killed draws
  what it would have drawn.

  Args:
    search: with the seed.
    space: what parameters are drawn from.
    trials: all there are, those that still run as well.
  """
  known = [trial.params for trial in trials]
  parameters: dict[str, Any] = {}
  for attempt in range(_TRIES + _RANDOM_TRIES):
    seed = np.random.SeedSequence([search.seed, len(trials), attempt])
    sampler = _sampler(search, int(seed.generate_state(1)[0]), attempt)
    study = optuna.create_study(direction='maximize', sampler=sampler)
    study.add_trials(trials)
    parameters = study.ask(dict(space)).params
    if parameters not in known:
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
