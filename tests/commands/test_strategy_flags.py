"""--strategy of xjax predict and .evaluate, and what goes with it."""

import dataclasses
import json

import pytest

from tests.fixtures.shrink import shrink
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.run.fit import fit
from xjax.train.train_config import NoTrain


@pytest.fixture(scope='module')
def workdir(devices, tmp_path_factory):
  """A run of exact match: nothing is compiled for it."""
  small = shrink(Config(model=ExactMatchModel(), train=NoTrain()))
  data = dataclasses.replace(small.data, n_train=60, n_dev=30)
  with devices(1):
    folder = tmp_path_factory.mktemp('strategies') / 'run'
    return fit(dataclasses.replace(small, data=data), folder).workdir


def test_evaluate_prints_coverage_and_says_where(run_main, workdir):
  done = run_main(
    *('evaluate', f'--workdir={workdir}', '--strategy=coverage'),
    *('--beta=0.25', '--strategy_seed=3'),
  )
  folder = workdir / 'eval' / 'dev.coverage'
  assert done.stdout.splitlines()[-1] == str(folder)
  rows = {line.split()[0] for line in done.stdout.splitlines() if line}
  assert {'coverage@5', 'PSP@5', 'P@1'} <= rows and 'P@10' not in rows
  assert 'chosen by coverage(k=5, beta=0.25, seed=3)' in done.stderr
  name = f'{workdir.name}.coverage'
  both = run_main(
    *('compare', workdir, folder, '--metrics=P@1,coverage@5'),
    *('--iterations=20', '--replicates=20', '--by_frequency=false'),
  )
  assert name in both.stdout


def test_predict_tells_as_many_labels_as_are_chosen(run_main, workdir):
  lines = (workdir / 'labels.jsonl').read_text().splitlines()
  names = [json.loads(line)['name'] for line in lines]
  text = json.dumps({'text': ' and '.join(names[:8])})
  for flag, n in (('--k=4', 4), ('--strategy_k=2', 2)):
    done = run_main(
      *('predict', f'--workdir={workdir}', '--strategy=coverage', flag),
      stdin=f'{text}\n{{"text": "nothing"}}\n',
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(row['labels']) for row in rows] == [n, 0]
