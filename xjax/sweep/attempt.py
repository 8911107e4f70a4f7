"""Carries out one trial of a sweep, which has one run per seed."""

from collections.abc import Callable, Sequence
import pathlib
import signal

from absl import logging
from optuna.trial import Trial

from xjax.core.errors import DataError
from xjax.sweep.folder import Place
from xjax.sweep.judgings import Judgings, final_value
from xjax.sweep.local_process import LocalProcess
from xjax.sweep.session import TrialRun
from xjax.sweep.store import Store

# If a run ends with one of these exit codes, the same command resumes the run:
# - 75: xjax train has saved the run after SIGTERM.
# - minus SIGTERM: SIGTERM came while the process did not handle the signal.
_RESUMABLE = (75, -signal.SIGTERM)


class Attempt:
  """Runs a trial, one run (seed) after the other, and stores the result."""

  def __init__(
    self,
    trial: Trial,
    runs: Sequence[TrialRun],
    metric: str,
    store: Store,
    launch: Callable[[Place], LocalProcess],
  ) -> None:
    """Starts the first run.

    After a restart of the sweep some runs may be finished. They are started
    again all the same, which takes little time.

    Args:
      trial: the trial, which the store has started.
      runs: one run per seed.
      metric: 'slice/metric' on dev.
      launch: starts or resumes the training of a run.
    """
    self.number = trial.number
    self._trial = trial
    self._runs, self._metric = runs, metric
    self._store, self._launch = store, launch
    self._values: list[float] = []
    self._judgings = Judgings(runs[0].place.workdir, metric)
    self._decided = store.last_decided(trial)
    self._pruned = store.is_stopped(trial)
    self._process = launch(runs[0].place)
    if self._pruned:
      self._process.terminate()

  def terminate(self) -> None:
    self._process.terminate()

  def kill(self) -> None:
    """Kills the current run, which can later resume from its checkpoint."""
    self._process.kill()

  def has_ended(self) -> bool:
    return self._process.poll() is not None

  def advance(self) -> bool:
    """Handles what has happened since the last call; returns whether all ended.

    New judgings (evaluations on dev) are reported. A run that was interrupted
    is resumed. After a finished run, the next one starts or the result is
    stored.
    """
    code = self._process.poll()
    if not self._values and not self._pruned:
      self._report()
    if code is None:
      return False
    if self._pruned:
      self._store.prune(self._trial)
    elif code == 0:
      return self._take_value()
    elif code in _RESUMABLE:
      self._process = self._launch(self._run.place)
      return False
    else:
      self._store.fail(self._trial, _reason(code, self._run.place.log))
    return True

  @property
  def _run(self) -> TrialRun:
    """Returns the current run, which is the first run without a value."""
    return self._runs[len(self._values)]

  def _report(self) -> None:
    """Reports new judgings, and stops the trial if the store decides so.

    Judgings are reported one by one, so that pruning depends only on their
    values, and not on how often this function is called.
    """
    train = self._runs[0].config.train
    last = train.steps
    judgings = enumerate(self._judgings.read(), 1)
    for number, (step, value) in list(judgings)[self._decided :]:
      self._decided = number
      if value is None:
        continue
      logging.info(
        'trial %d: %s %.4f at step %d', self.number, self._metric, value, step
      )
      if number > self._store.last_reported(self._trial):
        self._trial.report(value, number)
      if self._store.decide(self._trial, number, may_stop=step < last):
        self._pruned = True
        self._process.terminate()
        return

  def _take_value(self) -> bool:
    """Records the value of a finished run; returns whether the trial ended."""
    try:
      value = final_value(self._run.place.workdir, self._metric)
    except DataError as error:
      self._store.fail(self._trial, str(error))
      return True
    self._values.append(value)
    if len(self._values) == len(self._runs):
      self._store.complete(self._trial, self._values)
      return True
    self._process = self._launch(self._run.place)
    return False


def _reason(code: int, log: pathlib.Path) -> str:
  """Returns the exit code and the last error (else the last line) of a log."""
  lines = [
    line
    for line in log.read_text('utf-8', errors='replace').splitlines()
    if line.strip()
  ]
  errors = [line for line in lines if line.startswith('error: ')]
  last = (errors or lines or ['the log is empty'])[-1]
  if code < 0:
    return f'killed by {signal.Signals(-code).name}; {last}'
  return f'exit code {code}; {last}'
