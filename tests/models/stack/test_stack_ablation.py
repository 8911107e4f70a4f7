"""benchmarks/stack_ablation.py measures the parts of a finished stack."""

import dataclasses
import pathlib
import subprocess
import sys

import pytest

from tests.fixtures.sparse_runs import RUNS, config_of, contents
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import (
  ProposerConfig,
  names_proposer,
  neighbours_proposer,
)
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.run.fit import fit

ROOT = pathlib.Path(__file__).resolve().parents[3]


def small_stack():
  """The config of a stack with three proposers and a small ranker."""
  config = config_of(*RUNS['xr'])
  tree = ProposerConfig(
    config.data.tokens, (), config.model, config.train, name='tree'
  )
  model = StackModel(
    (tree, neighbours_proposer(), names_proposer()),
    ranker=BoostedTrees(trees=10, leaves=7, rate=0.5, least_pairs=5),
    folds=2,
  )
  train = StackTrain(workers=1)
  return dataclasses.replace(config, model=model, train=train)


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
def test_parts_of_a_stack_are_left_out(tmp_path):
  folder = tmp_path / 'run'
  metrics = fit(small_stack(), folder).metrics['dev']['xjax']
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
  values = {
    'RP@5': metrics['all']['RP@5'],
    'nDCG@5': metrics['all']['nDCG@5'],
    'few RP@5': metrics['few']['RP@5'],
    'zero RP@5': metrics['zero']['RP@5'],
  }
  everything = differences.pop('everything')
  for column, value in values.items():
    assert everything[column] == f'{value:.4f}'
  assert differences.pop('lesson: folds')['RP@5'] == (
    f'{everything["RP@5"]} (+0.0000 [+0.0000, +0.0000])'
  )
  for row in differences.values():
    assert everything['RP@5'] not in row['RP@5']
    assert 0.3 < float(row['RP@5'].split()[0]) < 1
  assert errors['all']['ECE[>0.1]'] == f'{metrics["all"]["ECE[>0.1]"]:.4f}'
  counts = [int(row['listed labels above 0.1']) for row in errors.values()]
  assert list(errors) == ['all', 'frequent', 'few', 'zero', 'held_out']
  assert counts[0] == sum(counts[1:4])
  printed = ablation(folder, '--quick', '--only=gaps')
  quick, _ = map(table_of, printed.strip().split('\n\n'))
  assert list(quick) == ['everything', 'without gaps (features)']
  assert quick['everything']['RP@5'] != everything['RP@5']
  assert 0.3 < float(quick['everything']['RP@5']) < 1
