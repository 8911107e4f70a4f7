"""The benchmark of one accelerator, on this CPU and in small form."""

import json
import subprocess
import sys

from accelerator_checks import checks
from accelerator_compare import compare, largest_difference, prepare
from accelerator_results import bounds, markdown
import numpy as np
import pytest

from tests.docs.pages import ROOT

# One for each form of values: floats, stored bits of bfloat16, integers.
CHOSEN = 'loss BCE', 'rows COMPENSATED, SGD', 'top-k with ties', 'metrics'


@pytest.fixture(scope='module')
def chosen():
  return [check for check in checks() if check.name in CHOSEN]


@pytest.fixture(scope='module')
def prepared(chosen, tmp_path_factory):
  path = tmp_path_factory.mktemp('inputs') / 'checks.npz'
  np.savez(path, **prepare(chosen, tiny=True))
  return dict(np.load(path, allow_pickle=False))


def test_a_cpu_repeats_its_values(chosen, prepared):
  rows = list(compare(chosen, prepared))
  assert [(row['check'], row['dtype']) for row in rows] == [
    (check.name, dtype) for check in chosen for dtype in check.tolerances
  ]
  assert all(row['ok'] for row in rows), rows
  assert all(row['difference'] == 0 for row in rows if row['tolerance'] == 0)


def test_a_planted_difference_is_seen(chosen, prepared):
  planted = dict(prepared)
  loss = 'loss BCE|float32|gradient kernel'
  planted[loss] = prepared[loss] * np.float32(1 + 1e-4)
  ids = 'top-k with ties|float32|ids'
  planted[ids] = prepared[ids].copy()
  planted[ids][0, 0, :2] = prepared[ids][0, 0, 1::-1]
  del planted['metrics|float32|P@5']
  rows = {(row['check'], row['dtype']): row for row in compare(chosen, planted)}
  assert rows['loss BCE', 'float32']['in'] == 'gradient kernel'
  assert 'P@5' in rows['metrics', 'float32']['error']
  missed = [name for name, row in rows.items() if not row['ok']]
  assert missed == [
    ('loss BCE', 'float32'),
    ('top-k with ties', 'float32'),
    ('top-k with ties', 'bfloat16'),
    ('metrics', 'float32'),
  ]


def test_nan_is_the_largest_difference():
  values = {'a': np.ones(3), 'b': np.arange(4)}
  found = {'a': np.array([1, np.nan, 1]), 'b': np.array([0, 1, 2, 0])}
  difference, where = largest_difference(found, values)
  assert np.isnan(difference) and where == 'a'
  found['a'] = np.ones(3)
  assert largest_difference(found, values) == (0.25, 'b')


def on_gpu(share, ours, peers, minutes):
  """Returns results of a GPU."""
  sides = {'xjax': {'share_of_peak': share, 'documents_per_second': ours}}
  for number, rate in enumerate(peers):
    sides[f'peer {number}'] = {'documents_per_second': rate}
  heads = {'float8, BERT': {'epoch_minutes': minutes}}
  return {
    'tiny': False,
    'device': {'platform': 'gpu'},
    'sections': {'bert': sides, 'ova_head': heads},
  }


@pytest.mark.parametrize(
  ('results', 'missed'),
  [
    (on_gpu(0.46, 900, [800, 899], 9), []),
    (on_gpu(0.44, 900, [], 9), ['share']),
    (on_gpu(0.46, 900, [800, 901], 9), ['documents/s']),
    (on_gpu(0.46, 900, [800], 9.1), ['minutes']),
  ],
)
def test_bounds(results, missed):
  found = [bound['name'] for bound in bounds(results) if not bound['ok']]
  assert len(found) == len(missed)
  assert all(part in name for part, name in zip(missed, found))


def run(*words):
  return subprocess.run(
    [sys.executable, ROOT / 'benchmarks' / 'accelerator.py', *words],
    capture_output=True,
    text=True,
  )


@pytest.mark.thorough
def test_everything_runs_in_small_form(tmp_path):
  out = tmp_path / 'results.json'
  done = run('--tiny', f'--out={out}')
  assert done.returncode == 0, done.stdout + done.stderr
  results = json.loads(out.read_text())
  sections = results['sections']
  assert list(sections) == [
    *('checks', 'bert', 'ova_head', 'bigru_lwan'),
    *('minilm', 'quickstart', 'plan'),
  ]
  for sides in sections.values():
    for side, part in sides.items():
      assert part['status'] == 'done' or 'not installed' in part['skipped'], (
        side
      )
  assert sections['bert']['xjax']['seconds'] > 0
  assert [
    head['chunk'] for head in sections['ova_head']['float8']['heads']
  ] == [
    1000,
    3000,
  ]
  assert len(sections['plan']['xjax']['rows']) == 4
  assert all('error' not in row for row in sections['plan']['xjax']['rows'])
  assert 0 <= sections['minilm']['bfloat16']['metrics']['dev RP@5'] <= 1
  assert all(bound['ok'] for bound in results['bounds'])
  table = run(f'--table={out}')
  assert table.stdout.strip() == markdown(results)
  assert table.stdout.strip() in done.stdout


@pytest.mark.thorough
def test_a_part_that_fails_does_not_stop_the_others(tmp_path):
  (tmp_path / 'checks.npz').write_text('no file of arrays')
  out = tmp_path / 'results.json'
  words = '--tiny', '--only=checks,minilm', f'--inputs={tmp_path}'
  done = run(*words, f'--out={out}')
  assert done.returncode == 1
  sections = json.loads(out.read_text())['sections']
  assert sections['checks']['xjax']['status'] == 'failed'
  assert sections['minilm']['bfloat16']['skipped'].endswith('no minilm.npz')
  assert 'checks' in run(f'--table={out}').stdout
