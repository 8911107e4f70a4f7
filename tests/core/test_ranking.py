"""Queries cut and combine their filters, and lists are put together."""

import math

import numpy as np
import pytest
from scipy import sparse

from xjax.core.errors import ConfigError
from xjax.core.ranking import (
  Lists,
  Query,
  RankWeights,
  best_cells,
  kept_gold,
  lists_of,
  measured_masks,
)
from xjax.core.types import PAD, Ragged

NONE = -np.inf
EVEN = np.arange(6) % 2 == 0


def test_filters_are_cut_to_the_labels_of_a_scorer():
  weights = RankWeights(np.arange(6.0), (2.0, 1.0))
  query = Query(3, (EVEN, ~EVEN), np.ones((2, 6), bool), weights, measured=1)
  cut = query.for_labels(4)
  assert [len(mask) for mask in cut.slices] == [4, 4]
  assert cut.allowed.shape == (2, 4) and cut.n_lists == 3
  assert cut.weights.values.tolist() == [0, 1, 2, 3]
  assert cut.weights.sigmoid == (2.0, 1.0)
  assert (cut.k, cut.measured) == (3, 1)


@pytest.mark.parametrize(
  'query',
  [
    Query(1, (EVEN,)),
    Query(1, allowed=EVEN),
    Query(1, weights=RankWeights(np.ones(6))),
  ],
)
def test_filters_that_are_too_short_are_an_error(query):
  with pytest.raises(ValueError, match='length 6.*number of labels, 7'):
    query.for_labels(7)


def test_a_query_for_some_documents_has_their_filters():
  allowed = np.arange(12).reshape(3, 4) % 3 == 0
  query = Query(2, allowed=allowed, on_block=print).for_rows(np.array([2, 0]))
  np.testing.assert_array_equal(query.allowed, allowed[[2, 0]])
  assert query.on_block is None
  assert Query(2, allowed=EVEN).for_rows(np.array([0])).allowed is EVEN


def test_labels_can_be_left_out_of_a_query():
  query = Query(2)
  assert query.only(None) is query
  assert query.only(EVEN).allowed is EVEN
  first = np.arange(4) < 2
  both = query.only(first).only(EVEN)
  assert both.allowed.tolist() == [True, False, False, False]
  by_document = Query(2, allowed=np.array([EVEN, ~EVEN])).only(first)
  assert by_document.allowed.tolist() == [
    [True, False, False, False],
    [False, True, False, False],
  ]


def test_weights_multiply_probabilities():
  weights = RankWeights(np.array([0.0, 0.5, 2.0], np.float32), (2.0, -1.0))
  logs = weights.weighted(np.array([2, 1, 0]), np.array([1.0, 0.5, 9.0]))
  assert logs.dtype == np.float64 and logs[2] == NONE
  wanted = 2 / (1 + math.exp(-1)), 0.5 / 2
  np.testing.assert_allclose(np.exp(logs[:2]), wanted)


def test_parts_are_put_into_lists():
  lists = Lists.none(2, 3, 2)
  ids = np.arange(12, dtype=np.int32).reshape(2, 2, 3)
  kept = {'step': np.array([[5, 7]], np.int32)}
  lists.put(np.array([2, PAD]), Lists(ids, ids.astype(np.float32), kept))
  assert lists.ids_GNK.tolist() == [
    [[PAD, PAD], [PAD, PAD], [0, 1]],
    [[PAD, PAD], [PAD, PAD], [6, 7]],
  ]
  assert (lists.scores_GNK[:, :2] == NONE).all()
  assert lists.scores_GNK.dtype == np.float32
  assert lists.kept['step'].tolist() == [[0, 0, 5]]
  assert lists.first(1).ids_GNK.tolist() == [
    [[PAD], [PAD], [0]],
    [[PAD], [PAD], [6]],
  ]


def test_lists_that_do_not_fit_into_memory_are_an_error():
  with pytest.raises(ConfigError, match=r'3 lists of .* --k'):
    Lists.none(3, 10**9, 10**6)


GOLD = Ragged.of([[0, 4], [], [1, 2, 2, 5]])
IDS = np.array([[[4, 3], [0, PAD], [2, 1]], [[0, 4], [4, PAD], [PAD, PAD]]])


def test_gold_labels_in_lists_are_counted():
  kept = kept_gold(GOLD, IDS, [None, EVEN])
  assert kept.dtype == np.int32
  assert kept.tolist() == [[1, 0, 3], [2, 0, 0]]
  assert kept_gold(GOLD, IDS, [EVEN, ~EVEN]).tolist() == [[1, 0, 2], [0, 0, 0]]
  short = EVEN[:3]  # labels beyond a mask are not counted
  assert kept_gold(GOLD, IDS, [short, short]).tolist() == [[0, 0, 2], [1, 0, 0]]
  none = Ragged.of([[], [], []])
  assert not kept_gold(none, IDS, [None, None]).any()
  assert kept_gold(GOLD, IDS[:0], []).shape == (0, 3)


def test_the_first_slices_and_all_labels_are_measured():
  third = np.arange(6) == 2
  query = Query(2, (EVEN, third), measured=1)
  first, second = measured_masks(query)
  assert first is None and second is EVEN
  query = Query(2, (EVEN, third), allowed=third, measured=2)
  assert [mask.tolist() for mask in measured_masks(query)] == [
    third.tolist(),
    (third & EVEN).tolist(),
    third.tolist(),
  ]


def test_lists_measure_what_a_step_keeps():
  lists = Lists(IDS, IDS.astype(np.float32))
  assert lists.measured('step', GOLD, Query(2, (EVEN,))) is lists
  assert lists.measured('step', None, Query(2, (EVEN,), measured=1)) is lists
  measured = lists.measured('step', GOLD, Query(2, (EVEN,), measured=1))
  assert measured.kept['step'].tolist() == [[1, 0, 3], [2, 0, 0]]
  alone = lists.measured('step', GOLD, Query(2, (EVEN,), measured=0))
  assert alone.kept['step'].tolist() == [[1, 0, 3]]


def test_scores_that_are_no_numbers_are_not_lost():
  """What reads the lists refuses them."""
  scores = sparse.csr_array(np.array([[1, np.nan, -np.inf]], np.float32))
  lists = lists_of(scores, Query(3))
  assert lists.ids_GNK.tolist() == [[[0, 1, PAD]]]
  assert np.isnan(lists.scores_GNK[0, 0, 1])
  ids, best = best_cells(np.arange(3), scores.toarray()[0], 3, 1, 3)
  assert ids.tolist() == [[0, 1, PAD]] and np.isnan(best[0, 1])


def test_the_best_cells_are_listed_with_ties_by_label():
  n_labels = 10
  cells = np.array([27, 3, 21, 8, 5, 25, 29])
  scores = np.array([1, 2, 1, 2, NONE, 4, 1], np.float32)
  ids, best = best_cells(cells, scores, n_labels, 3, 3)
  assert ids.tolist() == [[3, 8, PAD], [PAD] * 3, [5, 1, 7]]
  assert best.tolist() == [[2, 2, NONE], [NONE] * 3, [4, 1, 1]]
  assert (ids.dtype, best.dtype) == (np.int32, np.float32)
