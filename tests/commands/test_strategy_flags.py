"""--strategy of xjax predict and .evaluate, and what goes with it."""

import dataclasses
import json

import pytest

from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.shrink import shrink
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
  assert done.returncode == 0, done.stderr
  folder = workdir / 'eval' / 'dev.coverage'
  assert done.stdout.splitlines()[-1] == str(folder)
  rows = {line.split()[0] for line in done.stdout.splitlines() if line}
  assert {'coverage@5', 'PSP@5', 'P@1'} <= rows and 'P@10' not in rows
  assert 'chosen by coverage(k=5, beta=0.25, seed=3): ' in done.stderr
  facts = json.loads((folder / 'strategy.json').read_text())
  assert (facts['k'], facts['beta'], facts['seed']) == (5, 0.25, 3)
  name = f'{workdir.name}.coverage'
  both = run_main(
    *('compare', workdir, folder, '--metrics=P@1,coverage@5'),
    *('--iterations=20', '--replicates=20', '--by_frequency=false'),
  )
  assert both.returncode == 0, both.stderr
  assert name in both.stdout


def test_predict_tells_as_many_labels_as_are_chosen(run_main, workdir):
  lines = (workdir / 'labels.jsonl').read_text().splitlines()
  names = [json.loads(line)['name'] for line in lines]
  text = json.dumps({'text': ' and '.join(names[:8])})
  for flag, n in (('--k=4', 4), ('--strategy_k=2', 2)):
    done = run_main(
      *('predict', f'--workdir={workdir}', '--strategy=bounded_random', flag),
      stdin=f'{text}\n{{"text": "nothing"}}\n',
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(row['labels']) for row in rows] == [n, 0]


@pytest.mark.parametrize('main', ['predict', 'evaluate'])
@pytest.mark.parametrize(
  ('flags', 'says'),
  [
    ('--strategy_k=3', '--strategy_k works only with --strategy'),
    ('--beta=1', '--beta works only with --strategy=coverage'),
    (
      '--strategy=propensity --beta=1',
      '--beta works only with --strategy=coverage',
    ),
    (
      '--strategy=cost --costs=x --strategy_seed=1',
      '--strategy_seed works only with --strategy=coverage or bounded_random',
    ),
    (
      '--strategy=coverage --costs=x',
      '--costs works only with --strategy=cost',
    ),
    ('--strategy=cost', '--strategy=cost needs --costs=FILE'),
    (
      '--strategy=coverage --strategy_k=0',
      '--strategy_k=0: must be at least 1',
    ),
    (
      '--strategy=coverage --beta=-1',
      '--beta=-1.0: must be a number of at least 0',
    ),
    ('--strategy=best', 'should be one of <standard|propensity|coverage|'),
  ],
)
def test_mistakes_are_told(run_main, main, flags, says):
  done = run_main(main, '--workdir=x', *flags.split())
  assert done.returncode == 1
  assert done.stderr.startswith('error: ') and says in done.stderr
  assert not done.stdout


def test_files_of_predictions_are_chosen_already(run_main):
  done = run_main('evaluate', '--predictions=x.npz', '--strategy=standard')
  assert done.stderr == 'error: --strategy works only with --workdir\n'
