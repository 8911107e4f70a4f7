"""The file of a sweep is read, and checked before anything starts."""

import dataclasses
import runpy

import pytest

from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.sweep.config import Grid, Listed, MedianPruning, Range, Sweep, Tpe
from xjax.sweep.sweep_check import check_sweep, metric_of
from xjax.sweep.sweep_file import read_sweep, write_config
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer_config import AdamW
from xjax.train.train_config import NoTrain

UNITS = {'model.encoder.units': (8, 16)}


def test_takes_what_can_work():
  space = {**UNITS, 'train.learning_rate': Range(1e-4, 1e-2, log=True)}
  check_sweep(Sweep(Tpe(space, 4), MedianPruning()), Config(), 5)
  check_sweep(Sweep(Grid({'seed': (1, 2)}), metric='few/nDCG@3'), Config(), 1)
  wide = {f'train.{name}': tuple(range(1, 20)) for name in ('steps', 'keep')}
  wide['train.log_every'] = (1, 2, 3)
  check_sweep(Sweep(Tpe(wide, 4)), Config(), 1)
  bare = Config(model=ExactMatchModel(), train=NoTrain())
  check_sweep(Sweep(Listed(({},)), metric='all/P@1'), bare, 1)


def test_compares_by_the_metric_named_or_that_of_training():
  assert metric_of(Sweep(Grid(UNITS)), Config()) == 'all/RP@5'
  assert metric_of(Sweep(Grid(UNITS), metric='few/P@1'), Config()) == 'few/P@1'


@pytest.mark.parametrize(
  'search, message',
  [
    ({'grid': 1}, 'must be Grid, Listed or Tpe'),
    (Grid({}), 'must have at least one field'),
    (Grid({'train.learning_rate': Range(0.1, 0.2)}), 'not a Range'),
    (Grid({'train.steps': 5}), 'must be a tuple of values, or a Range'),
    (Grid({'train.steps': ()}), 'one or more'),
    (Grid({'train.steps': (5, 5)}), 'different values'),
    (
      Grid({'train.stepps': (5, 6)}),
      'train.stepps=5 is not possible: .*did you mean steps',
    ),
    (Grid({'train.steps': (5, 0)}), 'train.steps=0.*at least 1'),
    (Grid({'train.steps': (5, 'x')}), "expected <class 'int'>, got 'x'"),
    (Grid({'seed,train.steps': (1,), 'seed': (2,)}), 'seed is set twice'),
    (Grid({'train.warmup': (1, 50), 'train.steps': (9,)}), 'at most'),
    (Tpe({'train.steps': Range(0, 5)}, 3), 'train.steps=0.*at least 1'),
    (Tpe({'train.steps': Range(1, 5.5)}, 3), 'got 5.5'),
    (Tpe({'train.eps': Range(0, 1, log=True)}, 3), 'above 0 and below'),
    (Tpe({'train.eps': Range(0.2, 0.1)}, 3), 'low must be below high'),
    (Tpe(UNITS, 0), 'n_trials=0'),
    (Tpe(UNITS, 1, seed=-1), 'search.seed'),
    (Listed(()), 'must have at least one trial'),
    (Listed(({'seed': 1}, {'train.nope': 1})), 'train.nope'),
  ],
)
def test_refuses_before_anything_starts(search, message):
  with pytest.raises(ConfigError, match=message):
    check_sweep(Sweep(search), Config(), 1)


@pytest.mark.parametrize(
  'changed, seeds, message',
  [
    ({'metric': 'all'}, 1, r'get_sweep\(\).metric='),
    ({'metric': 'all/RP@7'}, 1, 'its k must be in'),
    ({'pruning': 3}, 1, 'pruning=3'),
    ({'pruning': MedianPruning(startup_trials=-1)}, 1, 'at least 0'),
    ({'search': Grid({'seed': (1, 2)})}, 5, '--seeds=5'),
  ],
)
def test_refuses_what_else_is_wrong(changed, seeds, message):
  sweep = dataclasses.replace(Sweep(Grid(UNITS)), **changed)
  with pytest.raises(ConfigError, match=message):
    check_sweep(sweep, Config(), seeds)


def test_a_config_file_makes_the_same_config(tmp_path):
  config = Config(
    seed=3, train=NeuralTrain(learning_rate=0.1 + 0.2, clip_norm=1e-17)
  )
  config = dataclasses.replace(
    config,
    train=dataclasses.replace(config.train, optimizer=AdamW()),
    data=dataclasses.replace(config.data, zones=('a', "it's"), labels='é"'),
  )
  write_config(tmp_path / 'best.py', config, ['One line', '', 'another'])
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


@pytest.mark.parametrize(
  'source, message',
  [
    ('x = 1', r'has no get_sweep\(\)'),
    ('def get_sweep():\n  return {}[3]', 'KeyError: 3'),
    ('def get_sweep(', 'SyntaxError'),
    ('def get_sweep():\n  3', 'must return a Sweep, not NoneType'),
  ],
)
def test_says_what_is_wrong_with_a_file(tmp_path, source, message):
  (tmp_path / 'a.py').write_text(source)
  with pytest.raises(ConfigError, match=message):
    read_sweep(str(tmp_path / 'a.py'))
