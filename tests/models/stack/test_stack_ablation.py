"""benchmarks/stack_ablation.py measures the parts of a finished stack."""

import pathlib
import subprocess
import sys

import pytest

from tests.fixtures.sparse_runs import contents

ROOT = pathlib.Path(__file__).resolve().parents[3]


def table_of(text):
  """Reads a table in Markdown: name of the row -> column -> cell."""
  lines = [line[2:-2].split(' | ') for line in text.splitlines()]
  header, _, *rows = lines
  return {name: dict(zip(header[1:], cells)) for name, *cells in rows}


def ablation(folder, *flags):
  """Returns what the benchmark prints about a run."""
  done = subprocess.run(
    [
      *(sys.executable, 'benchmarks/stack_ablation.py'),
      f'--workdir={folder}',
      *flags,
    ],
    cwd=ROOT,
    env={'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    check=True,
  )
  return done.stdout


@pytest.mark.thorough
def test_parts_of_a_stack_are_left_out(stacked):
  folder = stacked.workdir
  before = contents(folder)
  printed = ablation(
    folder, '--without=tree,neighbours', '--only=tree,gaps,lesson'
  )
  assert contents(folder) == before
  differences, errors = map(table_of, printed.strip().split('\n\n'))
  assert list(differences) == [
    'everything',
    'without tree',
    'without tree, neighbours',
    'without gaps (features)',
    'lesson: half of dev',
    'lesson: folds',
  ]
  everything = differences.pop('everything')
  metrics = stacked.metrics['dev']['xjax']['all']
  for name in ('RP@5', 'nDCG@5'):
    assert everything[name] == f'{metrics[name]:.4f}'
  assert differences.pop('lesson: folds')['RP@5'] == (
    f'{everything["RP@5"]} (+0.0000 [+0.0000, +0.0000])'
  )
  assert errors['all']['ECE[>0.1]'] == f'{metrics["ECE[>0.1]"]:.4f}'
