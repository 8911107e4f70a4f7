"""Runs several trials at the same time, as local processes or as jobs."""

from collections.abc import Callable, Sequence
import contextlib
import os
import pathlib
import signal
import subprocess
import time
import types

from absl import logging
from optuna.trial import FrozenTrial, Trial, TrialState

from xjax.core.console import handling
from xjax.core.errors import DataError, Preempted
from xjax.judge.files.evaluation import read_value
from xjax.sweep.launchers import TrialPaths, is_job, start_process
from xjax.sweep.session import SweepSession, TrialRun, write_config_file
from xjax.sweep.trials import (
  STATES,
  TrialStore,
  best_trial,
  count_trials,
  describe_values,
  error_of,
  override,
  seed_values,
)
from xjax.train.workdir import Workdir

_LOOK_EVERY = 0.2  # seconds between two checks of the running trials
# If a run ends with one of these exit codes, the same command resumes the run:
# - 75: xjax train has saved the run after SIGTERM.
# - minus SIGTERM: SIGTERM came while the process did not handle the signal.
_RESUMABLE = (75, -signal.SIGTERM)
# Some launchers send a signal to a process and also to its group. So a second
# signal within this time is ignored.
_ECHO = 0.5  # seconds


class StopSignals:
  def __init__(self) -> None:
    self.noticed: int | None = None  # the first signal
    self.urgent = False  # a second signal has come: the sweep must not wait
    self._noticed_at = 0.0
    self._handlers = contextlib.ExitStack()

  def __enter__(self) -> 'StopSignals':
    for number in (signal.SIGTERM, signal.SIGINT):
      self._handlers.enter_context(handling(number, self._notice))
    return self

  def __exit__(self, *error: object) -> None:
    self._handlers.close()

  def leave(self) -> None:
    """Raises KeyboardInterrupt after Ctrl-C, and Preempted after SIGTERM."""
    if self.noticed == signal.SIGINT:
      raise KeyboardInterrupt
    how = ('not all' if self.urgent else 'all') + ' trials have saved'
    raise Preempted(f'{how}; start the same command again to continue')

  def _notice(self, number: int, frame: types.FrameType | None) -> None:
    del frame
    now = time.monotonic()
    if self.noticed is None:
      self.noticed, self._noticed_at = number, now
    elif now - self._noticed_at >= _ECHO:
      self.urgent = True


def read_judgings(
  workdir: pathlib.Path, metric: str
) -> list[tuple[int, float | None]]:
  """Returns (step, value or None) of each judging of 'slice/metric' so far."""
  slice_name, _, name = metric.partition('/')
  return [
    (record['step'], record['metrics'].get(slice_name, {}).get(name))
    for record in Workdir.at(workdir).history()
    if record.get('kind') == 'judge'
  ]


def final_value(workdir: pathlib.Path, metric: str) -> float:
  """Returns the best checkpoint's 'slice/metric' on dev; else a DataError."""
  folder = Workdir.at(workdir).evaluation('dev')
  if not folder.is_dir():
    raise DataError(
      f'{workdir}: was not judged on dev; check that the corpus has a dev split'
    )
  value = read_value(folder, metric, 'judge the run again')
  if value is None:
    raise DataError(f'{workdir}: {metric} has no value on dev')
  return value


class TrialRunner:
  """Runs a trial, one run (seed) after the other, and stores the result."""

  # After a restart, finished runs start again, which takes little time.

  def __init__(
    self,
    trial: Trial,
    runs: Sequence[TrialRun],
    metric: str,
    store: TrialStore,
    launch: Callable[[TrialPaths], subprocess.Popen],
  ) -> None:
    """Starts the first run; `launch` starts or resumes the training."""
    self.number = trial.number
    self._trial = trial
    self._runs, self._metric = runs, metric
    self._store, self._launch = store, launch
    self._values: list[float] = []
    self._reported = store.last_reported(trial)
    self._pruned = self._asked = False
    self.process = launch(runs[0].place)

  def advance(self) -> bool:
    """Reports judgings, resumes or starts runs; returns whether all ended."""
    code = self.process.poll()
    if self._pruned:
      # Not in the call that may just have started the process: a script that
      # waits for a job would die of SIGTERM, and the job would continue.
      self.stop()
    elif not self._values:
      self._report()
    if code is None or self._pruned:
      return code is not None
    place = self._runs[len(self._values)].place
    if code == 0:
      try:
        self._values.append(final_value(place.workdir, self._metric))
      except DataError as error:
        self._store.fail(self._trial, str(error))
        return True
      if len(self._values) == len(self._runs):
        self._store.complete(self._trial, self._values)
        return True
      place = self._runs[len(self._values)].place
    elif code not in _RESUMABLE:
      self._store.fail(self._trial, _reason(code, place.log))
      return True
    self.process = self._launch(place)
    return False

  def stop(self) -> None:
    """Asks the process, once, to save and exit."""
    if not self._asked:
      self._asked = True
      self.process.terminate()

  def _report(self) -> None:
    """Reports new judgings, and stops the trial if the pruner decides so."""
    # One by one, so that pruning does not depend on the times of calls.
    first = self._runs[0]
    judgings = read_judgings(first.place.workdir, self._metric)
    for number, (step, value) in enumerate(judgings, 1):
      if number <= self._reported or value is None:
        continue
      self._reported = number
      logging.info(
        'trial %d: %s %.4f at step %d', self.number, self._metric, value, step
      )
      self._trial.report(value, number)
      if step < first.config.train.steps and self._trial.should_prune():
        self._pruned = True
        self._store.prune(self._trial)  # first: a kill must not lose it
        return


def _reason(code: int, log: pathlib.Path) -> str:
  """Returns the exit code and the last error (else the last line) of a log."""
  text = log.read_text('utf-8', errors='replace')
  lines = [line for line in text.splitlines() if line.strip()]
  errors = [line for line in lines if line.startswith('error: ')]
  last = (errors or lines or ['the log is empty'])[-1]
  if code < 0:
    return f'killed by {signal.Signals(-code).name}; {last}'
  return f'exit code {code}; {last}'


class TrialWorkers:
  """Runs the trials of a sweep; unfinished trials are resumed first."""

  def __init__(
    self,
    session: SweepSession,
    lock: int,
    workers: int,
    devices: Sequence[str] = (),
  ) -> None:
    """Opens the store of a session that has started and given the lock."""
    # `devices` are GPUs, at least one per worker; () shows each worker all.
    self._session, self._lock = session, lock
    self._store = TrialStore(
      session.folder.store, session.sweep.search, session.sweep.pruning
    )
    self._free = list(range(workers))
    self._busy: dict[int, TrialRunner] = {}
    self._devices = devices

  def run(self) -> list[FrozenTrial]:
    """Runs the remaining trials, and writes best.py; returns all trials.

    After SIGTERM (Preempted) or Ctrl-C (KeyboardInterrupt), the running trials
    have saved their state, and the same command resumes the sweep. After a
    second signal, local processes were killed, and jobs continue.
    """
    waiting = self._store.unfinished()
    self._log('sweep')
    self._write_best()
    with StopSignals() as signals:
      try:
        while not signals.noticed and self._fill(waiting):
          time.sleep(_LOOK_EVERY)
          for worker, attempt in list(self._busy.items()):
            if attempt.advance():
              self._free.append(worker)
              del self._busy[worker]
              self._log_ended(attempt.number)
      finally:
        self._stop(signals)
      if signals.noticed:
        signals.leave()
    return self._store.trials()

  def _fill(self, waiting: list[Trial]) -> bool:
    """Starts trials on free workers; returns whether any worker is busy."""
    count = count_trials(self._session.sweep.search)
    while self._free and (waiting or len(self._store) < count):
      self._start(waiting.pop(0) if waiting else self._store.begin())
    return bool(self._busy)

  def _start(self, trial: Trial) -> None:
    values = self._store.values(trial.number)
    self._free.sort()
    worker = self._free.pop(0)
    device = self._devices[worker] if self._devices else ''

    def launch(place: TrialPaths) -> subprocess.Popen:
      command = self._session.command(place)
      job = is_job(self._session.launcher)
      return start_process(command, place.log, self._lock, job, device)

    runs = self._session.runs(trial.number, values)
    logging.info('trial %d: %s', trial.number, describe_values(values))
    self._busy[worker] = TrialRunner(
      trial, runs, self._session.metric, self._store, launch
    )

  def _log_ended(self, number: int) -> None:
    trials = self._store.trials()
    trial = trials[number]
    text = STATES[trial.state]
    if trial.state is TrialState.FAIL:
      text += f': {error_of(trial):.160}'
    elif trial.value is not None:
      text += f': {trial.value:.4f}'
    if best_trial(trials) is trial:
      text += ', the best so far'
      self._write_best()
    self._log(f'trial {number} {text}')

  def _write_best(self) -> None:
    best = best_trial(self._store.trials())
    if best is None:
      return
    values = self._store.values(best.number)
    file = self._session.folder.best
    metrics = seed_values(best)
    numbers = ', '.join(map(str, metrics))
    if len(metrics) > 1:
      numbers += ' (one per seed; the config below has the first seed)'
    remarks = [
      f'Trial {best.number}, the best trial of the sweep: '
      + describe_values(values),
      f'dev {self._session.metric}: {numbers}',
      '',
      f'  {self._session.train_again(file)}',
    ]
    write_config_file(file, override(self._session.config, values), remarks)

  def _stop(self, signals: StopSignals) -> None:
    """Asks all running trials to save, and waits until they have ended."""
    # After a second signal, it kills local processes, lets jobs continue, and
    # does not wait. Trials stay unfinished in the store, to be resumed.
    attempts = list(self._busy.values())
    if attempts:
      effect = 'kill them now'
      if is_job(self._session.launcher):
        effect = (
          'leave now; the jobs continue, and the same command finds them again'
        )
      logging.info('waiting until runs have saved; press Ctrl-C to %s', effect)
    for attempt in attempts:
      attempt.stop()
    while running := [x.process for x in attempts if x.process.poll() is None]:
      if signals.urgent:
        for process in running:
          os.killpg(process.pid, signal.SIGKILL)
          process.wait()
        return
      time.sleep(_LOOK_EVERY)

  def _log(self, text: str) -> None:
    done = sum(trial.state.is_finished() for trial in self._store.trials())
    count = count_trials(self._session.sweep.search)
    logging.info('%s (%d of %d trials done)', text, done, count)
