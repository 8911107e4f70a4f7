import json

import pytest

from xjax.core.errors import DataError
from xjax.sweep.judgings import Judgings, final_value


def judge(step, value):
  metrics = {'few': {'P@1': value}}
  return json.dumps({'kind': 'judge', 'step': step, 'metrics': metrics}) + '\n'


def test_reads_what_is_there(tmp_path):
  judgings = Judgings(tmp_path, 'few/P@1')
  assert judgings.read() == []
  path = tmp_path / 'metrics.jsonl'
  path.write_text('{"kind": "train", "step": 1}\n' + judge(2, 0.5))
  assert judgings.read() == [(2, 0.5)]
  with path.open('a') as file:
    file.write(judge(4, None) + judge(6, 0.75)[:-9])  # cut short
  assert judgings.read() == [(2, 0.5), (4, None)]
  path.write_text(judge(2, 0.25))  # a run resumed
  assert judgings.read() == [(2, 0.25)]


def test_the_value_of_a_finished_run(tmp_path):
  with pytest.raises(DataError, match='not judged on dev'):
    final_value(tmp_path, 'all/RP@5')
  folder = tmp_path / 'eval' / 'dev'
  folder.mkdir(parents=True)
  table = {'all': {'RP@5': 0.1, 'P@1': None}, 'few': {'RP@5': 0.2}}
  (folder / 'metrics.json').write_text(json.dumps({'xjax': table}))
  with pytest.raises(DataError, match='judged.json is missing'):
    final_value(tmp_path, 'few/RP@5')
  (folder / 'judged.json').write_text('{}')
  assert final_value(tmp_path, 'few/RP@5') == 0.2
  for metric in ('all/P@1', 'all/P@3', 'zero/P@1'):
    with pytest.raises(DataError, match='has no value on dev'):
      final_value(tmp_path, metric)
  for other in ([], {'xjax': []}, {'xjax': {'all': 3}}):
    (folder / 'metrics.json').write_text(json.dumps(other))
    with pytest.raises(DataError, match='metrics.json: '):
      final_value(tmp_path, 'all/RP@5')
