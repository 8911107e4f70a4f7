"""The kind of model of docs/extending.md, a file outside xjax.

What every kind promises is tested in tests/models/test_every_kind.py.
Every command is a process of its own: a class stays among the kinds for as long
as the process that imported it.
"""

import json

import pytest

from tests.extending.page import FILES, start
from xjax.data.formats.synthetic import SyntheticData, make_synthetic

NAMES = 'my_rocchio', 'my_rocchio_config', 'my_stack'
SMALL = (
  '--config.data.n_train=150',
  '--config.data.n_dev=24',
  '--config.data.n_test=0',
  '--config.data.n_labels=40',
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp('rocchio')
  for name in NAMES:
    (path / f'{name}.py').write_text(FILES[name])
  return path


def xjax(folder, main, *words):
  """What a command prints that must end well."""
  words = '-m', 'xjax', main, '--import=my_rocchio', *words
  done = start(folder, *words, cwd=folder)
  assert done.returncode == 0, done.stderr
  return done.stdout


def train(folder, name, *words, config='my_rocchio_config'):
  config = f'--config={config}.py', f'--workdir={name}'
  xjax(folder, 'train', *config, *SMALL, *words)
  return folder / name


@pytest.fixture(scope='module')
def run(folder):
  return train(folder, 'run')


@pytest.fixture(scope='module')
def text(run):
  """The text of a document whose labels the run finds."""
  _, splits = make_synthetic(SyntheticData(n_train=150, n_dev=24, n_labels=40))
  return ' '.join(splits['dev'][0].zones.values())


def test_it_trains_and_is_judged(run):
  saved = json.loads((run / 'config.json').read_text())
  assert saved['model'] == {'kind': 'RocchioModel', 'terms': 500}
  assert saved['train'] == {'kind': 'NoTrain'}
  metrics = json.loads((run / 'eval' / 'dev' / 'metrics.json').read_text())
  assert metrics['xjax']['all']['P@1'] > 0.7  # the frequent labels: below 0.3
  assert (run / 'calibration.json').exists()
  card = (run / 'README.md').read_text()
  assert 'xjax predict --import=my_rocchio --workdir=.' in card


@pytest.mark.thorough
def test_words_explain_its_labels(folder, run, text):
  (folder / 'docs.jsonl').write_text(json.dumps({'text': text}) + '\n')
  files = '--input=docs.jsonl', '--output=out.jsonl'
  xjax(folder, 'predict', f'--workdir={run}', *files, '--k=3', '--explain=2')
  (line,) = (folder / 'out.jsonl').read_text().splitlines()
  labels = json.loads(line)['labels']
  assert len(labels) == 3
  for label in labels:
    assert 1 <= len(label['why']) <= 2
    for word in label['why']:
      start_, end = word['at']
      assert text[start_:end] == word['word']
  assert (folder / 'out.html').exists()


@pytest.mark.thorough
def test_it_is_a_proposer_of_a_stack(folder, text):
  stack = train(folder, 'stack', config='my_stack')
  saved = json.loads((stack / 'config.json').read_text())
  rocchio, _ = saved['model']['proposers']
  assert rocchio['model']['kind'] == 'RocchioModel'
  assert (stack / 'stages' / 'rocchio' / 'model' / 'means.npz').exists()
  metrics = json.loads((stack / 'eval' / 'dev' / 'metrics.json').read_text())
  assert metrics['xjax']['all']['P@1'] > 0.7
  (folder / 'docs.jsonl').write_text(json.dumps({'text': text}) + '\n')
  files = f'--workdir={stack}', '--input=docs.jsonl', '--output=stacked.jsonl'
  xjax(folder, 'predict', *files, '--k=2', '--explain=2')
  (line,) = (folder / 'stacked.jsonl').read_text().splitlines()
  assert any(label['why'] for label in json.loads(line)['labels'])
