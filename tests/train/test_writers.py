import errno
import io
import json
import struct
import sys

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
from tensorboardX.record_writer import masked_crc32c

from xjax.core.errors import UserError
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.train.run_record import RunRecord
from xjax.train.writers import MetricWriter, TrainingProgress, write_results


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


def raw_events(path):
  content = path.read_bytes()
  while content:
    (size,) = struct.unpack('<Q', content[:8])
    assert content[8:12] == struct.pack('<I', masked_crc32c(content[:8]))
    data, crc = content[12 : 12 + size], content[12 + size : 16 + size]
    assert crc == struct.pack('<I', masked_crc32c(data))
    yield Event.FromString(data)
    content = content[16 + size :]


def events(workdir):
  """The events of TensorBoard: (step, name of the number or None)."""
  found = []
  for path in sorted((workdir / 'tb').iterdir()):
    for event in raw_events(path):
      names = [value.tag for value in event.summary.value]
      found.append((event.step, *names, event.session_log.status))
  return found


def test_board_hides_the_steps_after_a_restart(tmp_path):
  with MetricWriter(tmp_path, 4, 4) as writer:
    writer.write('train', 5, loss=2.5)
    assert events(tmp_path)[-1] == (5, 'train/loss', 0)  # at once
  assert events(tmp_path) == [
    (0, 0),
    (5, SessionLog.START),
    (5, 'train/loss', 0),
  ]


def tags(workdir):
  return {name for event in events(workdir) for name in event[1:-1]}


def test_board_has_the_main_metrics_and_the_file_has_all(tmp_path):
  values = {f'{kind}@{k}': 0.5 for kind in ('P', 'R', 'PSP') for k in (1, 3, 5)}
  config = Config()
  config.train.best_metric = 'all/R@3'
  with MetricWriter(tmp_path, 0, 0, to_json(config)) as writer:
    writer.write('judge', 2, metrics={'all': values, 'few': values})
  (record,) = records(tmp_path)
  assert record['metrics'] == {'all': values, 'few': values}
  main = {f'{kind}_{k}' for kind in ('P', 'PSP') for k in (1, 3, 5)}
  judged = {tag for tag in tags(tmp_path) if tag.startswith('judge/')}
  assert judged == {
    *(f'judge/metrics/all/{name}' for name in {*main, 'R_3'}),
    *(f'judge/metrics/few/{name}' for name in main),
  }


def settings_of(workdir):
  """The fields of the config that TensorBoard's tab HPARAMS shows."""
  fields = {}
  for path in (workdir / 'tb').iterdir():
    for event in raw_events(path):
      for value in event.summary.value:
        if value.tag == '_hparams_/session_start_info':
          data = HParamsPluginData.FromString(
            value.metadata.plugin_data.content
          )
          for name, of in data.session_start_info.hparams.items():
            fields[name] = getattr(of, of.WhichOneof('kind'))
  return fields


def test_results_of_every_kind_of_run_are_on_the_board(tmp_path):
  config = Config(seed=7)
  metrics = {'xjax': {'all': {'P@1': 0.5, 'P@5': 0.25, 'n_docs': 9}}}
  results = {'dev': metrics, 'test': metrics}
  record = RunRecord(12.5, 10**9, None, 0, 77)
  for _ in range(2):  # two files in one second
    write_results(tmp_path, to_json(config), results, record)
  assert len(list((tmp_path / 'tb').iterdir())) == 2
  names = {tag for tag in tags(tmp_path) if not tag.startswith('_')}
  assert names == {
    *(f'{split}/all/P_{k}' for split in ('dev', 'test') for k in (1, 5)),
    *(f'run/{name}' for name in ('seconds', 'peak_memory', 'model_bytes')),
  }
  fields = settings_of(tmp_path)
  assert fields['seed'] == 7 and fields['model.kind'] == 'NeuralModel'
  assert fields['train.learning_rate'] == config.train.learning_rate


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
      for step in range(100):
        owner = writer if part == 'metrics.jsonl' else writer._board
        owner._file.close()
        owner._file = io.TextIOWrapper(Full()) if owner is writer else Full()
        writer.write('train', step, loss=0.5)


def test_plain_lines_where_there_is_no_terminal(caplog, monkeypatch):
  monkeypatch.setattr(sys.stderr, 'isatty', lambda: False, raising=False)
  caplog.set_level('INFO')
  with TrainingProgress(10, 30) as progress:
    progress.update()
    progress.show(20, 1.25, 640.4)
    progress.say('a line')
  assert 'step 20/30: loss 1.2500, 640 documents/s, 00:00 left' in caplog.text
  assert 'a line' in caplog.text


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
