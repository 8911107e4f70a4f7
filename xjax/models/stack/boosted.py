"""Ranks labels by gradient-boosted trees over the features of pairs (LightGBM).

Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree",
NeurIPS 2017.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import pathlib
import re
import typing
from typing import Any

from jaxtyping import Float32, Float64
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_1,
  AT_LEAST_2,
  POSITIVE,
  SHARE,
  at_most,
  field,
)
from xjax.core.errors import DAMAGE, DataError
from xjax.core.progress import Progress
from xjax.models.stack.ranker import (
  PairRanker,
  RankerConfig,
  RankerData,
)

# LightGBM is imported only where it is used, because every config of a stack
# imports this module.
if typing.TYPE_CHECKING:
  import lightgbm

_END = '\nend of trees\n'
_TREE = '\n\nTree='
# The lines of a tree: lists of integers, lists of numbers, and single numbers.
_INTEGERS = {
  'split_feature',
  'decision_type',
  'left_child',
  'right_child',
  'leaf_count',
  'internal_count',
}
_NUMBERS = {
  'split_gain',
  'threshold',
  'leaf_value',
  'leaf_weight',
  'internal_value',
  'internal_weight',
}
_SINGLE = {'num_leaves', 'num_cat', 'is_linear', 'shrinkage'}
_WHOLE = r'-?[0-9]{1,9}'
_REAL = r'-?([0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?|inf|nan)'


@dataclasses.dataclass
class BoostedTrees(RankerConfig):
  """Adds up many small decision trees, each of which corrects the sum so far.

  The score is the mean of several such sums. The loss is the log loss of each
  pair, so the scores are logits.
  """

  models: int = field(
    2,
    'Number of models. They differ in what is drawn at random, and the score '
    'is the mean of their scores.',
    AT_LEAST_1,
  )
  trees: int = field(
    400, 'Number of trees of a model.', AT_LEAST_1, tiny=at_most(4)
  )
  leaves: int = field(
    63, 'Largest number of leaves of a tree.', AT_LEAST_2, tiny=at_most(4)
  )
  rate: float = field(
    0.08, 'Factor of what each tree adds to the sum.', POSITIVE
  )
  least_pairs: int = field(
    100, 'Smallest number of pairs in a leaf.', AT_LEAST_1, tiny=1
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
    n_trees = self.models * self.trees
    with Progress('training the ranker', n_trees) as shown:

      def after_tree(_: Any) -> None:
        between()
        shown.update(1)

      boosters = [
        lightgbm.train(
          self._parameters(seed * self.models + number, workers),
          pairs,
          self.trees,
          callbacks=[after_tree],
        )
        for number in range(self.models)
      ]
    return BoostedRanker(_mean(boosters))

  def _parameters(self, seed: int, workers: int) -> dict[str, Any]:
    """Returns the parameters of LightGBM, which do not depend on threads."""
    return {
      'objective': 'binary',
      'num_leaves': self.leaves,
      'learning_rate': self.rate,
      'min_data_in_leaf': self.least_pairs,
      'lambda_l2': self.l2,
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
      text = path.read_bytes().decode('ascii')
      own_names = _check_model(text)
      booster = _booster(text)
    except (*DAMAGE, lightgbm.basic.LightGBMError) as error:
      raise DataError(f'{path}: cannot be read as a ranker: {error}') from error
    if own_names != list(map(_plain, names)):
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
    """Writes the trees in LightGBM's own text format."""
    # The parameters of the training are left out: the number of threads is one
    # of them, but the file must not depend on it.
    text, end, _ = self._booster.model_to_string().partition(_END)
    with atomic_write(path) as file:
      file.write(text + end)


def _mean(boosters: 'Sequence[lightgbm.Booster]') -> 'lightgbm.Booster':
  """Returns the trees of models of one Dataset, as the mean of their scores."""
  parts = [_split(booster.model_to_string()) for booster in boosters]
  blocks = [tree.partition('\n')[2] for _, trees in parts for tree in trees]
  numbered = [f'{number}\n{block}' for number, block in enumerate(blocks)]
  text = _TREE.join([parts[0][0], *numbered])

  def smaller(values: re.Match) -> str:
    return ' '.join(repr(float(x) / len(parts)) for x in values[0].split())

  text = re.sub('(?<=\nleaf_value=).*', smaller, text)
  return _booster(text + '\n\n' + _END)


def _split(text: str) -> tuple[str, list[str]]:
  """Returns the header of a model, and its trees from their numbers on."""
  head, *trees = text.partition(_END)[0].rstrip('\n').split(_TREE)
  return head, trees


def _booster(text: str) -> 'lightgbm.Booster':
  import lightgbm

  # LightGBM reads trees of given sizes in threads, where an error ends the
  # process. Without the sizes, it reads one tree after the other.
  return lightgbm.Booster(model_str=re.sub('\ntree_sizes=.*', '', text))


def _plain(name: str) -> str:
  """Returns a feature's name without characters of JSON; it stays unique."""
  return re.sub(r'[^0-9A-Za-z.]+', '_', name.replace(':', '.'))


def _check_model(text: str) -> list[str]:
  """Checks a model, which LightGBM would trust, and returns its features.

  Damage raises a ValueError or KeyError.
  """
  if not text.endswith(_END) or re.search(r'[^\n -~]', text):
    raise ValueError('the file is cut short, or is not text')
  head, trees = _split(text)
  lines = _fields(head.removeprefix('tree\n'))
  names = lines['feature_names'].split(' ')
  wanted = {
    'num_class': '1',
    'num_tree_per_iteration': '1',
    'max_feature_idx': str(len(names) - 1),
    'objective': 'binary sigmoid:1',
  }
  if {name: lines[name] for name in wanted} != wanted:
    raise ValueError('the trees are of another kind')
  if len(trees) != len(lines['tree_sizes'].split()):
    raise ValueError('trees are missing')
  for number, tree in enumerate(trees):
    own_number, _, fields = tree.partition('\n')
    if own_number != str(number):
      raise ValueError(f'tree {number} is missing')
    _check_tree(_fields(fields.rstrip('\n')), len(names))
  return names


def _fields(text: str) -> dict[str, str]:
  lines = [line.partition('=') for line in text.split('\n')]
  fields = {name: value for name, _, value in lines}
  if not all(equals for _, equals, _ in lines) or len(fields) < len(lines):
    raise ValueError('a line is damaged')
  return fields


def _check_tree(fields: dict[str, str], n_features: int) -> None:
  n = _number(fields['num_leaves'], whole=True)
  if fields.keys() != _INTEGERS | _NUMBERS | _SINGLE or n < 1:
    raise ValueError('a tree is damaged')
  values = {
    name: [_number(value, name in _INTEGERS) for value in fields[name].split()]
    for name in _INTEGERS | _NUMBERS
  }
  for name, numbers in values.items():
    size = n if name.startswith('leaf') else n - 1
    if len(numbers) != size and not (name == 'leaf_weight' and n == 1):
      raise ValueError(f'{name} has {len(numbers)} numbers, not {size}')
  children = values['left_child'] + values['right_child']
  below = all(
    0 > child or child > node
    for name in ('left_child', 'right_child')
    for node, child in enumerate(values[name])
  )
  each_once = n == 1 or sorted(children) == [*range(-n, 0), *range(1, n - 1)]
  features = all(0 <= x < n_features for x in values['split_feature'])
  # Odd types split by categories, which rankers do not have.
  types = all(0 <= x < 16 and x % 2 == 0 for x in values['decision_type'])
  plain = fields['num_cat'] == fields['is_linear'] == '0'
  if not (below and each_once and features and types and plain):
    raise ValueError('the nodes are no tree')


def _number(text: str, whole: bool) -> int | float:
  if not re.fullmatch(_WHOLE if whole else _REAL, text):
    raise ValueError(f'{text[:20]!r} is not a number')
  return int(text) if whole else float(text)
