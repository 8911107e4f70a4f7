"""Records of training: metrics.jsonl, TensorBoard, lines in the log."""

import errno
import io
import json
import struct
import sys

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from xjax.core.errors import UserError
from xjax.train.writers import MetricWriter, TrainingProgress


def records(workdir):
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def test_resuming_cuts_what_came_after(tmp_path):
  with MetricWriter(tmp_path, 0, 0) as writer:
    for step in (4, 8, 9):
      writer.write('train', step, loss=float(step))
      writer.write('judge', step, split='dev')
    writer.sync()
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"kind": "train", "step": 1, "lo')  # killed while writing
  with MetricWriter(tmp_path, 8, 4) as writer:  # does not know of judging 8
    writer.write('train', 9, loss=90.0)
  assert records(tmp_path) == [
    {'kind': 'train', 'step': 4, 'loss': 4.0},
    {'kind': 'judge', 'step': 4, 'split': 'dev'},
    {'kind': 'train', 'step': 8, 'loss': 8.0},
    {'kind': 'train', 'step': 9, 'loss': 90.0},
  ]


def events(workdir):
  """The events of TensorBoard: (step, name of the number or None, status)."""
  shown = []
  for path in sorted((workdir / 'tb').iterdir()):
    content = path.read_bytes()
    while content:  # a size and its sum, an event and its sum
      end = 12 + struct.unpack('<Q', content[:8])[0]
      event, content = Event.FromString(content[12:end]), content[end + 4 :]
      names = [value.tag for value in event.summary.value]
      shown.append((event.step, *names, event.session_log.status))
  return shown


def test_board_hides_the_steps_after_a_restart(tmp_path):
  with MetricWriter(tmp_path, 4, 4) as writer:
    writer.write('train', 5, loss=2.5)
    assert events(tmp_path)[-1] == (5, 'train/loss', 0)  # at once
  restart = (5, SessionLog.START)
  assert events(tmp_path) == [(0, 0), restart, (5, 'train/loss', 0)]
  with MetricWriter(tmp_path, 4, 4):
    pass
  assert len(list((tmp_path / 'tb').iterdir())) == 2


def test_board_has_the_main_metrics_and_the_file_has_all(tmp_path):
  values = {f'{kind}@{k}': 0.5 for kind in ('P', 'R', 'PSP') for k in (1, 3, 5)}
  with MetricWriter(tmp_path, 0, 0, 'all/R@3') as writer:
    writer.write('judge', 2, metrics={'all': values, 'few': values})
  (record,) = records(tmp_path)
  assert record['metrics'] == {'all': values, 'few': values}
  main = {f'{kind}_{k}' for kind in ('P', 'PSP') for k in (1, 3, 5)}
  names = {name for event in events(tmp_path) for name in event[1:-1]}
  assert names == {
    *(f'judge/metrics/all/{name}' for name in {*main, 'R_3'}),
    *(f'judge/metrics/few/{name}' for name in main),
  }


class Full(io.BytesIO):
  """A file on a full disk."""

  def fileno(self):
    return -1

  def flush(self):
    raise OSError(errno.ENOSPC, 'No space left on device')


@pytest.mark.parametrize('part', ['metrics.jsonl', 'tb'])
def test_a_full_disk_is_one_error_at_once(tmp_path, part):
  with pytest.raises(UserError, match=f'{part}.*: cannot be written: No space'):
    with MetricWriter(tmp_path, 0, 0) as writer:
      if part == 'tb':
        writer._events.flush = Full().flush
      else:
        writer._file.close()
        writer._file = io.TextIOWrapper(Full())
      writer.write('train', 1, loss=0.5)
  writer._events._py_recordio_writer.close()


def test_plain_lines_where_there_is_no_terminal(caplog, monkeypatch):
  monkeypatch.setattr(sys.stderr, 'isatty', lambda: False, raising=False)
  caplog.set_level('INFO')
  with TrainingProgress(10, 30) as progress:
    progress.update()
    progress.show(20, 1.25, 640.4)
  assert 'step 20/30: loss 1.2500, 640 documents/s, 00:00 left' in caplog.text


def test_a_number_that_is_not_a_number_is_no_json(tmp_path):
  with MetricWriter(tmp_path, 0, 0) as writer, pytest.raises(ValueError):
    writer.write('train', 1, loss=float('nan'))


@pytest.mark.parametrize('name', ['tb', 'metrics.jsonl'])
def test_what_is_in_the_way_is_one_error(tmp_path, name):
  if name == 'tb':
    (tmp_path / name).write_text('mine')
  else:
    (tmp_path / name).mkdir()
  says = f'{tmp_path}/{name}.*: cannot be written'
  with pytest.raises(UserError, match=says):
    MetricWriter(tmp_path, 0, 0)
