"""Ranks labels by gradient-boosted trees over the features of pairs (LightGBM).

Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree",
NeurIPS 2017.
"""

from collections.abc import Callable, Sequence
import dataclasses
import pathlib
import re
import typing
from typing import Any

from jaxtyping import Float32, Float64
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.config_part import (
  AT_LEAST_1,
  AT_LEAST_2,
  POSITIVE,
  SHARE,
  at_most,
  field,
)
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.score.rankers.contract import PairRanker, RankerConfig, RankerData

# LightGBM is imported only where it is used, because every config of a stack
# imports this module.
if typing.TYPE_CHECKING:
  import lightgbm


@dataclasses.dataclass
class BoostedTrees(RankerConfig):
  """Adds up many small decision trees, each of which corrects the sum so far.

  The loss is the log loss of each pair, so the scores are logits.
  """

  trees: int = field(400, 'Number of trees.', AT_LEAST_1, tiny=at_most(4))
  leaves: int = field(
    63, 'Largest number of leaves of a tree.', AT_LEAST_2, tiny=at_most(4)
  )
  rate: float = field(
    0.08, 'Factor of what each tree adds to the sum.', POSITIVE
  )
  least_pairs: int = field(
    100, 'Smallest number of pairs in a leaf.', AT_LEAST_1, tiny=1
  )
  feature_share: float = field(
    0.7, 'Share of the features that a tree may use, drawn at random.', SHARE
  )
  pair_share: float = field(
    0.7, 'Share of the pairs that a tree learns from, drawn at random.', SHARE
  )

  def fit(
    self, data: RankerData, seed: int, workers: int, between: Callable[[], Any]
  ) -> 'BoostedRanker':
    import lightgbm

    names = list(map(_plain, data.names))
    pairs = lightgbm.Dataset(
      data.features_XF,
      data.gold_X.astype(np.float32),
      feature_name=names,
      params={'verbose': -1, 'num_threads': workers},
    )
    with Progress('training the ranker', self.trees) as shown:

      def after_tree(_: Any) -> None:
        between()
        shown.update(1)

      booster = lightgbm.train(
        self._parameters(seed, workers),
        pairs,
        self.trees,
        callbacks=[after_tree],
      )
    return BoostedRanker(booster)

  def _parameters(self, seed: int, workers: int) -> dict[str, Any]:
    """Returns the parameters of LightGBM, which do not depend on threads."""
    return {
      'objective': 'binary',
      'num_leaves': self.leaves,
      'learning_rate': self.rate,
      'min_data_in_leaf': self.least_pairs,
      'feature_fraction': self.feature_share,
      'bagging_fraction': self.pair_share,
      'bagging_freq': 1,
      'seed': seed % 2**31,
      'deterministic': True,
      'force_row_wise': True,
      'num_threads': workers,
      'verbose': -1,
    }

  def load(self, path: pathlib.Path, names: Sequence[str]) -> 'BoostedRanker':
    import lightgbm

    try:
      booster = lightgbm.Booster(model_str=path.read_text('utf-8'))
    except (OSError, ValueError, lightgbm.basic.LightGBMError) as error:
      raise DataError(f'{path}: cannot be read as a ranker: {error}') from error
    if booster.feature_name() != list(map(_plain, names)):
      raise DataError(
        f'{path}: has other features than this run; is this a file of another '
        'run?'
      )
    return BoostedRanker(booster)


class BoostedRanker(PairRanker):
  """Scores pairs by gradient-boosted trees."""

  def __init__(self, booster: 'lightgbm.Booster'):
    self._booster = booster

  def scores(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float32[np.ndarray, ' X']:
    """Returns the logits of pairs."""
    if not len(features_XF):
      return np.zeros(0, np.float32)
    logits = self._booster.predict(features_XF, raw_score=True)
    return np.asarray(logits, np.float32)

  def contributions(
    self, features_XF: Float32[np.ndarray, 'X F']
  ) -> Float64[np.ndarray, 'X F_and_1']:
    """Returns Shapley values of trees (Lundberg et al. 2020); see the base."""
    if not len(features_XF):
      return np.zeros((0, features_XF.shape[1] + 1))
    return np.asarray(self._booster.predict(features_XF, pred_contrib=True))

  def save(self, path: pathlib.Path) -> None:
    """Writes LightGBM's own text format."""
    with atomic_write(path) as file:
      file.write(self._booster.model_to_string())


def _plain(name: str) -> str:
  """Returns the name of a feature without the characters of JSON."""
  return re.sub(r'[^0-9A-Za-z]+', '_', name)
