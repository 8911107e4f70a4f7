"""The comparison from the command line: files, messages, exit codes."""

from collections.abc import Callable
import functools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from xjax.core.types import Ragged, ScoreKind
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEW = '--iterations=50', '--replicates=20', '--metrics=P@1,macro-F1@1'


@pytest.fixture
def run(run_main) -> Callable:
  return functools.partial(run_main, 'compare')


@pytest.fixture(scope='module')
def files(tmp_path_factory) -> list[pathlib.Path]:
  """Predictions of two systems."""
  folder = tmp_path_factory.mktemp('compare')
  scores = np.tile(np.array([3, 1, -1], np.float32), (4, 1))
  for name, ids in (('one', [0, 1, 2]), ('two', [2, 1, 0])):
    Predictions(
      score_kind=ScoreKind.LOGIT,
      n_scored=3,
      n_train=9,
      doc_ids=tuple('abcd'),
      labels=('x', 'y', 'z'),
      train_counts=np.array([9, 3, 0], np.int32),
      lists={
        'all': LabelLists(np.tile(np.array(ids, np.int32), (4, 1)), scores)
      },
      gold=Ragged.of([[0], [0, 1], [2], []]),
    ).save(folder / f'{name}.npz')
  return [folder / 'one.npz', folder / 'two.npz']


def in_a_process(*arguments):
  command = [sys.executable, '-m', 'xjax', 'compare', *map(str, arguments)]
  return subprocess.run(
    command, cwd=ROOT, capture_output=True, text=True, timeout=300
  )


@pytest.mark.thorough
def test_two_runs_of_the_program_agree(run, files, tmp_path):
  outs = [tmp_path / 'x', tmp_path / 'y']
  for out, call in zip(outs, (run, in_a_process), strict=True):
    done = call(*files, *FEW, f'--output={out}', '--names=A,B')
    assert done.returncode == 0, done.stderr
    assert done.stderr.removeprefix('xjax compare: starting\n') == ''
    assert done.stdout.startswith('baseline A: 4 documents, 3 labels\n')
    assert done.stdout.endswith(f'\n{out}\n')
  texts = [(out / 'comparison.json').read_bytes() for out in outs]
  assert texts[0] == texts[1]
  first, *_ = json.loads(texts[0])['differences']
  assert (first['metric'], first['system']) == ('P@1', 'B')
  assert first['difference'] == pytest.approx(1 / 3 - 2 / 3)


def test_slices_filter_and_weights(run, files, tmp_path):
  (tmp_path / 'inv.txt').write_text('1\n2\n4\n')
  (tmp_path / 'pairs.txt').write_text('0 0\n')
  (tmp_path / 'order.txt').write_text('x\ny\nz\n')
  few = '--iterations=50', '--replicates=20', '--metrics=P@1,PSP@1'
  beside = f'--inv_prop={tmp_path}/inv.txt', f'--filter={tmp_path}/pairs.txt'
  slices = (
    *('--by_frequency', '--slices=bin:1-9'),
    f'--label_order={tmp_path}/order.txt',
  )
  done = run(*files, *few, *beside, *slices, f'--output={tmp_path}')
  assert done.returncode == 0, done.stderr
  assert 'label weights are from --inv_prop' in done.stdout
  rows = json.loads((tmp_path / 'comparison.json').read_text())['differences']
  names = list(dict.fromkeys(row['slice'] for row in rows))
  assert names == ['all', 'frequent', 'few', 'zero', 'bin:1-9']
  weighed = next(row for row in rows if row['metric'] == 'PSP@1')
  # The first document's only gold is filtered out of the first place.
  assert weighed['baseline'] == pytest.approx(1 / (1 + 2 + 4))
  assert weighed['value'] == pytest.approx(4 / (1 + 2 + 4))


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (('{one}',), 'give two systems or more'),
    (('{one}', 'gone.npz'), 'gone.npz: neither a workdir'),
    (('{one}', '{two}', '--metrics=Q'), "'Q' is unknown"),
    (('{one}', '{two}', '--names=A'), '--names: 1 names for 2 systems'),
    (('{one}', '{one}'), 'two systems are called'),
    (('{one}', '{two}', '--propensity=1'), 'two numbers'),
    (('{one}', '{two}', '--slices=few'), "'few'"),
    (
      ('{one}', '{two}', '--inv_prop=a', '--propensity=1,2'),
      'give only one of',
    ),
  ],
)
def test_mistakes_are_one_message(run, files, arguments, message):
  one, two = files
  done = run(*(a.format(one=one, two=two) for a in arguments))
  assert done.returncode == 1
  assert done.stderr.startswith('error: ') and message in done.stderr
