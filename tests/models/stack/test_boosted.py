"""Boosted trees rank pairs, and are saved and loaded."""

import dataclasses

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.pair_features import NONE as NO_FEATURE
from xjax.models.stack.ranker import RankerPairs

NAMES = 'tree:score', 'knn:score', 'label:words'
pytestmark = pytest.mark.lightgbm
CONFIG = BoostedTrees(
  models=2, trees=10, patience=0, leaves=8, rate=0.3, least_pairs=5
)
RNG = np.random.default_rng(0)
PAIRS = RNG.normal(size=(2000, 3)).astype(np.float32)
PAIRS[RNG.random(PAIRS.shape) < 0.2] = np.nan
# A pair is gold if a proposer lists it with a positive score, or none lists it
# and its label has a long name.
FIRST, SECOND, THIRD = PAIRS.T
NONE = np.isnan(FIRST) & np.isnan(SECOND)
GOLD = (FIRST > 0) | (SECOND > 0) | (NONE & (THIRD > 0))


def data_of(features_XF=PAIRS, gold_X=GOLD, names=NAMES):
  fold_X = np.arange(len(gold_X)) % 3
  return RankerPairs(features_XF, gold_X, names, fold_X)


def fitted(config=CONFIG, seed=3, workers=1, between=lambda: None, data=None):
  return config.train(data or data_of(), seed, workers, between)


@pytest.fixture(scope='module')
def ranker():
  return fitted()


@pytest.fixture
def path(ranker, tmp_path):
  ranker.save(tmp_path / 'ranker.txt')
  return tmp_path / 'ranker.txt'


def test_a_feature_that_does_not_exist_is_smaller_than_all_numbers():
  """No pair that it learns from lacks a feature."""
  whole = np.nan_to_num(PAIRS)
  ranker = fitted(data=data_of(whole, whole[:, 0] > -1))
  rows = np.zeros((3, 3), np.float32)
  rows[:, 0] = NO_FEATURE, -4, 0
  none, small, large = ranker.scores(rows)
  assert none == small < 0 < large


def test_the_score_is_the_mean_of_models(ranker):
  one = dataclasses.replace(CONFIG, models=1)
  alone = [fitted(one, seed).scores(PAIRS) for seed in (6, 7)]
  assert (alone[0] != alone[1]).any()
  np.testing.assert_allclose(ranker.scores(PAIRS), sum(alone) / 2, atol=1e-5)


def test_models_end_where_the_loss_of_a_fold_was_lowest(tmp_path):
  config = dataclasses.replace(CONFIG, trees=200, patience=5, models=3)
  wrong = np.random.default_rng(1).random(len(GOLD)) < 0.1
  data = data_of(gold_X=GOLD ^ wrong)
  ranker = fitted(config, data=data)
  trees = [booster.best_iteration for booster in ranker._boosters]
  assert all(0 < n < 200 for n in trees) and len(set(trees)) > 1
  ranker.save(tmp_path / 'ranker.txt')
  loaded = config.load(tmp_path / 'ranker.txt', NAMES)
  assert [booster.num_trees() for booster in loaded._boosters] == trees
  assert loaded.scores(PAIRS).tobytes() == ranker.scores(PAIRS).tobytes()
  # The fold of a model does not decide its trees, only where it ends.
  out = data.fold_X == 1
  other = dataclasses.replace(
    data, gold_X=data.gold_X ^ (out & (PAIRS[:, 2] > 0))
  )
  whole = dataclasses.replace(config, patience=200, models=2)
  one, two = (fitted(whole, data=x)._boosters[1] for x in (data, other))
  first = [x.predict(PAIRS, num_iteration=1).tobytes() for x in (one, two)]
  assert first[0] == first[1]


def test_a_fold_without_which_nothing_is_gold_is_not_left_out():
  config = dataclasses.replace(CONFIG, patience=5, models=3)
  gold_X = GOLD & (data_of().fold_X == 1)
  trees = fitted(config, data=data_of(gold_X=gold_X))._boosters
  assert all(abs(x.predict(PAIRS, raw_score=True)).max() < 30 for x in trees)


def test_a_single_fold_is_not_left_out():
  config = dataclasses.replace(CONFIG, patience=5)
  data = dataclasses.replace(data_of(), fold_X=np.ones(len(GOLD), int))
  expected = fitted().scores(PAIRS)
  np.testing.assert_array_equal(
    fitted(config, data=data).scores(PAIRS), expected
  )


def test_workers_do_not_change_the_ranker(tmp_path):
  config = BoostedTrees(trees=2, leaves=8, least_pairs=5)
  rankers = [fitted(config, workers=workers) for workers in (1, 2)]
  one, two = (ranker.scores(PAIRS).tobytes() for ranker in rankers)
  assert one == two
  for number, ranker in enumerate(rankers):
    ranker.save(tmp_path / f'{number}.txt')
  one, two = ((tmp_path / f'{x}.txt').read_bytes() for x in range(2))
  assert one == two


def test_a_loaded_ranker_scores_the_same(ranker, path, tmp_path):
  loaded = CONFIG.load(path, NAMES)
  assert loaded.scores(PAIRS).tobytes() == ranker.scores(PAIRS).tobytes()
  np.testing.assert_array_equal(
    loaded.contributions(PAIRS[:9]), ranker.contributions(PAIRS[:9])
  )
  loaded.save(tmp_path / 'again.txt')
  again = CONFIG.load(tmp_path / 'again.txt', NAMES)
  assert again.scores(PAIRS).tobytes() == ranker.scores(PAIRS).tobytes()


def test_contributions_add_up_to_scores(ranker):
  parts = ranker.contributions(PAIRS)
  assert parts.shape == (2000, 4) and len(set(parts[:, -1])) == 1
  np.testing.assert_allclose(parts.sum(axis=1), ranker.scores(PAIRS), rtol=1e-5)
  at = np.nanargmax(np.where(np.isnan(SECOND), FIRST, np.nan))
  assert parts[at, :-1].argmax() == 0


class Stopped(Exception):
  """Stands for a signal to stop."""


def test_training_can_be_stopped():
  calls = []

  def between():
    calls.append(len(calls))
    if len(calls) == 3:
      raise Stopped

  with pytest.raises(Stopped):
    fitted(between=between)
  assert calls == [0, 1, 2]


@pytest.mark.parametrize(
  'names', [NAMES[:2], (*NAMES, 'more'), NAMES[::-1], ('tree:rank', *NAMES[1:])]
)
def test_a_file_with_other_features_is_an_error(path, names):
  with pytest.raises(DataError, match='ranker.txt: has other features'):
    CONFIG.load(path, names)


def test_a_file_that_is_missing_cut_or_not_text_is_an_error(path, tmp_path):
  with pytest.raises(DataError, match='missing.txt: cannot be read'):
    CONFIG.load(tmp_path / 'missing.txt', NAMES)
  text = path.read_bytes()
  cut = [text[: int(share * len(text))] for share in (0, 0.01, 0.3, 0.7, 0.99)]
  after_one = text.index(b'end of trees\n') + len(b'end of trees\n')
  # LightGBM would end the process at a damaged tree if it read it in a thread.
  for content in (*cut, text[:after_one], text.replace(b'\nnum_leaves=8', b'')):
    path.write_bytes(content)
    with pytest.raises(DataError, match='ranker.txt'):
      CONFIG.load(path, NAMES)
  path.write_bytes(b'\xff\xfe\x00')
  with pytest.raises(DataError, match='ranker.txt: cannot be read'):
    CONFIG.load(path, NAMES)
