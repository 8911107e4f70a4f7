"""A trial on its way: its runs, one seed after the other."""

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

# The same command goes on: what experiments.train says, and what is left of it
# where SIGTERM comes before it listens, or when it no longer does.
_GOES_ON = (75, -signal.SIGTERM)


class Attempt:
  """Starts the runs of a trial, watches them, and ends it in the store."""

  def __init__(
    self,
    trial: Trial,
    runs: Sequence[TrialRun],
    metric: str,
    store: Store,
    launch: Callable[[Place], LocalProcess],
  ) -> None:
    """Begins with the first run.

    Args:
      trial: begun in the store.
      runs: one per seed; those that a killed sweep has finished are quick.
      metric: 'slice/metric' on dev.
      store: of all trials.
      launch: starts the training of a run, or goes on with it.
    """
    self.number = trial.number
    self._trial = trial
    self._runs, self._metric = runs, metric
    self._store, self._launch = store, launch
    self._values: list[float] = []
    self._judgings = Judgings(runs[0].place.workdir, metric)
    self._decided = store.decided(trial)
    self._pruned = store.stopped(trial)
    self._process = launch(runs[0].place)
    if self._pruned:
      self._process.terminate()

  def terminate(self) -> None:
    """Asks the run under way to save and leave."""
    self._process.terminate()

  def kill(self) -> None:
    """Ends the run under way at once; it goes on from what it last saved."""
    self._process.kill()

  def left(self) -> bool:
    """Whether the run under way has ended, by itself or as it was asked."""
    return self._process.poll() is not None

  def advance(self) -> bool:
    """Looks at the run under way; whether the trial has ended."""
    code = self._process.poll()
    if not self._values and not self._pruned:
      self._report()
    if code is None:
      return False
    if self._pruned:
      self._store.prune(self._trial)
    elif code == 0:
      return self._take_value()
    elif code in _GOES_ON:
      self._process = self._launch(self._run.place)
      return False
    else:
      self._store.fail(self._trial, _reason(code, self._run.place.log))
    return True

  @property
  def _run(self) -> TrialRun:
    return self._runs[len(self._values)]

  def _report(self) -> None:
    """Tells the store of new judgings, one by one as if each came alone.

    So what is pruned depends on values, not on how often this looks.
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
      if number > self._store.reported(self._trial):
        self._trial.report(value, number)
      if self._store.decide(self._trial, number, may_stop=step < last):
        self._pruned = True
        self._process.terminate()
        return

  def _take_value(self) -> bool:
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
  """Why a run failed: its last line, or the error it printed last."""
  lines = [
    line
    for line in log.read_text('utf-8', errors='replace').splitlines()
    if line.strip()
  ]
  errors = [line for line in lines if line.startswith('error: ')]
  last = (errors or lines or ['it printed nothing'])[-1]
  if code < 0:
    return f'killed by {signal.Signals(-code).name}; {last}'
  return f'exit code {code}; {last}'
