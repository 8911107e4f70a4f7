"""Ranks labels by gradient-boosted trees over the features of pairs (LightGBM).

Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree",
NeurIPS 2017.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
import dataclasses
import pathlib
import re
import threading
import types
import typing
from typing import Any

from jaxtyping import Float32, Float64
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_0,
  AT_LEAST_1,
  AT_LEAST_2,
  POSITIVE,
  SHARE,
  field,
)
from xjax.core.errors import DAMAGE, DataError, optional
from xjax.core.processes.forks import let_forks_wait_for, threads
from xjax.core.progress import Progress
from xjax.models.stack.ranker import Ranker, RankerPairs

if typing.TYPE_CHECKING:
  import lightgbm

_END = '\nend of trees\n'
# A forked process would wait for the locks of a model that is predicting.
_predicting = threading.RLock()
let_forks_wait_for(_predicting)


def load_lightgbm() -> types.ModuleType:
  """Imports LightGBM, or raises a UserError that says why this fails."""
  # Only where it is used: every config of a stack imports this module. Its
  # wheels lack libgomp, which small systems do not have.
  return optional('lightgbm', 'a stack')


@dataclasses.dataclass
class BoostedTrees(Ranker):
  """Adds up many small decision trees, each of which corrects the sum so far.

  The score is the mean of several such sums. The loss is the log loss of each
  pair, so the scores are logits.
  """

  models: int = field(
    4,
    'Number of models. They differ in what is drawn at random, and the score '
    'is the mean of their scores.',
    AT_LEAST_1,
  )
  trees: int = field(400, 'Largest number of trees of a model.', AT_LEAST_1)
  patience: int = field(
    20,
    'Each model leaves out the documents of a fold, in turn. It ends '
    'where their loss was lowest, once so many trees have not made it lower. '
    'With 0, or a single fold, it learns from all pairs, and has all trees.',
    AT_LEAST_0,
  )
  bins: int = field(
    63,
    'Largest number of values of a feature that are told apart.',
    AT_LEAST_2,
  )
  leaves: int = field(63, 'Largest number of leaves of a tree.', AT_LEAST_2)
  rate: float = field(
    0.08, 'Factor of what each tree adds to the sum.', POSITIVE
  )
  least_pairs: int = field(
    100, 'Smallest number of pairs in a leaf.', AT_LEAST_1
  )
  l2: float = field(
    1.0,
    'Added to the curvature of the loss in a leaf. It keeps the values of '
    'leaves small in which all pairs are gold, or none is.',
    AMOUNT,
  )
  feature_share: float = field(
    0.7, 'Share of the features that a tree may use, drawn at random.', SHARE
  )
  pair_share: float = field(
    0.7, 'Share of the pairs that a tree learns from, drawn at random.', SHARE
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if self.models > 1 and self.feature_share == self.pair_share == 1:
      yield (
        f'{path}.models={self.models}: must be 1 with {path}.feature_share=1 '
        f'and {path}.pair_share=1, since nothing is drawn, and all models '
        'would be equal'
      )

  def check_machine(self) -> None:
    load_lightgbm()

  def fit(
    self,
    pairs: Callable[[], RankerPairs],
    seed: int,
    workers: int,
    between: Callable[[], Any],
  ) -> Callable[[pathlib.Path], None]:
    return self.train(pairs(), seed, workers, between).save

  def train(
    self, data: RankerPairs, seed: int, workers: int, between: Callable[[], Any]
  ) -> 'BoostedRanker':
    """Trains a ranker, which does not depend on the number of threads.

    `between` is called after each tree.
    """
    lightgbm = load_lightgbm()
    names = list(map(_plain, data.names))
    # The pairs are put into bins once, for all models.
    pairs = lightgbm.Dataset(
      data.features_XF,
      data.gold_X.astype(np.float32),
      feature_name=names,
      params={'verbose': -1, 'num_threads': workers, 'max_bin': self.bins},
    )
    folds = _folds_to_leave_out(data)
    n_trees = self.models * self.trees
    with (
      Progress('training the ranker', n_trees) as shown,
      ThreadPoolExecutor(1) as pool,  # see forks.threads
    ):

      def after_tree(_: Any) -> None:
        between()
        shown.update(1)

      def train(number: int) -> 'lightgbm.Booster':
        # Seeds differ among models, and among the models of runs with other
        # seeds.
        settings = self._parameters(seed * self.models + number, workers)
        if not self.patience or not folds:
          return lightgbm.train(
            settings, pairs, self.trees, callbacks=[after_tree]
          )
        out_X = data.fold_X == folds[number % len(folds)]
        inside, outside = map(
          pairs.subset, map(np.flatnonzero, (~out_X, out_X))
        )
        stop = lightgbm.early_stopping(self.patience, verbose=False)
        return lightgbm.train(
          settings,
          inside,
          self.trees,
          valid_sets=[outside],
          callbacks=[after_tree, stop],
        )

      boosters = []
      for number in range(self.models):
        boosters.append(pool.submit(train, number).result())
        shown.update((number + 1) * self.trees - shown.done)
    return BoostedRanker(boosters)

  def _parameters(self, seed: int, workers: int) -> dict[str, Any]:
    return {
      'objective': 'binary',
      'num_leaves': self.leaves,
      'learning_rate': self.rate,
      'max_bin': self.bins,
      'min_data_in_leaf': self.least_pairs,
      'lambda_l2': self.l2,
      'feature_fraction': self.feature_share,
      'bagging_fraction': self.pair_share,
      'bagging_freq': 1,
      'seed': seed % 2**31,
      # Together with row-wise histograms, this makes sums independent of the
      # number of threads.
      'deterministic': True,
      'force_row_wise': True,
      'num_threads': workers,
      'verbose': -1,
    }

  def load(self, path: pathlib.Path, names: Sequence[str]) -> 'BoostedRanker':
    """Reads the file of BoostedRanker.save, which must be undamaged.

    LightGBM trusts a file: damage may end the process. So callers compare the
    digest of the file first (Run.read). A DataError says that the file is cut
    short or has other features.
    """
    lightgbm = load_lightgbm()
    try:
      text = path.read_bytes().decode('ascii')
      # LightGBM reads trees of given sizes in threads, where an error ends the
      # process. Without the sizes, it reads one tree after the other.
      *parts, rest = re.sub('\ntree_sizes=.*', '', text).split(_END)
      # A file that is cut short is found before LightGBM reads it.
      if rest or len(parts) != self.models:
        raise ValueError('the file is cut short')
      boosters = [lightgbm.Booster(model_str=part + _END) for part in parts]
    except (*DAMAGE, lightgbm.basic.LightGBMError) as error:
      raise DataError(f'{path}: cannot be read as a ranker: {error}') from error
    if boosters[0].feature_name() != list(map(_plain, names)):
      raise DataError(
        f'{path}: has other features than this run; is this a file of another '
        'run?'
      )
    return BoostedRanker(boosters)


class BoostedRanker:
  """Scores pairs by the mean of gradient-boosted trees of several models."""

  def __init__(self, boosters: 'Sequence[lightgbm.Booster]'):
    self._boosters = boosters

  def scores(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float32[np.ndarray, ' X']:
    if not len(features_XF):
      return np.zeros(0, np.float32)
    return self._mean(features_XF, raw_score=True).astype(np.float32)

  def contributions(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float64[np.ndarray, 'X F_and_1']:
    """Returns how much each feature adds to the logit of a pair.

    These are the Shapley values of trees (Lundberg et al. 2020). The last
    column is the mean logit of all pairs. All columns add up to the logit.
    """
    if not len(features_XF):
      return np.zeros((0, features_XF.shape[1] + 1))
    return self._mean(features_XF, pred_contrib=True)

  def _mean(self, features_XF: np.ndarray, **kind: bool) -> np.ndarray:
    with _predicting:
      predicted = [
        threads(1).submit(booster.predict, features_XF, **kind)
        for booster in self._boosters
      ]
      return np.mean([part.result() for part in predicted], axis=0)

  def save(self, path: pathlib.Path) -> None:
    """Writes the models in LightGBM's own text format, one after another."""
    with atomic_write(path) as file:
      for booster in self._boosters:
        # The parameters of the training are left out: the number of threads is
        # one of them, but the file must not depend on it.
        text, end, _ = booster.model_to_string().partition(_END)
        file.write(text + end)


def _folds_to_leave_out(data: RankerPairs) -> list[int]:
  """Returns the folds without which some pairs are gold, and some are not."""
  others = ((x, data.gold_X[data.fold_X != x]) for x in np.unique(data.fold_X))
  return [fold for fold, gold_X in others if gold_X.any() and not gold_X.all()]


def _plain(name: str) -> str:
  """Returns a feature's name without characters of JSON; it stays unique."""
  return re.sub(r'[^0-9A-Za-z.]+', '_', name.replace(':', '.'))
