"""The files and the runs of a sweep."""

import dataclasses
import runpy
import shlex

import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.models.contract import Config
from xjax.sweep.config import Grid, MedianPruning, Sweep, Tpe
from xjax.sweep.session import SweepFolder, read_sweep, write_config_file
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer_config import AdamW

UNITS = {'model.encoder.units': (8, 16)}


def test_goes_on_with_the_same_sweep_alone(tmp_path):
  folder = SweepFolder.at(tmp_path / 'sweep')
  tpe = Sweep(Tpe(UNITS, n_trials=4))
  with folder.lock():
    folder.open(tpe, Config(), 2)
  folder.open(Sweep(Tpe(UNITS, n_trials=9)), Config(), 2)
  for sweep, config, seeds, shown in (
    (Sweep(Tpe(UNITS, 4, seed=1)), Config(), 2, 'seed=1'),
    (Sweep(Grid(UNITS)), Config(), 2, 'Grid('),
    (Sweep(Tpe(UNITS, 4), MedianPruning()), Config(), 2, 'MedianPruning('),
    (tpe, Config(seed=3), 2, 'config.seed: 0 -> 3'),
    (tpe, Config(), 5, 'seeds: 2 -> 5'),
    # A run may go on longer; the trials of a sweep are compared.
    (tpe, Config(train=NeuralTrain(steps=7)), 2, 'config.train.steps'),
    # The order of values matters.
    (Sweep(Tpe({'model.encoder.units': (16, 8)}, 4)), Config(), 2, '(16, 8)'),
  ):
    with pytest.raises(ConfigError, match='another sweep') as error:
      folder.open(sweep, config, seeds)
    assert shown in str(error.value)


def test_refuses_what_is_no_sweep(tmp_path):
  (tmp_path / 'config.json').write_text('{}')
  with pytest.raises(ConfigError, match='workdir of a run'):
    SweepFolder.at(tmp_path)
  folder = SweepFolder.at(tmp_path / 'sweep')
  with folder.lock():
    folder.sweep.write_text('{"config": {"nope": 1}}')
    with pytest.raises(DataError, match='not describe a sweep of xjax'):
      folder.open(Sweep(Grid(UNITS)), Config(), 1)


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


def test_cannot_tell_what_tpe_will_choose(session_of):
  space = {'model.encoder.units': (8, 16)}
  session = session_of(Sweep(Tpe(space, 2)))
  with pytest.raises(ConfigError, match='no commands to print beforehand'):
    list(session.commands())
  assert not session.folder.path.exists()


def test_a_config_file_makes_the_same_config(tmp_path):
  config = Config(
    seed=3, train=NeuralTrain(learning_rate=0.1 + 0.2, clip_norm=1e-17)
  )
  config = dataclasses.replace(
    config,
    train=dataclasses.replace(config.train, optimizer=AdamW()),
    data=dataclasses.replace(config.data, zones=('a', "it's"), labels='é"'),
  )
  write_config_file(tmp_path / 'best.py', config, ['One line', '', 'another'])
  text = (tmp_path / 'best.py').read_text()
  assert text.startswith('# One line\n#\n# another\n')
  made = runpy.run_path(str(tmp_path / 'best.py'))['get_config']
  assert made() == config
  assert made() is not made()


def test_reads_a_sweep_by_name(tmp_path):
  file = tmp_path / 'a.py'
  file.write_text(
    'from xjax.sweep.config import Grid, Sweep\n'
    'def get_sweep(name="x"):\n  return Sweep(Grid({name: (1,)}))\n'
  )
  assert read_sweep(str(file)) == Sweep(Grid({'x': (1,)}))
  assert read_sweep(f'{file}:seed') == Sweep(Grid({'seed': (1,)}))
  file.write_text('x = 1')
  with pytest.raises(ConfigError, match=r'has no function get_sweep\(\)'):
    read_sweep(str(file))
