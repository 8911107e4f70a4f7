import dataclasses

import pytest

from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.sweep.config import Grid, Listed, MedianPruning, Range, Sweep, Tpe
from xjax.sweep.sweep_check import check_sweep, metric_of
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
