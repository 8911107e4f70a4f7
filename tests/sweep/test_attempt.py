"""Trials whose runs are lines that the test writes; the store is a real one."""

import json
import signal

from optuna.trial import TrialState
import pytest

from xjax.core.errors import DataError
from xjax.sweep.config import MedianPruning
from xjax.sweep.trials import TrialStore
from xjax.sweep.workers import TrialRunner, final_value, read_judgings

METRIC = 'all/RP@5'


class Process:
  """Never ends but when told."""

  def __init__(self):
    self.code, self.asked = None, False

  def poll(self):
    return self.code

  def terminate(self):
    self.asked = True


class Sweep:
  """Complete trials, and then one under way in an attempt."""

  def __init__(self, session, *others):
    self.session, self.number = session, len(others)
    for folder in ('trials', 'configs', 'logs'):
      (session.folder.path / folder).mkdir(parents=True)
    self.open()
    for values in others:
      self.complete(values)
    self.runs = session.runs(self.number, {})
    self.begin(self.store.begin())

  def open(self):
    pruning = MedianPruning(startup_trials=1, warmup_judgings=0)
    search = self.session.sweep.search
    self.store = TrialStore(self.session.folder.store, search, pruning)

  def complete(self, values):
    """Another trial, with its values at its judgings."""
    trial = self.store.begin()
    for number, value in enumerate(values, 1):
      trial.report(value, number)
    self.store.complete(trial, values[-1:])

  def begin(self, trial):
    self.attempt = TrialRunner(
      trial, self.runs, METRIC, self.store, self.launch
    )

  def launch(self, place):
    del place
    self.process = Process()
    return self.process

  def judge(self, *values):
    """Writes all judgings there are so far, and has them looked at."""
    folder = self.runs[0].place.workdir
    folder.mkdir(exist_ok=True)
    lines = [
      {'kind': 'judge', 'step': 2 * n, 'metrics': {'all': {'RP@5': value}}}
      for n, value in enumerate(values, 1)
    ]
    (folder / 'metrics.jsonl').write_text('\n'.join(map(json.dumps, lines)))
    self.attempt.advance()
    assert not self.process.asked  # it may just have started
    self.attempt.advance()
    return self.process.asked

  def resume(self):
    """As a sweep that was killed and goes on."""
    self.open()
    self.begin(*self.store.unfinished())
    self.attempt.advance()
    self.attempt.advance()
    return self.process.asked

  def finish(self, seed, value):
    """The run under way ends well; whether the trial has ended with it."""
    folder = self.runs[seed].place.workdir / 'eval' / 'dev'
    folder.mkdir(parents=True, exist_ok=True)
    table = {'xjax': {'all': {'RP@5': value}}}
    (folder / 'metrics.json').write_text(json.dumps(table))
    (folder / 'judged.json').write_text('{"files": {}}')
    self.process.code = 0
    return self.attempt.advance()

  @property
  def state(self):
    return self.store.trials()[self.number].state


@pytest.fixture
def sweep_of(session_of):
  """With the values of complete trials; of five trials in all."""
  return lambda *others, seeds=1: Sweep(session_of([{}] * 5, seeds), *others)


@pytest.mark.parametrize('seeds', [1, 2])
def test_the_last_judging_stops_nothing_when_killed_after_it(sweep_of, seeds):
  sweep = sweep_of((0.5, 0.5, 0.5, 0.9), seeds=seeds)
  assert not sweep.judge(0.6, 0.6, 0.6, 0.6)
  if seeds > 1:
    assert not sweep.finish(0, 0.6)  # killed while a later seed's is at work
  assert not sweep.resume()
  ended = [sweep.finish(seed, 0.6) for seed in range(seeds)]
  assert ended == [False, True][-seeds:]
  assert sweep.state is TrialState.COMPLETE


@pytest.mark.parametrize('code', [75, -signal.SIGTERM])
def test_asked_to_leave_by_others_it_goes_on(sweep_of, code):
  sweep = sweep_of()
  asked, sweep.process.code = sweep.process, code
  assert not sweep.attempt.advance()
  assert sweep.process is not asked
  assert sweep.finish(0, 0.5)
  assert sweep.state is TrialState.COMPLETE


def test_what_was_let_live_is_not_stopped_by_a_kill(sweep_of):
  sweep = sweep_of((0.5, 0.5, 0.5, 0.5))
  assert not sweep.judge(0.6, 0.6)
  for _ in range(2):  # beside it, after its second judging
    sweep.complete((0.9, 0.9, 0.9, 0.9))
  assert not sweep.resume()
  assert not sweep.judge(0.6, 0.6)
  assert sweep.judge(0.6, 0.6, 0.6)


def test_a_trial_is_pruned_at_once(sweep_of):
  sweep = sweep_of((0.5, 0.5, 0.5, 0.5))
  assert sweep.judge(0.4)
  assert sweep.state is TrialState.PRUNED
  assert not sweep.attempt.advance()  # its process still saves
  sweep.process.code = 75
  assert sweep.attempt.advance()


def judge(step, value):
  metrics = {'few': {'P@1': value}}
  return json.dumps({'kind': 'judge', 'step': step, 'metrics': metrics}) + '\n'


def test_reads_the_judgings_there_are(tmp_path):
  assert read_judgings(tmp_path, 'few/P@1') == []
  path = tmp_path / 'metrics.jsonl'
  path.write_text('{"kind": "train", "step": 1}\n[1]\n' + judge(2, 0.5))
  with path.open('a') as file:
    file.write(judge(4, None) + judge(6, 0.75)[:-9])  # cut short
  assert read_judgings(tmp_path, 'few/P@1') == [(2, 0.5), (4, None)]


def test_the_value_of_a_finished_run(tmp_path):
  with pytest.raises(DataError, match='not judged on dev'):
    final_value(tmp_path, 'all/RP@5')
  folder = tmp_path / 'eval' / 'dev'
  folder.mkdir(parents=True)
  table = {'all': {'RP@5': 0.1, 'P@1': None}, 'few': {'RP@5': 0.2}}
  (folder / 'metrics.json').write_text(json.dumps({'xjax': table}))
  with pytest.raises(DataError, match='judged.json is missing'):
    final_value(tmp_path, 'few/RP@5')
  (folder / 'judged.json').write_text('{"files": {}}')
  assert final_value(tmp_path, 'few/RP@5') == 0.2
  for metric in ('all/P@1', 'all/P@3', 'zero/P@1'):
    with pytest.raises(DataError, match='has no value on dev'):
      final_value(tmp_path, metric)
  for other in ([], {'xjax': []}, {'xjax': {'all': 3}}):
    (folder / 'metrics.json').write_text(json.dumps(other))
    with pytest.raises(DataError, match='metrics.json: '):
      final_value(tmp_path, 'all/RP@5')
