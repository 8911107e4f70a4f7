"""Whole sweeps, whose runs a stand-in trains in no time, and their signals."""

import contextlib
import functools
import os
import pathlib
import runpy
import signal
import sqlite3

import optuna
import pytest

from tests.sweep.conftest import (
  FAIL,
  RATE,
  STORAGE,
  WAIT,
  meanwhile,
  run,
  start_sweep,
  wait_for,
)
from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import locked
from xjax.sweep import session as sessions, trials as stored, workers
from xjax.sweep.config import Grid, Listed, MedianPruning, Sweep
from xjax.sweep.trials import (
  STATES,
  TrialStore,
  best_trial,
  error_of,
  seed_values,
)
from xjax.sweep.workers import StopSignals
from xjax.train.preemption import Preempted


def states(trials):
  return [STATES[trial.state] for trial in trials]


def starts(session, number):
  file = session.folder.place(number, None).workdir / 'starts'
  return len(file.read_text()) if file.exists() else 0


def is_open(path):
  files = pathlib.Path('/proc/self/fd').iterdir()
  return str(path) in map(os.path.realpath, files)


def best_rate(session):
  config = runpy.run_path(str(session.folder.best))['get_config']()
  return config.train.learning_rate, config.seed


def test_complete_and_failed_are_told_apart(session_of):
  session = session_of(
    [{RATE: 0.25}, {RATE: 0.5, FAIL: 1}, {RATE: 0.75}, {RATE: 0.5}]
  )
  trials = run(session, workers=2)
  assert states(trials) == ['complete', 'failed', 'complete', 'complete']
  assert [one.value for one in trials] == [0.25, None, 0.75, 0.5]
  assert error_of(trials[1]) == 'exit code 1; error: not today'
  assert best_trial(trials).number == 2
  assert best_rate(session) == (0.75, 0)
  again = run(session)  # there is nothing left
  assert again == trials
  assert [starts(session, number) for number in range(4)] == [1, 1, 1, 1]


def test_what_is_below_the_median_is_pruned(session_of):
  rates = [{RATE: 0.4}, {RATE: 0.8}, {RATE: 0.2}, {RATE: 0.7}, {RATE: 0.59}]
  sweep = Sweep(
    Listed(tuple(rates)), MedianPruning(startup_trials=2, warmup_judgings=1)
  )
  session = session_of(sweep)
  trials = run(session)
  # Not at the first judging, but at the second: 2 / 4 of the rate.
  assert states(trials) == [*['complete'] * 2, 'pruned', 'complete', 'pruned']
  assert trials[2].value == 0.1 and trials[4].value == 0.295
  assert best_trial(trials).number == 1


def test_the_mean_over_seeds_counts(session_of):
  session = session_of([{RATE: 0.5}, {RATE: 0.25}], seeds=3, seed=7)
  trials = run(session, workers=2)
  assert seed_values(trials[0]) == pytest.approx((0.57, 0.58, 0.59))
  assert trials[0].value == pytest.approx(0.58)
  assert best_rate(session) == (0.5, 7)
  names = sorted(p.name for p in (session.folder.path / 'trials').iterdir())
  assert names[:3] == ['0000_seed7', '0000_seed8', '0000_seed9']


def judgings(workdir):
  path = workdir / 'metrics.jsonl'
  return len(path.read_text().splitlines()) if path.exists() else 0


def test_sigterm_saves_and_the_next_goes_on(session_of):
  session = session_of([{RATE: 0.25, WAIT: 1}, {RATE: 0.5}, {RATE: 0.75}])
  waiting = session.folder.place(0, None).workdir

  def stop():
    wait_for(lambda: judgings(waiting) == 2 and starts(session, 1))
    os.kill(os.getpid(), signal.SIGTERM)

  with meanwhile(stop), pytest.raises(Preempted):
    run(session, workers=2)
  assert not (waiting / 'alive').exists()
  trials = run(session)
  assert states(trials) == ['complete'] * 3
  assert [one.value for one in trials] == [0.25, 0.5, 0.75]
  assert starts(session, 0) == 2


def test_a_second_signal_leaves_what_hangs(session_of, monkeypatch):
  monkeypatch.setattr(workers, '_ECHO', 0)
  session = session_of([{RATE: 0.25, WAIT: 2}, {RATE: 0.5, WAIT: 1}])
  place, other = (session.folder.place(n, None) for n in range(2))

  def stop():
    workdirs = place.workdir, other.workdir
    wait_for(lambda: [judgings(one) for one in workdirs] == [2, 2])
    os.kill(os.getpid(), signal.SIGTERM)
    try:
      wait_for((place.workdir / 'asked').exists)
      wait_for(lambda: not (other.workdir / 'alive').exists())
    finally:
      os.kill(os.getpid(), signal.SIGTERM)

  with (
    meanwhile(stop),
    pytest.raises(Preempted, match='^not all trials have saved'),
  ):
    run(session, workers=2)
  with pytest.raises(ProcessLookupError):
    os.kill(int((place.workdir / 'alive').read_text()), 0)
  assert not (other.workdir / 'alive').exists()
  trials = run(session, workers=2)
  assert states(trials) == ['complete'] * 2
  assert [one.value for one in trials] == [0.25, 0.5]
  assert starts(session, 0) == 2


@pytest.mark.thorough
def test_kill_loses_nothing_and_makes_nothing_twice(session_of, monkeypatch):
  waits = {2: 1, 4: 1, 5: 2}
  trials = [{RATE: (n + 1) / 16, WAIT: waits.get(n, 0)} for n in range(8)]
  session = session_of([{**t, FAIL: int(n == 1)} for n, t in enumerate(trials)])
  sweep = start_sweep(session, 3)
  held = [session.folder.place(n, None).workdir for n in (2, 4, 5)]
  wait_for(lambda: all(judgings(w) == 2 for w in held))
  sweep.kill()
  sweep.wait()
  # All are asked to leave. One does not, and keeps the folder locked.
  wait_for(lambda: all((w / 'asked').exists() for w in held))
  wait_for(lambda: not any((w / 'alive').exists() for w in held[:2]))
  monkeypatch.setattr(sessions, 'locked', functools.partial(locked, wait=0))
  with pytest.raises(ConfigError, match='is running here: .* still be saving'):
    run(session)
  for workdir in held:
    (workdir / 'go').touch()
  wait_for(lambda: not (held[2] / 'alive').exists())
  monkeypatch.undo()
  trials = run(session, workers=3)
  assert [one.number for one in trials] == list(range(8))
  failed, values = trials[1], [(n + 1) / 16 for n in range(8) if n != 1]
  complete = [one for one in trials if one is not failed]
  assert states(complete) == ['complete'] * 7 and states([failed]) == ['failed']
  assert [one.value for one in complete] == values
  folders = (session.folder.path / 'trials').iterdir()
  assert not any((folder / 'twice').exists() for folder in folders)
  assert [starts(session, n) for n in (0, 1, 3, 6)] == [1, 1, 1, 1]
  assert [starts(session, n) for n in waits] == [2, 2, 2]
  assert best_rate(session) == (8 / 16, 0)


def test_a_run_without_the_figure_fails(session_of):
  sweep = Sweep(Listed(({RATE: 0.5},)), metric='few/RP@5')
  trials = run(session_of(sweep))
  assert states(trials) == ['failed']
  assert 'few/RP@5 has no value on dev' in error_of(trials[0])


def test_a_kill_while_the_store_is_created_is_made_up_for(
  tmp_path, monkeypatch
):
  path, search = tmp_path / 'sweep.db', Grid({RATE: (0.5, 0.25)})

  def killed(*_, **__):
    raise SystemExit

  monkeypatch.setattr(stored, '_storage', STORAGE)
  with monkeypatch.context() as patch:
    patch.setattr(optuna, 'create_study', killed)
    with pytest.raises(SystemExit):
      TrialStore(path, search, None)
  TrialStore(path, search, None).begin()
  assert len(TrialStore(path, search, None).unfinished()) == 1


@pytest.mark.parametrize(
  'change',
  [
    # A database whose creation was interrupted has no such index.
    """drop index ix_studies_study_name;
    insert into studies (study_name) values ('sweep')""",
    "update trials set state = 'else'",
    'delete from trial_user_attributes',
    None,
  ],
)
def test_a_store_of_another_form_is_one_error(tmp_path, change):
  path, search = tmp_path / 'sweep.db', Grid({RATE: (0.5, 0.25)})
  store = TrialStore(path, search, None)
  store.complete(store.begin(), [0.5])
  store.begin()
  assert len(TrialStore(path, search, None).unfinished()) == 1
  assert not is_open(path)
  if change:
    with contextlib.closing(sqlite3.connect(path)) as base:
      base.executescript(change)
      base.commit()
  else:
    path.write_bytes(b'no database' * 100)
  with pytest.raises(DataError, match=r'sweep\.db: .*(damaged|cannot be read)'):
    TrialStore(path, search, None)
  assert not is_open(path)


def test_ctrl_c_leaves_as_ctrl_c():
  before = signal.getsignal(signal.SIGINT)
  with StopSignals() as seen:
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
      seen.leave()
  assert signal.getsignal(signal.SIGINT) is before
