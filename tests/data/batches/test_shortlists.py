"""Shortlists of training documents: gold nodes first, then proposals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Ragged
from xjax.data.batches.shortlists import TrainShortlists
from xjax.score.heads.shortlist import lost_positives

CHILDREN = np.int32([[0, 3, PAD], [1, 4, 5], [2, PAD, PAD]])
PARENTS = np.int32([0, 1, 2, 0, 1, 1])


def test_gold_labels_come_first_and_proposals_fill_the_rest():
  lists = TrainShortlists(np.int32([[5, 2, 9], [7, 8, PAD]]), kept=3)
  rows = np.int32([1, PAD, 0])
  positives = np.int32([[4, 7], [PAD, PAD], [9, PAD]])
  shortlist = lists.of(rows, positives)
  np.testing.assert_array_equal(
    shortlist.ids_BA, [[4, 7, 8], [PAD, PAD, PAD], [9, 5, 2]]
  )
  np.testing.assert_array_equal(
    shortlist.gold_BA, [[True, True, False], [False] * 3, [True, False, False]]
  )
  assert shortlist.weights_BA is None and not shortlist.prior_BA.any()


def test_clusters_of_gold_labels_come_first_and_are_expanded():
  lists = TrainShortlists(
    np.int32([[0, 1]]),
    kept=2,
    children=CHILDREN,
    parent_L=PARENTS,
    costs=Ragged.of([[3, 2]]),
  )
  shortlist = lists.of(np.int32([0]), np.int32([[1, 4, PAD, PAD]]))
  np.testing.assert_array_equal(shortlist.ids_BA, [[1, 4, 5, 0, 3, PAD]])
  np.testing.assert_array_equal(shortlist.gold_BA, [[True, True] + [False] * 4])
  np.testing.assert_array_equal(shortlist.weights_BA, [[3, 2, 1, 1, 1, 1]])


@pytest.mark.parametrize('clusters', [False, True])
def test_no_gold_label_is_lost(clusters):
  rng = np.random.default_rng(0)
  n, labels, p = 200, 60, 6
  gold = Ragged.of(
    [
      np.sort(rng.choice(labels, rng.integers(0, p + 1), replace=False))
      for _ in range(n)
    ]
  )
  parents = (np.arange(labels) % 20).astype(np.int32)
  children = np.arange(labels, dtype=np.int32).reshape(3, 20).T
  nodes = np.stack([rng.permutation(20)[:7] for _ in range(n)]).astype(np.int32)
  more = {'children': children, 'parent_L': parents} if clusters else {}
  lists = TrainShortlists(nodes, kept=8, **more)
  lists.check(gold, [str(i) for i in range(n)], 'field')
  rows = np.arange(n, dtype=np.int32)
  positives = gold.padded(rows, p, PAD)
  shortlist = lists.of(rows, positives)
  lost = lost_positives(
    jax.device_put(shortlist), jnp.asarray(positives), labels
  )
  assert int(lost) == 0
  for ids in shortlist.ids_BA:
    real = ids[ids != PAD]
    assert len(set(real.tolist())) == len(real)
  np.testing.assert_array_equal(shortlist.gold_BA.sum(axis=1), gold.lengths)


@pytest.mark.parametrize(
  ('more', 'message'),
  [
    ({}, "kept=1: document 'b' has 3 gold labels, which"),
    (
      {'children': CHILDREN, 'parent_L': PARENTS},
      "kept=1: document 'b' has 2 clusters with gold labels, which",
    ),
  ],
)
def test_too_small_a_shortlist_is_an_error(more, message):
  lists = TrainShortlists(np.zeros((2, 0), np.int32), kept=1, **more)
  with pytest.raises(ConfigError, match=message):
    lists.check(Ragged.of([[0], [1, 4, 2]]), ['a', 'b'], 'kept')
