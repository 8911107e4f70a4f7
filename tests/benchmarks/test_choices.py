"""The benchmark of what `auto` chooses, on a small corpus."""

import gzip
import json
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.fixtures.own_corpus import make_rows


@pytest.mark.thorough
@pytest.mark.lightgbm
def test_each_system_has_a_row(tmp_path):
  source = tmp_path / 'arxiv'
  source.mkdir()
  rows = [
    {'id': str(number), 'text': row['body'], 'labels': row['tags'].split(';')}
    for number, row in enumerate(make_rows(700, 12))
  ]
  labels = sorted({label for row in rows for label in row['labels']})
  files = {
    'train': rows[:600],
    'dev': rows[600:],
    'labels': [{'id': label, 'name': label} for label in labels],
  }
  for name, part in files.items():
    with gzip.open(source / f'{name}.jsonl.gz', 'wt') as file:
      file.writelines(json.dumps(row) + '\n' for row in part)
  # A process of its own, since the script defines flags.
  command = [sys.executable, str(ROOT / 'benchmarks/choices.py')]
  flags = (
    f'--data={tmp_path}',
    f'--workdir={tmp_path}/runs',
    '--cases=arxiv_500',
  )
  done = subprocess.run(
    [*command, *flags], cwd=ROOT, check=True, capture_output=True, text=True
  )
  _, _, *table = [
    line.strip('| ').split(' | ') for line in done.stdout.splitlines()
  ]
  assert [row[2] for row in table] == ['linear', 'tree', 'stack']
  assert all(float(row[4]) > 0.3 for row in table)
  # `auto` chooses the stack from 500 documents on.
  assert table[2][-2][0] in '+-' and len(table[1]) < len(table[2])
  drawn = (tmp_path / 'runs/data/arxiv_500/train.jsonl').read_text()
  assert drawn.count('\n') == 500
