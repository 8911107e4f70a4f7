import json
import sys

import pytest

from xjax.train.writers import MetricWriter, TrainingProgress


def records(workdir):
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def test_appends_records_and_board(tmp_path):
  with MetricWriter(tmp_path, 0, 0) as writer:
    writer.write('train', 1, loss=2.5)
    writer.write('judge', 2, split='dev', metrics={'all': {'P@1': 0.5}})
    writer.sync()
  assert records(tmp_path) == [
    {'kind': 'train', 'step': 1, 'loss': 2.5},
    {
      'kind': 'judge',
      'step': 2,
      'split': 'dev',
      'metrics': {'all': {'P@1': 0.5}},
    },
  ]
  events = b''.join(p.read_bytes() for p in (tmp_path / 'tb').iterdir())
  assert b'train/loss' in events
  assert b'judge/metrics/all/P_1' in events
  assert b'split' not in events


def test_resuming_cuts_what_came_after(tmp_path):
  with MetricWriter(tmp_path, 0, 0) as writer:
    for step in (1, 2, 3):
      writer.write('train', step, loss=float(step))
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"kind": "train", "step": 1, "lo')  # killed while writing
  with MetricWriter(tmp_path, 2, 2) as writer:
    writer.write('train', 3, loss=30.0)
  assert [r['loss'] for r in records(tmp_path)] == [1.0, 2.0, 30.0]


def test_a_judging_that_the_state_does_not_know_of_is_cut(tmp_path):
  with MetricWriter(tmp_path, 0, 0) as writer:
    for step in (4, 8):
      writer.write('train', step, loss=1.0)
      writer.write('judge', step, split='dev')
  with MetricWriter(tmp_path, 8, 4):
    pass
  found = [(r['kind'], r['step']) for r in records(tmp_path)]
  assert found == [('train', 4), ('judge', 4), ('train', 8)]


def test_a_number_that_is_not_a_number_is_no_json(tmp_path):
  with MetricWriter(tmp_path, 0, 0) as writer, pytest.raises(ValueError):
    writer.write('train', 1, loss=float('nan'))


def test_plain_lines_where_there_is_no_terminal(caplog, monkeypatch):
  monkeypatch.setattr(sys.stderr, 'isatty', lambda: False, raising=False)
  caplog.set_level('INFO')
  with TrainingProgress(10, 30) as progress:
    progress.update()
    progress.show(20, 1.25, 640.4)
    progress.say('a line')
  assert 'step 20/30: loss 1.2500, 640 documents/s, 00:00 left' in caplog.text
  assert 'a line' in caplog.text


def test_bar_on_a_terminal(caplog, capsys, monkeypatch):
  monkeypatch.setattr(sys.stderr, 'isatty', lambda: True, raising=False)
  caplog.set_level('INFO')
  with TrainingProgress(0, 3) as progress:
    progress.show(1, 1.25, 640.4)
    progress.update()
    progress.say('a line')
  shown = capsys.readouterr().err
  assert 'loss 1.2500, 640 documents/s' in shown
  assert '1/3' in shown and 'a line' in shown
  assert caplog.text == ''
