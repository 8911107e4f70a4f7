"""The parts of docs/extending.md, each in a file outside xjax.

Every run is a process of its own: a class stays among the kinds of parts for as
long as the process that imported it.
"""

import json

import pytest

from tests.extending.page import FILES, start

PARTS = ('my_encoder my_pooling my_head my_loss my_format my_optimizer').split()
METRICS = {'my_metrics': 'MRR@5', 'my_label_metrics': 'macro-Jaccard@5'}
# test_model_kind.py runs these files.
KIND = 'my_rocchio', 'my_rocchio_config', 'my_stack'
CONFIG = """
import dataclasses
import os

from my_encoder import GatedConfig
from my_format import CsvData
from my_head import CosineConfig
from my_loss import LogisticConfig
from my_optimizer import Lion
from my_pooling import MaxConfig
from xjax.models.contract import Config
from tests.fixtures.shrink import shrink


def get_config() -> Config:
  small = shrink(Config())
  model = dataclasses.replace(
    small.model,
    encoder=GatedConfig(units=8),
    pooling=MaxConfig(),
    head=CosineConfig(chunk=8),
  )
  folder = os.path.dirname(__file__)
  data = CsvData(dir=folder, tokens=small.data.tokens)
  train = dataclasses.replace(
    small.train,
    loss=LogisticConfig(),
    optimizer=Lion(),
    best_metric='all/MRR@5',
  )
  return dataclasses.replace(small, model=model, data=data, train=train)
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """The files of the page, a config that has all its parts, and a corpus."""
  folder = tmp_path_factory.mktemp('mine')
  files = {**FILES, 'page_config': FILES['my_config'], 'my_config': CONFIG}
  for name, source in files.items():
    (folder / f'{name}.py').write_text(source)
  for split, n in {'train': 12, 'dev': 6}.items():
    rows = (
      f'{split}{i},a title,word{i % 4} here,label{i % 4}\n' for i in range(n)
    )
    (folder / f'{split}.csv').write_text(''.join(rows))
  return folder


def xjax(folder, main, *arguments, imports=(*PARTS, *METRICS)):
  flags = (f'--import={name}' for name in imports)
  return start(folder, '-m', 'xjax', main, *flags, *arguments)


@pytest.fixture(scope='module')
def workdir(folder):
  """Two steps with all parts of the page at once."""
  config = f'--config={folder / "my_config.py"}'
  done = xjax(folder, 'train', config, f'--workdir={folder / "run"}')
  assert done.returncode == 0, done.stderr
  (folder / 'printed.txt').write_text(done.stdout)
  return folder / 'run'


def test_the_page_has_every_part_in_forty_lines_and_a_model_in_sixty():
  assert FILES.keys() == {*PARTS, *METRICS, *KIND, 'my_config'}
  long = [x for x, source in FILES.items() if source.count('\n') > 40]
  assert long == ['my_rocchio'] and FILES[long[0]].count('\n') <= 60


@pytest.mark.thorough
def test_the_config_of_the_page_trains(folder):
  arguments = f'--config={folder / "page_config.py"}', '--config.train.steps=1'
  place = f'--config.data.dir={folder}', f'--workdir={folder / "page"}'
  done = xjax(folder, 'train', *arguments, *place, imports=())
  assert done.returncode == 0, done.stderr
  # Modules that the config imports itself are printed as well.
  own = '--import=my_format --import=my_encoder'
  assert f'xjax evaluate {own} --workdir=' in done.stdout


@pytest.mark.thorough
def test_they_train_and_are_saved(workdir):
  own = ' '.join(f'--import={name}' for name in (*PARTS, *METRICS))
  assert (
    f'xjax predict {own} --workdir='
    in (workdir.parent / 'printed.txt').read_text()
  )
  saved = json.loads((workdir / 'config.json').read_text())
  assert saved['train']['steps'] == 2
  assert saved['model']['encoder'] == {'kind': 'GatedConfig', 'units': 8}
  assert saved['model']['pooling'] == {'kind': 'MaxConfig'}
  assert saved['train']['optimizer']['kind'] == 'Lion'
  assert saved['data']['kind'] == 'CsvData'


@pytest.mark.thorough
def test_they_are_loaded_and_predict_in_a_fresh_process(folder, workdir):
  source, output = folder / 'docs.jsonl', folder / 'X.jsonl'
  record = {'id': 'a', 'title': 'b', 'body': 'word1', 'labels': ['label1']}
  source.write_text(f'{json.dumps(record)}\n')
  files = f'--input={source}', f'--output={output}'
  done = xjax(folder, 'predict', f'--workdir={workdir}', *files)
  assert done.returncode == 0, done.stderr
  (line,) = output.read_text().splitlines()
  found = {label['id'] for label in json.loads(line)['labels']}
  assert found == {f'label{i}' for i in range(4)}
  judged = json.loads((folder / 'X.metrics.json').read_text())
  assert 'MRR@5' in judged['xjax']['all']


@pytest.mark.thorough
def test_without_their_module_they_are_asked_for(folder, workdir):
  done = xjax(folder, 'predict', f'--workdir={workdir}', imports=())
  assert done.returncode == 1
  assert '--import=MODULE' in done.stderr
  assert 'Traceback' not in done.stderr
