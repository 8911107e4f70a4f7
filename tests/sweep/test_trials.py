"""The values of trials, the fields that they set, and what is refused."""

import dataclasses

import pytest

from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.sweep.config import Grid, Listed, MedianPruning, Range, Sweep, Tpe
from xjax.sweep.trials import (
  TrialStore,
  check_sweep,
  count_trials,
  override,
  with_trials,
)
from xjax.train.neural_train import Schedule
from xjax.train.optimizer_config import AdamW
from xjax.train.train_config import NoTrain

SPACE = {
  'model.encoder.units': (8, 16),
  'data.zones': (('header',), ('header', 'recitals')),
}


def drawn(path, search, number=None, score=lambda values: 0.0):
  """The values of trials, each complete before the next."""
  store, all_values = TrialStore(path, search, None), []
  while len(store) < (number or count_trials(search)):
    trial = store.begin()
    all_values.append(store.values(trial.number))
    store.complete(trial, [score(all_values[-1])])
  return all_values


def test_a_grid_is_every_combination(tmp_path):
  grid = Grid(SPACE)
  rows = drawn(tmp_path / 'a.db', grid)
  assert count_trials(grid) == len(rows) == 4
  assert [row['model.encoder.units'] for row in rows] == [8, 8, 16, 16]
  assert [row['data.zones'] for row in rows[:2]] == list(SPACE['data.zones'])


def test_a_list_is_what_it_lists(tmp_path):
  trials = (
    {'train.learning_rate': 0.1},
    {'train': {'steps': 3, 'judge_every': 1}, 'seed': 2},
    *({}, {}),
    {'train.learning_rate': 0.2},
  )
  rows = drawn(tmp_path / 'a.db', Listed(trials))
  assert rows == list(trials)


def test_tpe_draws_from_the_space_and_follows_from_its_seed(tmp_path):
  space = {
    **SPACE,
    'train.learning_rate': Range(1e-4, 1e-1, log=True),
    'model.encoder.layers': Range(1, 3),
  }

  def rate(values):
    return values['train.learning_rate']

  def rows(name, seed, stop=5):
    search = Tpe(space, n_trials=5, seed=seed, startup_trials=2)
    return drawn(tmp_path / f'{name}.db', search, stop, rate)

  first = rows('first', 0)
  for row in first:
    assert row['data.zones'] in SPACE['data.zones']
    assert 1e-4 <= row['train.learning_rate'] <= 1e-1
    assert type(row['model.encoder.layers']) is int
  assert len({row['train.learning_rate'] for row in first}) == 5
  assert rows('other', 1, 2) != first[:2]
  # Opened anew after each: what is drawn depends on the trials alone.
  again = [row for stop in range(1, 6) for row in rows('again', 0, stop)]
  assert again == first


def test_more_trials_for_tpe_alone():
  tpe = Sweep(Tpe(SPACE, n_trials=2))
  assert with_trials(tpe, None) is tpe
  assert count_trials(with_trials(tpe, 5).search) == 5
  with pytest.raises(ConfigError, match='--n_trials=5'):
    with_trials(Sweep(Grid(SPACE)), 5)


def test_tpe_draws_nothing_twice(tmp_path):
  space = {'model.encoder.units': (8, 16, 32), 'model.encoder.layers': (1, 2)}
  rows = drawn(tmp_path / 'a.db', Tpe(space, n_trials=6, startup_trials=1))
  assert len({tuple(row.values()) for row in rows}) == 6


def test_sets_fields_and_leaves_the_rest():
  base = Config()
  new = override(
    base,
    {
      'model.encoder.units, model.encoder.layers': 2,
      'train.learning_rate': 1,
      'train.optimizer': AdamW(weight_decay=0.1),
      'data.zones': ('header',),
    },
  )
  assert (new.model.encoder.units, new.model.encoder.layers) == (2, 2)
  assert type(new.train.learning_rate) is float
  assert new.train.optimizer == AdamW(weight_decay=0.1)
  assert new.data.zones == ('header',)
  assert base == Config()
  assert override(new, {}) == new and override(base, {}) == base


def test_a_dict_sets_fields_below_and_a_part_takes_a_place():
  new = override(Config(), {'train': {'steps': 7, 'schedule': 'cosine'}})
  assert new.train.steps == 7 and new.train.schedule is Schedule.COSINE
  assert new.train.batch_size == Config().train.batch_size
  new = override(Config(), {'model.encoder': CNNConfig(filters=3)})
  assert new.model.encoder == CNNConfig(filters=3)
  same = override(Config(), {'model.encoder': BiGRUConfig(units=9)})
  assert same.model.encoder == BiGRUConfig(units=9)


@pytest.mark.parametrize(
  'values, message',
  [
    ({'train.step': 1}, 'did you mean steps'),
    ({'train.steps.more': 1}, 'has no fields of its own'),
    ({'model.encoder': 3}, r'one by one.*\(got 3\)'),
    ({'train.steps': 1.5}, r'train\.steps: expected'),
    ({'train': {'stepps': 1}}, 'stepps'),
    ({'train.schedule': 'square'}, "'square' must be one of"),
    ({'train.optimizer': {'kind': 'sgd'}}, "unknown kind 'sgd'"),
  ],
)
def test_says_what_is_wrong(values, message):
  with pytest.raises(ConfigError, match=message):
    override(Config(), values)


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


@pytest.mark.parametrize(
  'search, message',
  [
    (Grid({'train.learning_rate': Range(0.1, 0.2)}), 'not a Range'),
    (Grid({'train.steps': 5}), 'train.steps.*=5'),
    (Grid({'train.steps': ()}), 'one or more'),
    (
      Grid({'train.stepps': (5, 6)}),
      'train.stepps=5 is not possible: .*did you mean steps',
    ),
    (Grid({'train.steps': (5, 0)}), 'train.steps=0.*at least 1'),
    (Grid({'train.steps': (5, 'x')}), "expected <class 'int'>, got 'x'"),
    (Grid({'train.warmup': (1, 50), 'train.steps': (9,)}), 'at most'),
    (Tpe({'train.steps': Range(0, 5)}, 3), 'train.steps=0.*at least 1'),
    (Tpe({'train.steps': Range(1, 5.5)}, 3), 'got 5.5'),
    (Tpe({'train.eps': Range(0.2, 0.1)}, 3), 'space.*train.eps.*Range'),
    (Tpe(UNITS, 0), 'has no trials'),
    (Listed(()), 'has no trials'),
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
    ({'search': Grid({'seed': (1, 2)})}, 5, '--seeds=5'),
  ],
)
def test_refuses_what_else_is_wrong(changed, seeds, message):
  sweep = dataclasses.replace(Sweep(Grid(UNITS)), **changed)
  with pytest.raises(ConfigError, match=message):
    check_sweep(sweep, Config(), seeds)
