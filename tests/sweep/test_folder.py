import dataclasses
import json
import os

import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.data.config import FeatureFilesConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.sweep.config import Grid, MedianPruning, Sweep, Tpe
from xjax.sweep.folder import SweepFolder
from xjax.sweep.overrides import override
from xjax.train.neural_train import NeuralTrain

UNITS = {'model.encoder.units': (8, 16)}


def test_goes_on_with_the_same_sweep_alone(tmp_path):
  folder = SweepFolder.at(tmp_path / 'sweep')
  tpe = Sweep(Tpe(UNITS, n_trials=4))
  with folder.lock():
    folder.open(tpe, Config(), 2)
  more = Sweep(Tpe(UNITS, n_trials=9))
  moved = Config(train=NeuralTrain(log_every=7))
  folder.open(more, moved, 2)
  kept = json.loads(folder.sweep.read_text())
  assert kept['config']['train']['log_every'] == 7
  for sweep, config, seeds, shown in (
    (Sweep(Tpe(UNITS, 4, seed=1)), Config(), 2, 'sweep.search.seed: 0 -> 1'),
    (Sweep(Grid(UNITS)), Config(), 2, 'search.kind: "Tpe" -> "Grid"'),
    (Sweep(Tpe(UNITS, 4), MedianPruning()), Config(), 2, 'sweep.pruning.kind'),
    (tpe, Config(seed=3), 2, 'config.seed: 0 -> 3'),
    (tpe, Config(), 5, 'seeds: 2 -> 5'),
    # A run may go on longer; the trials of a sweep are compared.
    (tpe, Config(train=NeuralTrain(steps=7)), 2, 'config.train.steps'),
  ):
    with pytest.raises(ConfigError, match='another sweep') as error:
      folder.open(sweep, config, seeds)
    assert shown in str(error.value)


def test_the_next_start_removes_what_a_killed_sweep_left(tmp_path):
  folder = SweepFolder.at(tmp_path)
  with folder.lock():
    pass
  dead = f'xjax-{os.getpid()}-abcdefgh.tmp'
  (tmp_path / f'.sweep.json.{dead}').touch()
  (tmp_path / 'configs' / f'.0000.py.{dead}').touch()
  kept = [
    tmp_path / '.sweep.json.mine.tmp',
    folder.place(0, None).workdir / f'.metrics.json.{dead}',
  ]
  for path in kept:
    path.parent.mkdir(exist_ok=True)
    path.touch()
  with folder.lock():
    files = {p for p in tmp_path.rglob('*') if p.is_file()}
    assert files == {*kept, tmp_path / '.xjax.lock'}


@pytest.mark.parametrize(
  'path',
  [
    'data.dir',
    'data.tokens.dir',
    'model.embedding.vectors',
    'model.encoder.folder',
  ],
)
def test_all_trials_read_the_same(path, tmp_path):
  config = Config(
    data=JsonlData(dir='a', tokens=FeatureFilesConfig(dir='a')),
    model=NeuralModel(EmbeddingConfig(vectors='a'), BertConfig(folder='a')),
  )
  folder = SweepFolder.at(tmp_path / 'sweep')
  with folder.lock():
    folder.open(Sweep(Grid(UNITS)), config, 1)
  other = override(config, {path: 'b'})
  with pytest.raises(ConfigError, match=f'config.{path}: "a" -> "b"'):
    folder.open(Sweep(Grid(UNITS)), other, 1)


def test_order_of_values_matters_and_is_kept(tmp_path):
  folder = SweepFolder.at(tmp_path / 'sweep')
  with folder.lock():
    folder.open(Sweep(Grid(UNITS)), Config(), 1)
  other = Sweep(Grid({'model.encoder.units': (16, 8)}))
  with pytest.raises(ConfigError, match=r'\[8, 16\] -> \[16, 8\]'):
    folder.open(other, Config(), 1)


def test_keeps_others_out(tmp_path):
  folder = SweepFolder.at(tmp_path / 'sweep')
  with folder.lock():
    with pytest.raises(ConfigError, match='another process is running'):
      with folder.lock():
        pass
  with folder.lock():
    pass


def test_refuses_what_is_no_sweep(tmp_path):
  (tmp_path / 'config.json').write_text('{}')
  with pytest.raises(ConfigError, match='workdir of a run'):
    SweepFolder.at(tmp_path)
  folder = SweepFolder.at(tmp_path / 'sweep')
  with folder.lock():
    folder.store.touch()
    with pytest.raises(DataError, match=r'no sweep\.json'):
      folder.open(Sweep(Grid(UNITS)), Config(), 1)
    folder.sweep.write_text('{"config": {"nope": 1}}')
    with pytest.raises(DataError, match='not describe a sweep of xjax'):
      folder.open(Sweep(Grid(UNITS)), Config(), 1)


def test_places_differ_by_trial_and_seed(tmp_path):
  folder = SweepFolder.at(tmp_path)
  places = [folder.place(3, seed) for seed in (None, 0, 1)]
  places.append(folder.place(4, None))
  paths = [path for p in places for path in dataclasses.astuple(p)]
  assert len(set(paths)) == 16
  assert places[0].workdir == tmp_path / 'trials' / '0003'


def test_what_a_killed_sweep_left_is_removed(tmp_path):
  folder = SweepFolder.at(tmp_path)
  dead = f'xjax-{2**22 + 1}-a.tmp'  # no process has such an id
  names = '.sweep.json', '.sweep.db', '.best.py', 'configs/.0000.py'
  for name in (*names, '.mine', 'trials/0000/.labels.jsonl'):
    path = tmp_path / f'{name}.{dead}'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  with folder.lock():
    left = [path.name for path in tmp_path.rglob(f'*.{dead}')]
    # Other machines may train in the folders of trials.
    assert sorted(left) == [f'.labels.jsonl.{dead}', f'.mine.{dead}']
