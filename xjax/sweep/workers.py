"""Runs several trials at the same time, as local processes or as jobs."""

from collections.abc import Sequence
import time

from absl import logging
from optuna.trial import Trial

from xjax.sweep.attempt import Attempt
from xjax.sweep.folder import Place
from xjax.sweep.launchers import is_job
from xjax.sweep.local_process import LocalProcess
from xjax.sweep.overrides import override
from xjax.sweep.session import SweepSession
from xjax.sweep.signals import Signals
from xjax.sweep.store import Outcome, Store, TrialStatus, best_trial
from xjax.sweep.sweep_check import describe_values
from xjax.sweep.sweep_file import write_config
from xjax.sweep.trials import count_trials

_LOOK_EVERY = 0.2  # seconds between two checks of the running trials


class Workers:
  """Runs the trials of a sweep; unfinished trials are resumed first."""

  def __init__(
    self, session: SweepSession, workers: int, devices: Sequence[str] = ()
  ) -> None:
    """Opens the store of the trials.

    Args:
      session: the sweep; its start() has been called.
      workers: number of trials that run at the same time.
      devices: the numbers of GPUs, at least one per worker; the first worker
        uses the first GPU. () lets every worker see all GPUs.
    """
    self._session = session
    self._store = Store(
      session.folder.store, session.sweep.search, session.sweep.pruning
    )
    self._free = list(range(workers))
    self._busy: dict[int, Attempt] = {}
    self._devices = devices

  def run(self) -> list[Outcome]:
    """Runs the remaining trials, and writes best.py.

    Returns:
      The outcome of each trial, ordered by number.

    Raises:
      Preempted: SIGTERM came, and the running trials have saved their state. If
        a second signal came, local processes were killed, and jobs continue.
        The same command resumes the sweep.
      KeyboardInterrupt: Ctrl-C was pressed; trials end as after SIGTERM.
    """
    waiting = self._store.unfinished()
    self._log('sweep')
    self._write_best()
    with Signals() as signals:
      try:
        while not signals.noticed and self._fill(waiting):
          time.sleep(_LOOK_EVERY)
          self._check_busy()
      finally:
        self._stop(signals)
      if signals.noticed:
        signals.leave()
    return self._store.outcomes()

  def _fill(self, waiting: list[Trial]) -> bool:
    """Starts trials on free workers; returns whether any worker is busy."""
    while self._free and (trial := self._next(waiting)):
      self._start(trial)
    return bool(self._busy)

  def _check_busy(self) -> None:
    for worker, attempt in list(self._busy.items()):
      if attempt.advance():
        self._free.append(worker)
        del self._busy[worker]
        self._log_ended(attempt.number)

  def _next(self, waiting: list[Trial]) -> Trial | None:
    if waiting:
      return waiting.pop(0)
    if len(self._store) < count_trials(self._session.sweep.search):
      return self._store.begin()
    return None

  def _start(self, trial: Trial) -> None:
    values = self._store.values(trial.number)
    self._free.sort()
    worker = self._free.pop(0)
    device = self._devices[worker] if self._devices else ''

    def launch(place: Place) -> LocalProcess:
      command = self._session.command(place)
      job = is_job(self._session.launcher)
      return LocalProcess(command, place.pid, place.log, device, job)

    runs = self._session.runs(trial.number, values)
    logging.info('trial %d: %s', trial.number, describe_values(values))
    self._busy[worker] = Attempt(
      trial, runs, self._session.metric, self._store, launch
    )

  def _log_ended(self, number: int) -> None:
    """Logs the result of a trial; writes best.py if this trial is the best."""
    outcome = self._store.outcomes()[number]
    text = outcome.state.value
    if outcome.state is TrialStatus.FAILED:
      text += f': {outcome.error:.160}'
    elif outcome.value is not None:
      text += f': {outcome.value:.4f}'
    if best_trial(self._store.outcomes()) == outcome:
      text += ', the best so far'
      self._write_best()
    self._log(f'trial {number} {text}')

  def _write_best(self) -> None:
    best = best_trial(self._store.outcomes())
    if best is None:
      return
    values = self._store.values(best.number)
    file = self._session.folder.best
    numbers = ', '.join(str(value) for value in best.values)
    text = describe_values(values)
    if len(best.values) > 1:
      numbers += ' (one per seed; the config below has the first seed)'
    remarks = [
      f'Trial {best.number}, the best trial of the sweep: {text}',
      f'dev {self._session.metric}: {numbers}',
      '',
      f'  {self._session.train_again(file)}',
    ]
    write_config(file, override(self._session.config, values), remarks)

  def _stop(self, signals: Signals) -> None:
    """Asks all running trials to save, and waits until they have ended.

    After a second signal, it kills local processes, lets jobs continue, and
    does not wait. The same command resumes trials, which stay unfinished in the
    store.
    """
    if self._busy:
      effect = 'kill them now'
      if is_job(self._session.launcher):
        effect = (
          'leave now; the jobs continue, and the same command finds them again'
        )
      logging.info('waiting until runs have saved; press Ctrl-C to %s', effect)
    for attempt in self._busy.values():
      attempt.terminate()
    while not all(attempt.has_ended() for attempt in self._busy.values()):
      if signals.urgent:
        for attempt in self._busy.values():
          attempt.kill()
        return
      time.sleep(_LOOK_EVERY)

  def _log(self, text: str) -> None:
    states = [outcome.state for outcome in self._store.outcomes()]
    done = len(states) - states.count(TrialStatus.UNFINISHED)
    trials = count_trials(self._session.sweep.search)
    logging.info('%s (%d of %d trials done)', text, done, trials)
