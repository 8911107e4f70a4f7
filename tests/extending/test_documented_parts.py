"""The parts of docs/extending.md, each in a file outside xjax."""

import dataclasses
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from xjax.config.json import load_config
from xjax.config.run import Config, shrink
from xjax.core.errors import ConfigError
from xjax.run.fit import fit

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / 'docs' / 'extending.md').read_text()
FILES = dict(re.findall(r'```python\n# (\w+)\.py\n(.*?)```', PAGE, re.S))
PARTS = {
  'my_encoder': 'GatedConfig',
  'my_pooling': 'MaxConfig',
  'my_head': 'CosineConfig',
  'my_loss': 'LogisticConfig',
  'my_format': 'CsvData',
  'my_optimizer': 'Lion',
}
METRICS = {'my_metrics': 'MRR@5', 'my_label_metrics': 'macro-Jaccard@5'}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """The files of the page, importable from here and by processes."""
  folder = tmp_path_factory.mktemp('mine')
  for name, source in FILES.items():
    (folder / f'{name}.py').write_text(source)
  for split, n in {'train': 12, 'dev': 6}.items():
    rows = (f'{split}{i},word{i % 4} here,label{i % 4}\n' for i in range(n))
    (folder / f'{split}.csv').write_text(''.join(rows))
  sys.path.insert(0, str(folder))
  yield folder
  sys.path.remove(str(folder))


def part(name):
  return getattr(importlib.import_module(name), PARTS[name])()


@pytest.fixture(scope='module')
def trained(folder, devices):
  """The workdir of two steps with all parts of the page at once."""
  small = shrink(Config())
  model = dataclasses.replace(
    small.model,
    encoder=part('my_encoder').tiny(),
    pooling=part('my_pooling'),
    head=part('my_head').tiny(),
  )
  data = dataclasses.replace(
    part('my_format'), dir=str(folder), tokens=small.data.tokens
  )
  train = dataclasses.replace(
    small.train, loss=part('my_loss'), optimizer=part('my_optimizer')
  )
  for name in METRICS:
    importlib.import_module(name)
  train.best_metric = 'all/MRR@5'
  config = dataclasses.replace(small, model=model, data=data, train=train)
  with devices(1):
    return fit(config, folder / 'run')


def test_the_page_has_every_part_in_forty_lines():
  assert FILES.keys() == PARTS.keys() | METRICS.keys()
  assert all(source.count('\n') <= 40 for source in FILES.values())


def test_they_train_and_are_saved(trained):
  assert trained.steps == 2
  saved = json.loads((trained.workdir / 'config.json').read_text())
  assert saved['model']['encoder'] == {'kind': 'GatedConfig', 'units': 8}
  assert saved['train']['optimizer']['kind'] == 'Lion'
  assert saved['data']['kind'] == 'CsvData'
  assert load_config(trained.workdir / 'config.json').data.dir
  for metric in METRICS.values():
    assert metric in trained.metrics['dev']['xjax']['all']


def test_a_field_out_of_bounds_is_named(folder, trained):
  config = load_config(trained.workdir / 'config.json')
  config.model.encoder.units = 0
  with pytest.raises(ConfigError, match='config.model.encoder.units=0: must'):
    fit(config, folder / 'other')


def start(folder, main, *arguments):
  """A process of a main, in which nothing of the page is imported yet."""
  imports = [f'--import={name}' for name in (*PARTS, *METRICS)]
  return subprocess.run(
    [sys.executable, '-m', f'experiments.{main}', *imports, *arguments],
    cwd=ROOT,
    env=os.environ | {'PYTHONPATH': f'{folder}:{ROOT}'},
    capture_output=True,
    text=True,
    timeout=300,
  )


def test_they_are_loaded_and_predict_in_a_fresh_process(folder, trained):
  source, output = folder / 'docs.jsonl', folder / 'X.jsonl'
  source.write_text('{"id": "a", "text": "word1", "labels": ["label1"]}\n')
  run = ('--workdir', str(trained.workdir))
  done = start(
    folder, 'predict', *run, f'--input={source}', f'--output={output}'
  )
  assert done.returncode == 0, done.stderr
  (line,) = output.read_text().splitlines()
  assert {label['id'] for label in json.loads(line)['labels']} == {
    f'label{i}' for i in range(4)
  }
  judged = json.loads((folder / 'X.metrics.json').read_text())
  assert 'MRR@5' in judged['xjax']['all']


def test_they_are_judged_in_a_fresh_process(folder, trained):
  done = start(
    folder, 'evaluate', f'--workdir={trained.workdir}', '--split=dev'
  )
  assert done.returncode == 0, done.stderr
  file = trained.workdir / 'eval' / 'dev' / 'metrics.json'
  assert 'macro-Jaccard@5' in json.loads(file.read_text())['xjax']['all']


def test_without_their_module_they_are_asked_for(folder, trained):
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'experiments.predict',
      f'--workdir={trained.workdir}',
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    input='{"text": "a"}',
    timeout=300,
  )
  assert done.returncode == 1
  assert '--import=MODULE' in done.stderr
  assert 'Traceback' not in done.stderr
