"""Tests the record of what a run has cost."""

import dataclasses
import json

import pytest

from xjax.core.errors import DataError, Preempted
from xjax.train import run_record
from xjax.train.run_record import RunClock, RunRecord
from xjax.train.workdir import Workdir


@pytest.fixture
def home(tmp_path, monkeypatch):
  """A workdir; the clock goes on by 10 seconds each time it is read."""
  times = iter(range(0, 1000, 10))
  monkeypatch.setattr(run_record.time, 'monotonic', lambda: next(times))
  return Workdir.at(tmp_path)


def test_seconds_add_up_over_starts(home):
  assert RunRecord.read(home) is None
  with pytest.raises(Preempted), RunClock(home):
    raise Preempted('stopped')
  first = RunRecord.read(home)
  assert (first.seconds, first.finished) == (10, '')
  assert first.peak_memory > 10_000_000
  with RunClock(home) as clock:
    pass
  assert clock.is_new(6)
  clock.record.ended(6, 1234).save(home)
  last = RunRecord.read(home)
  assert (last.seconds, last.steps, last.model_bytes) == (20, 6, 1234)
  assert last.finished.endswith('+00:00') and last.version


def test_a_finished_run_is_not_new(home):
  with RunClock(home) as clock:
    pass
  clock.record.ended(6, 1).save(home)
  before = home.record.read_bytes()
  with RunClock(home) as clock:
    pass
  assert not clock.is_new(6) and clock.is_new(7)
  assert home.record.read_bytes() == before


@pytest.mark.parametrize(
  ('field', 'value'), [('seconds', '1'), ('peak_memory', None)]
)
def test_a_damaged_record_is_one_error(home, field, value):
  values = dataclasses.asdict(RunRecord()) | {field: value}
  home.record.write_text(json.dumps(values))
  with pytest.raises(DataError, match=f'run.json: {field} is .* wrong type'):
    RunRecord.read(home)
