"""Trials side by side, each in a process of its own or as a job elsewhere."""

from collections.abc import Sequence
import time

from absl import logging
from optuna.trial import Trial

from xjax.sweep.attempt import Attempt
from xjax.sweep.folder import Place
from xjax.sweep.launchers import is_job
from xjax.sweep.local_process import LocalProcess
from xjax.sweep.overrides import overridden
from xjax.sweep.session import SweepSession
from xjax.sweep.signals import Signals
from xjax.sweep.store import Outcome, Store, TrialStatus, best_of
from xjax.sweep.sweep_check import spelled
from xjax.sweep.sweep_file import write_config
from xjax.sweep.trials import count

_LOOK_EVERY = 0.2  # seconds


class Workers:
  """Runs trials; what a killed sweep had under way goes on first."""

  def __init__(
    self, session: SweepSession, workers: int, devices: Sequence[str] = ()
  ) -> None:
    """Opens the store.

    Args:
      session: begun.
      workers: trials at a time.
      devices: a GPU for each, at least; (): each sees all there are.

    Raises:
      DataError: the store is damaged.
    """
    self._session = session
    self._store = Store(
      session.folder.store, session.sweep.search, session.sweep.pruning
    )
    self._free = list(range(workers))
    self._busy: dict[int, Attempt] = {}
    self._devices = devices

  def run(self) -> list[Outcome]:
    """Runs what is left, and writes best.py.

    Returns:
      What each trial has come to, by number.

    Raises:
      Preempted, KeyboardInterrupt: asked to stop; all that was under way has
        saved, or where a second signal came was killed (jobs: left alone), and
        running again goes on.
    """
    waiting = self._store.unfinished()
    self._say('sweep')
    self._write_best()
    with Signals() as signals:
      try:
        while not signals.noticed and self._occupied(waiting):
          time.sleep(_LOOK_EVERY)
          self._look()
      finally:
        self._stop(signals)
      if signals.noticed:
        signals.leave()
    return self._store.outcomes()

  def _occupied(self, waiting: list[Trial]) -> bool:
    """Gives every free worker a trial; whether there was one for any."""
    while self._free and (trial := self._next(waiting)):
      self._start(trial)
    return bool(self._busy)

  def _look(self) -> None:
    """Sees to the trials under way, and frees workers of those that ended."""
    for worker, attempt in list(self._busy.items()):
      if attempt.advance():
        self._free.append(worker)
        del self._busy[worker]
        self._tell(attempt.number)

  def _next(self, waiting: list[Trial]) -> Trial | None:
    if waiting:
      return waiting.pop(0)
    if len(self._store) < count(self._session.sweep.search):
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
    logging.info('trial %d: %s', trial.number, spelled(values))
    self._busy[worker] = Attempt(
      trial, runs, self._session.metric, self._store, launch
    )

  def _tell(self, number: int) -> None:
    """A line on a trial that has ended, and best.py if it is the best."""
    outcome = self._store.outcomes()[number]
    text = outcome.state.value
    if outcome.state is TrialStatus.FAILED:
      text += f': {outcome.error:.160}'
    elif outcome.value is not None:
      text += f': {outcome.value:.4f}'
    if best_of(self._store.outcomes()) == outcome:
      text += ', the best so far'
      self._write_best()
    self._say(f'trial {number} {text}')

  def _write_best(self) -> None:
    best = best_of(self._store.outcomes())
    if best is None:
      return
    values = self._store.values(best.number)
    file = self._session.folder.best
    each = ', '.join(str(value) for value in best.values)
    of = ' (by seed; below is the first)' if len(best.values) > 1 else ''
    remarks = [
      f'The best trial of a sweep, number {best.number}: {spelled(values)}',
      f'dev {self._session.metric}: {each}{of}',
      '',
      f'  {self._session.train_again(file)}',
    ]
    write_config(file, overridden(self._session.config, values), remarks)

  def _stop(self, signals: Signals) -> None:
    """Asks all that is under way to save, and waits until it has.

    A second signal kills what has not; jobs it leaves alone. To the store
    nothing is told: there the trials are under way, and go on.
    """
    if self._busy:
      then = 'kills them'
      if is_job(self._session.launcher):
        then = 'leaves the jobs; the same command finds them'
      logging.info('waiting until runs have saved; Ctrl-C now %s', then)
    for attempt in self._busy.values():
      attempt.terminate()
    while not all(attempt.left() for attempt in self._busy.values()):
      if signals.urgent:
        for attempt in self._busy.values():
          attempt.kill()
        return
      time.sleep(_LOOK_EVERY)

  def _say(self, text: str) -> None:
    states = [one.state for one in self._store.outcomes()]
    done = len(states) - states.count(TrialStatus.UNFINISHED)
    trials = count(self._session.sweep.search)
    logging.info('%s (%d of %d trials done)', text, done, trials)
