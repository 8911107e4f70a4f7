"""The folder of a sweep, and the runs that it has."""

import dataclasses
import json
import os
import re
import runpy
import shlex

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


@pytest.mark.parametrize(
  'pid', [pytest.param(os.getpid(), id='of a process'), 2**22 + 1]
)
def test_the_next_start_removes_what_a_killed_sweep_left(pid, tmp_path):
  folder, dead = SweepFolder.at(tmp_path), f'xjax-{pid}-abcdefgh.tmp'
  removed = '.sweep.json', '.sweep.db', '.best.py', 'configs/.0000.py'
  # Other machines may train in the folders of trials.
  kept = '.mine', '.sweep.json.mine.tmp', 'trials/0000/.labels.jsonl'
  for name in (*removed, *kept):
    path = tmp_path / (name if 'mine.tmp' in name else f'{name}.{dead}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  with folder.lock():
    files = {
      p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob('*.tmp')
    }
    assert files == {
      f'.mine.{dead}',
      '.sweep.json.mine.tmp',
      f'trials/0000/.labels.jsonl.{dead}',
    }


OTHERS = {
  'config.data.dir: "a" -> "b"': {'data.dir': 'b'},
  'config.data.tokens.dir: "a" -> "b"': {'data.tokens.dir': 'b'},
  'config.model.embedding.vectors: "a" -> "b"': {
    'model.embedding.vectors': 'b'
  },
  'config.model.encoder.folder: "a" -> "b"': {'model.encoder.folder': 'b'},
  '[8, 16] -> [16, 8]': {},  # the order of values matters
}


@pytest.mark.parametrize('shown', OTHERS)
def test_all_trials_read_the_same_in_one_order(shown, tmp_path):
  config = Config(
    data=JsonlData(dir='a', tokens=FeatureFilesConfig(dir='a')),
    model=NeuralModel(EmbeddingConfig(vectors='a'), BertConfig(folder='a')),
  )
  folder = SweepFolder.at(tmp_path / 'sweep')
  with folder.lock():
    folder.open(Sweep(Grid(UNITS)), config, 1)
  changed = OTHERS[shown]
  units = UNITS if changed else {'model.encoder.units': (16, 8)}
  with pytest.raises(ConfigError, match=re.escape(shown)):
    folder.open(Sweep(Grid(units)), override(config, changed), 1)


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


def test_prints_a_command_for_every_run(session_of, stand_in):
  session = session_of([{'train.learning_rate': 0.25}, {'seed': 4}])
  lines = list(session.commands())
  assert len(lines) == 2
  for number, line in enumerate(lines):
    *command, config, workdir = shlex.split(line)
    assert tuple(command) == stand_in
    place = session.folder.place(number, None)
    assert workdir == f'--workdir={place.workdir}'
    made = runpy.run_path(config.removeprefix('--config='))['get_config']()
    assert (
      made
      == session.runs(number, session.sweep.search.trials[number])[0].config
    )
  assert (made.seed, made.train.learning_rate) == (4, 1e-3)


def test_each_seed_has_a_run(session_of):
  session = session_of([{}], seeds=3, seed=2)
  assert len(list(session.commands())) == 3
  assert [run.config.seed for run in session.runs(0, {})] == [2, 3, 4]


def test_cannot_tell_what_tpe_will_choose(session_of):
  space = {'model.encoder.units': (8, 16)}
  session = session_of(Sweep(Tpe(space, 2)))
  with pytest.raises(ConfigError, match='no commands to print beforehand'):
    list(session.commands())
  assert not session.folder.path.exists()


def test_a_sweep_that_is_refused_leaves_nothing(session_of):
  session = session_of([{'train.nope': 1}])
  with pytest.raises(ConfigError, match=r'train\.nope'):
    with session.start():
      pass
  assert not session.folder.path.exists()
