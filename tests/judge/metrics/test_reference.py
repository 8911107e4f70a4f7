"""The definitions, against values worked out on paper.

Three documents of eight labels. Ranked 2 0 4 1 with gold 0 1 5; ranked 1 alone
with gold 1 3; ranked 3 0 2 without gold.
"""

import dataclasses

import numpy as np
import pytest

from tests.judge.reference.metrics import BINS, Problem, diversity, judge
from xjax.judge.metrics.metric import PSnDCGVariant
from xjax.judge.metrics.protocols import PROTOCOLS, XJAX

LISTS = [[2, 0, 4, 1], [1], [3, 0, 2]]
GOLDS = [{0, 1, 5}, {1, 3}, set()]
WEIGHTS = np.array([1.0, 2, 4, 1, 3, 5, 1, 1])
TRAIN = np.array([1, 9, 10, 99, 100, 1000, 0, 0])
TABLE_LK = np.arange(40.0).reshape(8, 5)
PROBLEM = Problem(
  LISTS,
  GOLDS,
  range(8),
  weights=WEIGHTS,
  train_counts=TRAIN,
  decisions=[{2, 0}, {1}, {3, 0}],
  similarity=lambda a, b: 1 / (1 + abs(a - b)),
  table_LK=TABLE_LK,
  alphas=(0.0, 0.5, 0.6, 1.0),
  drawn=(1, 2),
)
COUNTED = dataclasses.replace(XJAX, skip_without_gold=False)

# 1 / log2(3), and ideal lists of one, two and three.
T = 0.6309297535714575
I2 = 1.6309297535714575
I3 = 2.1309297535714575


def expect(ks, protocol, table, problem=PROBLEM):
  found = judge(problem, ks, protocol)
  found = {name: found[name] for name in table}
  assert found == pytest.approx(table, abs=1e-14)


# pyxclib and napkinXC divide by the ideal DCG of each document first.
BEST = (5 + 2 * T + 1 / 2) / I3 + (2 + T) / I2
BY_COUNT = {
  'PSnDCG@3': (T / I3 + 2 / I2) / BEST,
  'PSR@3': (1 / 3 + 2 / 2) / 3,
  'PSR-norm@1': (0 + 2 / 2) / (5 / 3 + 2 / 2),
  'PSP@1': 2 / 7,
}
SUMS = (T + 2) / (5 + 2 * T + 1 / 2 + 2 + T)
BY_HAND = {
  'means over documents with gold': {
    # One hit among two, and one among one: the list that ended is over k.
    'P@1': 1 / 2,
    'P@2': 1 / 2,
    'P@5': (2 / 5 + 1 / 5) / 2,
    'R@2': (1 / 3 + 1 / 2) / 2,
    'R@5': (2 / 3 + 1 / 2) / 2,
    'RP@2': (1 / 2 + 1 / 2) / 2,
    'RP@3': (1 / 3 + 1 / 2) / 2,
    'nDCG@2': (T / I2 + 1 / I2) / 2,
    'nDCG@3': (T / I3 + 1 / I2) / 2,
    'nDCG-full@3': (T / I3 + 1 / I3) / 2,
    'Hit@1': 1 / 2,
    'Hit@2': 1.0,
    'R-Precision': (1 / 3 + 1 / 2) / 2,
  },
  'means over all documents': {
    'P@2': 1 / 3,
    'R@2': (1 / 3 + 1 / 2) / 3,
    'RP@3': (1 / 3 + 1 / 2) / 3,
    'nDCG@3': (T / I3 + 1 / I2) / 3,
    'nDCG-full@3': (T + 1) / I3 / 3,
    'Hit@2': 2 / 3,
    'R-Precision': (1 / 3 + 1 / 2) / 3,
    'PSP-raw@2': (1 / 2 + 2 / 2) / 3,
    'PSR@3': (1 / 8 + 2 / 3) / 3,
    # Ratios of sums do not move.
    'PSP@2': 3 / 10,
    'PSnDCG@3': SUMS,
  },
  # The gold weigh 1 2 5 (together 8) and 2 1; label 0, then label 1 is hit.
  'propensity-scored': {
    'PSP@1': 2 / (5 + 2),
    'PSP@2': (1 + 2) / (7 + 3),
    'PSP-raw@2': (1 / 2 + 2 / 2) / 2,
    'PSnDCG@3': SUMS,
    'PSnDCG-full@3': (T + 2) / I3 / 2,
    'PSR@3': (1 / 8 + 2 / 3) / 2,
    'PSR-norm@1': (0 + 2 / 3) / (5 / 8 + 2 / 3),
    'PSR-norm@3': (1 / 8 + 2 / 3) / (1 + 1),
  },
  'pyxclib': BY_COUNT,
  # Gold are 0 1 3 5, so 5 is the largest that is seen; 6 and 7 are not.
  'napkinxc': {
    **BY_COUNT,
    'coverage@2': 2 / 4,
    'macro-F1@2': (2 / 3 + 2 / 3) / 6,
  },
  'attentionxml': {'P@2': 1 / 3, 'PSP@2': 3 / 10, 'PSnDCG@3': SUMS},
  # Among the first two: 0 is hit once of two predictions, 1 once of one;
  # 2 and 3 are predicted in vain; 1, 3 and 5 are missed.
  'labels': {
    'micro-F1@2': 2 * 2 / (5 + 5),
    'macro-F1@2': (2 / 3 + 2 / 3) / 8,
    'macro-F0.5@2': (1.25 / 2.25 + 1.25 / 1.5) / 8,
    'macro-F2@2': (5 / 6 + 5 / 9) / 8,
    'macro-P@2': (1 / 2 + 1) / 8,
    'macro-R@2': (1 + 1 / 2) / 8,
    'macro-F1@2[1-9]': 2 / 3,
    **dict.fromkeys([f'macro-F1@2[{b}]' for b in list(BINS)[1:]], 0.0),
    'coverage@2': 2 / 8,
    'coverage[a=0]@2': 2 / 8,
    'coverage[a=0.5]@2': 2 / 8,
    'coverage[a=0.6]@2': 1 / 8,
    'coverage[a=1]@2': 1 / 8,
    # A draw misses a label of one document in three with probability 2 / 3.
    'coverage[n=1]@2': 2 / 3 / 8,
    'coverage[n=2]@2': 2 * (1 - 4 / 9) / 8,
    # Two labels, as often each: one bit.
    'entropy@2': 1.0,
  },
  'labels above a threshold': {
    'micro-F1': 2 * 2 / (5 + 5),
    'macro-F1': (2 / 3 + 2 / 3) / 8,
    # 0 is gold once, 1 twice, in all five gold labels.
    'weighted-F1': (2 / 3 + 2 * 2 / 3) / 5,
  },
}
PROTOCOL = {**PROTOCOLS, 'means over all documents': COUNTED}


@pytest.mark.parametrize('name', BY_HAND)
def test_values_worked_out_on_paper(name):
  assert PROTOCOLS['attentionxml'].psndcg is PSnDCGVariant.SUMS
  expect((1, 2, 3, 5), PROTOCOL.get(name, XJAX), BY_HAND[name])


def test_weighted_by_label_and_place():
  # Label 0 at the second place: 0 * 5 + 1; label 1 at the fourth and first.
  expect((5,), XJAX, {'weighted@5': ((1 + 8) + 5) / 2})
  # With 1 / k everywhere it is P@k (eq. 5 of Schultheis et al. 2022).
  flat = dataclasses.replace(PROBLEM, table_LK=np.full((8, 3), 1 / 3))
  expect((3,), XJAX, {'weighted@3': judge(flat, (3,), XJAX)['P@3']}, flat)


def test_diversity():
  def similarity(a, b):
    return 1 / (1 + abs(a - b))

  # Distances 2, 2 and 4: dissimilar by 2/3, 2/3 and 4/5.
  three = diversity([2, 0, 4], {}, 3, similarity)
  assert three == pytest.approx((2 / 3 + 2 / 3 + 4 / 5) / 3, abs=1e-15)
  assert diversity([2, 0, 4], {}, 2, similarity) == pytest.approx(2 / 3)
  # One label has no pair.
  assert diversity([2], {}, 3, similarity) == 0
  expect((3,), XJAX, {'ILD@3': (three + 0) / 2})
