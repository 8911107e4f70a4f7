"""The comparison from the command line: files, messages, exit codes."""

from collections.abc import Callable
import functools
import json
import subprocess
import sys

import pytest

FEW = '--iterations=50', '--replicates=20', '--metrics=P@1,macro-F1@1'


@pytest.fixture
def run(run_main) -> Callable:
  return functools.partial(run_main, 'compare')


def test_what_is_printed_and_written(run, two_systems, tmp_path):
  done = run(*two_systems, *FEW, f'--output={tmp_path}', '--names=A,B')
  assert done.returncode == 0, done.stderr
  assert done.stderr.removeprefix('xjax compare: starting\n') == ''
  assert done.stdout.startswith('baseline A: 4 documents, 3 labels\n')
  assert done.stdout.endswith(f'\n{tmp_path}\n')
  text = (tmp_path / 'comparison.json').read_text()
  first, *_ = json.loads(text)['differences']
  assert (first['metric'], first['system']) == ('P@1', 'B')
  assert first['difference'] == pytest.approx(1 / 3 - 2 / 3)


@pytest.mark.thorough
def test_another_process_writes_the_same(run, two_systems, tmp_path):
  outs = tmp_path / 'here', tmp_path / 'there'
  assert run(*two_systems, *FEW, f'--output={outs[0]}').returncode == 0
  command = [sys.executable, '-m', 'xjax', 'compare', *map(str, two_systems)]
  subprocess.run([*command, *FEW, f'--output={outs[1]}'], check=True)
  here, there = ((x / 'comparison.json').read_bytes() for x in outs)
  assert here == there


def test_slices_filter_and_weights(run, two_systems, tmp_path):
  (tmp_path / 'inv.txt').write_text('1\n2\n4\n')
  (tmp_path / 'pairs.txt').write_text('0 0\n')
  (tmp_path / 'order.txt').write_text('x\ny\nz\n')
  few = '--iterations=50', '--replicates=20', '--metrics=P@1,PSP@1'
  beside = f'--inv_prop={tmp_path}/inv.txt', f'--filter={tmp_path}/pairs.txt'
  slices = (
    *('--by_frequency', '--slices=bin:1-9'),
    f'--label_order={tmp_path}/order.txt',
  )
  done = run(*two_systems, *few, *beside, *slices, f'--output={tmp_path}')
  assert done.returncode == 0, done.stderr
  assert 'label weights are from --inv_prop' in done.stdout
  rows = json.loads((tmp_path / 'comparison.json').read_text())['differences']
  names = list(dict.fromkeys(row['slice'] for row in rows))
  assert names == ['all', 'frequent', 'few', 'zero', 'bin:1-9']
  weighed = next(row for row in rows if row['metric'] == 'PSP@1')
  # The first document's only gold is filtered out of the first place.
  assert weighed['baseline'] == pytest.approx(1 / (1 + 2 + 4))
  assert weighed['value'] == pytest.approx(4 / (1 + 2 + 4))
