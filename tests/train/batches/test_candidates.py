"""Shortlists of training documents: gold nodes first, then proposals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.dense_lists import lost_positives
from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Ragged
from xjax.train.batches.candidates import Candidates, TrainShortlists
from xjax.train.batches.dense import TrainBatches

RNG = np.random.default_rng(5)
CHILDREN = np.int32([[0, 3, PAD], [1, 4, 5], [2, PAD, PAD]])
PARENTS = np.int32([0, 1, 2, 0, 1, 1])


def test_gold_labels_come_first_and_proposals_fill_the_rest():
  lists = TrainShortlists(np.int32([[5, 2, 9], [7, 8, PAD]]), kept=3)
  rows = np.int32([1, PAD, 0])
  positives = np.int32([[4, 7], [PAD, PAD], [9, PAD]])
  shortlist = lists.of(rows, positives, RNG)
  np.testing.assert_array_equal(
    shortlist.ids_BA, [[4, 7, 8], [PAD, PAD, PAD], [9, 5, 2]]
  )
  np.testing.assert_array_equal(
    shortlist.gold_BA, [[True, True, False], [False] * 3, [True, False, False]]
  )
  assert shortlist.weights_BA is None


def test_clusters_of_gold_labels_come_first_and_are_expanded():
  lists = TrainShortlists(
    np.int32([[0, 1]]),
    kept=2,
    children=CHILDREN,
    parent_L=PARENTS,
    costs=Ragged.of([[3, 2]]),
  )
  shortlist = lists.of(np.int32([0]), np.int32([[1, 4, PAD, PAD]]), RNG)
  np.testing.assert_array_equal(shortlist.ids_BA, [[1, 4, 5, 0, 3, PAD]])
  np.testing.assert_array_equal(shortlist.gold_BA, [[True, True] + [False] * 4])
  np.testing.assert_array_equal(shortlist.weights_BA, [[3, 2, 1, 1, 1, 1]])


def test_unions_have_room_for_gold_clusters_and_all_proposed_clusters():
  """At most two clusters of a document have gold labels."""
  children = np.arange(12, dtype=np.int32).reshape(6, 2)
  parents = (np.arange(12) // 2).astype(np.int32)
  nodes, gold = np.int32([[0, 1], [2, 0], [4, 3]]), Ragged.of([[3, 2], [0, 11]])
  gold = Ragged.of([gold[0], gold[1], []])
  lists = TrainShortlists(
    nodes, 2, children, parents, candidates=Candidates.UNION
  ).with_room(gold, ['a', 'b', 'c'], 'kept')
  rows = np.arange(3, dtype=np.int32)
  shortlist = lists.of(rows, gold.padded(rows, 2, PAD), RNG)
  ids_BA = shortlist.ids_BA
  np.testing.assert_array_equal(
    ids_BA,
    [
      [2, 3, 0, 1, PAD, PAD, PAD, PAD],  # cluster 1 is proposed, too
      [0, 1, 10, 11, 4, 5, PAD, PAD],
      [8, 9, 6, 7, PAD, PAD, PAD, PAD],
    ],
  )
  assert [
    set(ids[is_gold]) for ids, is_gold in zip(ids_BA, shortlist.gold_BA)
  ] == [{2, 3}, {0, 11}, set()]


def test_a_document_with_many_labels_makes_only_its_own_batch_longer():
  children = np.arange(200, dtype=np.int32).reshape(100, 2)
  nodes = np.int32([[0, 1], [2, 3], [4, 5]])
  gold = Ragged.of([[3], range(2, 82, 2), range(20, 40, 2)])
  lists = TrainShortlists(
    nodes,
    2,
    children,
    (np.arange(200) // 2).astype(np.int32),
    candidates=Candidates.UNION,
  ).with_room(gold, ['a', 'b', 'c'], 'kept')
  for row, room in enumerate([8, 40, 32]):
    rows = np.int32([0, row])
    shortlist = lists.of(rows, gold.padded(rows, 64, PAD), RNG)
    assert shortlist.ids_BA.shape == (2, 2 * (2 + room))
    assert shortlist.gold_BA.sum(axis=1).tolist() == [1, gold.lengths[row]]


def test_random_labels_fill_the_places_that_small_clusters_leave():
  more = {'candidates': Candidates.GOLD_FIRST_RANDOM}
  parents = np.int32([*PARENTS, PAD, *[3] * 30])  # label 6 is in no cluster
  children = np.full((4, 30), PAD, np.int32)
  children[:3, :3], children[3] = CHILDREN, np.arange(7, 37)
  proposed = np.int32([[2, 0]] * 40)
  lists, plain = (
    TrainShortlists(proposed, 2, children, parents, **x) for x in (more, {})
  )
  rows = np.int32([*range(39), PAD])
  positives = np.full((40, 2), PAD, np.int32)
  positives[:39, 0] = 3

  def filled(seed):
    return lists.of(rows, positives, np.random.default_rng(seed))

  shortlist, rest = filled(1), plain.of(rows, positives, RNG)
  had_BA = rest.ids_BA != PAD
  np.testing.assert_array_equal(shortlist.ids_BA[had_BA], rest.ids_BA[had_BA])
  np.testing.assert_array_equal(shortlist.gold_BA, rest.gold_BA)
  assert (shortlist.ids_BA[39] == PAD).all()
  for ids in shortlist.ids_BA[:39]:
    labels = ids[ids != PAD]
    assert len(labels) == len(set(labels)) > 20 and 6 not in labels
  np.testing.assert_array_equal(filled(1).ids_BA, shortlist.ids_BA)
  assert (filled(2).ids_BA != shortlist.ids_BA).any()


def test_random_labels_depend_on_the_step_alone():
  """So a run that resumes has the labels of a run that was never stopped."""
  gold = Ragged.of([[0], [1], [2], [3]])
  lists = TrainShortlists(
    np.int32([[0], [1], [2], [0]]),
    1,
    np.int32([[0, 3, *[PAD] * 7], [1, 4, 5, *[PAD] * 6], [2, *[PAD] * 8]]),
    PARENTS,
    candidates=Candidates.GOLD_FIRST_RANDOM,
  )

  def batches():
    sizes = {'batch_size': 4, 'buckets': (4,), 'seed': 3}
    return TrainBatches(gold, gold, **sizes, shortlists=lists)

  first, again = batches(), batches()
  drawn = [first[step] for step in range(4)]
  same = [again[step] for step in (3, 0)]
  for ours, theirs in zip(same, (drawn[3], drawn[0])):
    np.testing.assert_array_equal(
      ours.shortlist.ids_BA, theirs.shortlist.ids_BA
    )
  by_document = [x.shortlist.ids_BA[np.argsort(x.doc_B)] for x in drawn]
  assert any((by_document[0] != ids_BA).any() for ids_BA in by_document[1:])


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
  shortlist = lists.of(rows, positives, RNG)
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
