"""Mean recalls of the steps of a search."""

import numpy as np
import pytest

from xjax.core.types import Ragged
from xjax.judge.predict import recalls_of

GOLD = Ragged.of([[0, 1, 2], [], [3], [1, 7]])  # 7 is beyond the masks
FEW = np.array([False, True, True, False])
NONE = np.zeros(4, bool)


def test_means_are_over_documents_with_gold_labels_in_the_slice():
  kept = {
    'shortlist recall@9': np.int32([[2, 0, 1, 1], [1, 0, 0, 1], [0] * 4]),
    'level 0 recall@3': np.int32([[3, 0, 1, 2], [2, 0, 0, 1], [0] * 4]),
  }
  recalls = recalls_of(kept, GOLD, {'few': FEW, 'zero': NONE})
  shortlist, level = kept
  means = {'all': (2 / 3 + 1 + 1 / 2) / 3, 'few': (1 / 2 + 1) / 2}
  assert recalls == {
    name: {shortlist: pytest.approx(mean), level: 1.0}
    for name, mean in means.items()
  }
  assert list(recalls['all']) == list(kept)  # the order of the steps


def test_shares_are_those_of_a_sum_over_batches():
  """Batches of documents give the same means, in float64."""
  rng = np.random.default_rng(0)
  gold = Ragged.of(
    [rng.choice(9, rng.integers(0, 5), False) for _ in range(70)]
  )
  kept_GN = rng.integers(0, gold.lengths + 1)[None].astype(np.int32)
  sums, documents = 0.0, 0
  for rows in np.split(np.arange(70), [32, 64]):
    counts = gold.take(rows).lengths
    shares = kept_GN[0, rows] / np.maximum(counts, 1)
    sums += np.where(counts > 0, shares, 0).sum()
    documents += (counts > 0).sum()
  found = recalls_of({'union recall@4': kept_GN}, gold, {})
  assert found['all']['union recall@4'] == pytest.approx(
    sums / documents, rel=1e-14
  )


def test_nothing_is_measured_without_steps():
  assert recalls_of({}, GOLD, {}) == {}
