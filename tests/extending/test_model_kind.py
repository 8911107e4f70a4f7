"""The kind of model of docs/extending.md, a file outside xjax.

Every command is a process of its own: a class stays among the kinds for as long
as the process that imported it.
"""

import json

import numpy as np
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
# Kills the process that writes the means, after it has written the features.
KILLER = """
import os
import signal

import my_rocchio

my_rocchio.write_npz = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""
SERVICE = """
import json
import sys

import my_rocchio
from xjax.report.page import served
from xjax.run.serve.service import Service

service = Service.load(sys.argv[1], served)
body = json.dumps({'documents': [sys.argv[2]], 'k': 3, 'explain': 2})
request = service.parse(body.encode(), 10)
asked = [(request, document) for document in request.documents]
print(service.answer(asked)[0])
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp('rocchio')
  files = {name: FILES[name] for name in NAMES}
  files['my_killer'] = KILLER
  for name, source in files.items():
    (path / f'{name}.py').write_text(source)
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


def dev_of(run):
  with np.load(run / 'eval' / 'dev' / 'predictions.npz') as file:
    return dict(file)


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
def test_a_killed_run_ends_where_an_uninterrupted_one_does(folder, run):
  words = '--config=my_rocchio_config.py', '--workdir=killed', *SMALL
  main = '-m', 'xjax', 'train', '--import=my_killer'
  done = start(folder, *main, *words, cwd=folder)
  assert done.returncode == -9
  killed = folder / 'killed'
  assert (killed / 'features' / 'tfidf.npz').exists()
  assert not (killed / 'model' / 'means.npz').exists()
  train(folder, 'killed')
  ours, theirs = dev_of(killed), dev_of(run)
  assert ours.keys() == theirs.keys()
  for name, array in ours.items():
    np.testing.assert_array_equal(array, theirs[name], name)


@pytest.mark.thorough
def test_it_is_compared_and_reported(folder, run):
  other = train(folder, 'other', '--config.model.terms=3')
  table = xjax(folder, 'compare', str(run), str(other), '--split=dev')
  assert 'P@5' in table
  page = folder / 'report.html'
  words = f'--output={page}', '--split=dev'
  xjax(folder, 'report', str(run), str(other), *words)
  assert 'model.terms' in page.read_text()


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
def test_it_is_served(folder, run, text):
  done = start(folder, '-c', SERVICE, str(run), text)
  assert done.returncode == 0, done.stderr
  answer = json.loads(done.stdout.splitlines()[-1])
  assert len(answer['labels']) == 3
  assert all(label['why'] for label in answer['labels'])


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
