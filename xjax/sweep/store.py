"""The trials of a sweep, kept by Optuna in SQLite."""

from collections.abc import Sequence
import dataclasses
import enum
import pathlib
import statistics
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState
import sqlalchemy.exc

from xjax.core.errors import DataError
from xjax.sweep.config import MedianPruning, Pruning, Search
from xjax.sweep.drawing import draw
from xjax.sweep.trials import (
  distribution_of,
  prescribed,
  space_of,
  text_of,
  values_of,
)

_NAME = 'sweep'
_FIELDS = 'fields'
_SEEDS = 'values by seed'
_ERROR = 'error'
_DECIDED = 'judgings decided on'
_STOPPED = 'stopped'


class TrialStatus(enum.Enum):
  """How far a trial is."""

  COMPLETE = 'complete'
  PRUNED = 'pruned'
  FAILED = 'failed'
  UNFINISHED = 'unfinished'


_STATES = {
  TrialState.COMPLETE: TrialStatus.COMPLETE,
  TrialState.PRUNED: TrialStatus.PRUNED,
  TrialState.FAIL: TrialStatus.FAILED,
}


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What a trial has come to.

  Attributes:
    number: from 0.
    state: how far it is.
    value: mean over its seeds, if complete; of the last judging, if pruned.
    values: by seed, if complete.
    parameters: as Optuna has them, by key of the space.
    error: why it failed.
  """

  number: int
  state: TrialStatus
  value: float | None
  values: tuple[float, ...]
  parameters: dict[str, Any]
  error: str

  @property
  def deviation(self) -> float | None:
    """Standard deviation over seeds (ddof 1); None of fewer than 2."""
    return statistics.stdev(self.values) if len(self.values) > 1 else None


class Store:
  """Begins, resumes and ends trials. One process at a time writes here."""

  def __init__(
    self, path: pathlib.Path, search: Search, pruning: Pruning
  ) -> None:
    """Opens the file, which may not be there yet.

    Raises:
      DataError: it is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    self._search = search
    space = space_of(search)
    self._space = {key: distribution_of(space[key]) for key in space}
    try:
      self._study = optuna.create_study(
        storage=optuna.storages.RDBStorage(f'sqlite:///{path}'),
        study_name=_NAME,
        direction='maximize',
        load_if_exists=True,
        pruner=_pruner(pruning),
      )
    except sqlalchemy.exc.DatabaseError as error:
      raise DataError(f'{path}: cannot be read: {error.orig}') from error

  def __len__(self) -> int:
    return sum(t.state is not TrialState.WAITING for t in self._trials())

  def begin(self) -> Trial:
    """A trial more.

    All its values are in the store before it is one that runs: a kill leaves
    none half made.
    """
    if all(t.state is not TrialState.WAITING for t in self._trials()):
      row = self._next()
      self._study.enqueue_trial(row, user_attrs={_FIELDS: list(row)})
    trial = self._study.ask()
    self._fill(trial)
    return trial

  def unfinished(self) -> list[Trial]:
    """Trials that were begun and have not ended."""
    running = [t for t in self._trials() if t.state is TrialState.RUNNING]
    trials = [Trial(self._study, frozen._trial_id) for frozen in running]
    for trial in trials:
      self._fill(trial)
    return trials

  def reported(self, trial: Trial) -> int:
    """The number of a trial's last judging that is here; 0: none is."""
    return self._trials()[trial.number].last_step or 0

  def decided(self, trial: Trial) -> int:
    """The number of the last judging that a decision was made on; 0: none."""
    return trial.user_attrs.get(_DECIDED, 0)

  def stopped(self, trial: Trial) -> bool:
    """Whether the decision was to stop it, though it may not have ended."""
    return trial.user_attrs.get(_STOPPED, False)

  def decide(self, trial: Trial, number: int, may_stop: bool) -> bool:
    """Whether to stop a trial at its last judging that is here.

    The answer is kept: more of the others are complete when a killed sweep
    goes on, and what was let live must not be stopped by them.

    Args:
      trial: under way.
      number: of the judging, from 1.
      may_stop: False: it is not stopped, however bad it is.
    """
    stop = may_stop and trial.should_prune()
    if stop:
      trial.set_user_attr(_STOPPED, True)
    trial.set_user_attr(_DECIDED, number)
    return stop

  def complete(self, trial: Trial, values: Sequence[float]) -> None:
    """Ends a trial with a value for each seed."""
    trial.set_user_attr(_SEEDS, list(values))
    self._study.tell(trial, statistics.fmean(values))

  def prune(self, trial: Trial) -> None:
    """Ends a trial that was stopped."""
    self._study.tell(trial, state=TrialState.PRUNED)

  def fail(self, trial: Trial, error: str) -> None:
    """Ends a trial that failed, and keeps why."""
    trial.set_user_attr(_ERROR, error)
    self._study.tell(trial, state=TrialState.FAIL)

  def values(self, number: int) -> dict[str, Any]:
    """What a trial sets, by key of the space."""
    return values_of(self._search, self._trials()[number].params)

  def outcomes(self) -> list[Outcome]:
    """Of all trials that were begun, by number."""
    begun = [t for t in self._trials() if t.state is not TrialState.WAITING]
    return [_outcome(trial) for trial in begun]

  def _trials(self) -> list[FrozenTrial]:
    return self._study.get_trials(deepcopy=False)

  def _next(self) -> dict[str, Any]:
    """The parameters of the trial after those that are here."""
    rows = prescribed(self._search)
    if rows is None:
      return draw(self._search, self._space, self._trials())
    row = rows[len(self)]
    return {key: text_of(value) for key, value in row.items()}

  def _fill(self, trial: Trial) -> None:
    """Gives a trial the parameters it was put into the store with."""
    for name in trial.user_attrs[_FIELDS]:
      match self._space[name]:
        case optuna.distributions.CategoricalDistribution(choices=choices):
          trial.suggest_categorical(name, choices)
        case optuna.distributions.IntDistribution() as d:
          trial.suggest_int(name, d.low, d.high, log=d.log)
        case optuna.distributions.FloatDistribution() as d:
          trial.suggest_float(name, d.low, d.high, log=d.log)


def best_of(outcomes: Sequence[Outcome]) -> Outcome | None:
  """The complete trial of the greatest value, of equal ones the first."""
  complete = [one for one in outcomes if one.state is TrialStatus.COMPLETE]
  return max(complete, key=lambda one: one.value, default=None)


def _outcome(trial: FrozenTrial) -> Outcome:
  return Outcome(
    number=trial.number,
    state=_STATES.get(trial.state, TrialStatus.UNFINISHED),
    value=trial.value,
    values=tuple(trial.user_attrs.get(_SEEDS, ())),
    parameters=trial.params,
    error=trial.user_attrs.get(_ERROR, ''),
  )


def _pruner(pruning: Pruning) -> optuna.pruners.BasePruner:
  if isinstance(pruning, MedianPruning):
    return optuna.pruners.MedianPruner(
      n_startup_trials=pruning.startup_trials,
      # Judgings are counted from 1.
      n_warmup_steps=pruning.warmup_judgings + 1,
    )
  return optuna.pruners.NopPruner()
