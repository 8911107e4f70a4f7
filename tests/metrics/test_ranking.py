"""Ranking metrics: by hand, against the definitions, and their algebra."""

import math

import jax
from jax.sharding import AxisType
import numpy as np
import pytest

from xjax.core.types import PAD
from xjax.metrics import reference
from xjax.metrics.exact import exact
from xjax.metrics.ranking import (
  Ranking,
  _update,
  document_values,
  hits,
  ranking_names,
)

KS = (1, 3, 5, 10)


def lists(scores_NL, labels, depth):
  """Top lists by the slow definition; PAD where labels run out."""
  ids = np.full((len(scores_NL), depth), PAD, np.int32)
  for row, scores in enumerate(scores_NL):
    best = reference.rank(scores, labels)[:depth]
    ids[row, : len(best)] = best
  return ids


def padded(golds, width=8):
  out = np.full((len(golds), width), PAD, np.int32)
  for row, gold in enumerate(golds):
    # In no order: the metrics must not need one.
    out[row, : len(gold)] = list(gold)[::-1]
  return out


def problem(seed, n_docs=40, n_labels=12):
  rng = np.random.default_rng(seed)
  # Few distinct scores: most neighbours are ties.
  scores = rng.integers(0, 4, (n_docs, n_labels)).astype(np.float32)
  golds = [
    {int(v) for v in rng.choice(n_labels, rng.integers(0, 7), replace=False)}
    for _ in range(n_docs)
  ]
  return scores, golds


def whole(ids, n_labels):
  return (ids[:, -1] == PAD) | (ids.shape[1] >= n_labels)


def judged(ids, gold, mask=None, ks=KS, n_labels=12):
  mask = np.ones(len(ids), bool) if mask is None else mask
  return Ranking.empty(ks).update(ids, gold, mask, whole(ids, n_labels))


def test_by_hand():
  # Gold 4, 7, 9; ranked 7, 1, 9, 2: hits at places 1 and 3.
  ids = np.array([[7, 1, 9, 2]], np.int32)
  state = judged(ids, padded([{4, 7, 9}]), ks=(1, 2, 4), n_labels=100)
  dcg = 1 + 1 / math.log2(4)
  ideal3 = 1 + 1 / math.log2(3) + 1 / math.log2(4)
  assert state.compute() == pytest.approx(
    {
      'P@1': 1,
      'P@2': 1 / 2,
      'P@4': 2 / 4,
      'R@1': 1 / 3,
      'R@2': 1 / 3,
      'R@4': 2 / 3,
      'RP@1': 1,
      'RP@2': 1 / 2,
      'RP@4': 2 / 3,
      'nDCG@1': 1,
      'nDCG@2': 1 / (1 + 1 / math.log2(3)),
      'nDCG@4': dcg / ideal3,
      'R-Precision': 2 / 3,
    },
    abs=1e-15,
  )


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('labels', [range(12), (1, 4, 5, 9), (7,)])
def test_against_the_definitions(seed, labels):
  scores, golds = problem(seed)
  cut = [gold.intersection(labels) for gold in golds]
  # Depth 12 holds every label: short lists are padded.
  state = judged(lists(scores, labels, 12), padded(cut))
  expected = reference.ranking(scores, golds, labels, KS)
  assert state.compute() == pytest.approx(expected, abs=1e-14)
  assert int(state.documents) == sum(map(bool, cut))
  assert int(state.skipped) == len(cut) - sum(map(bool, cut))


def test_a_batch_is_the_merge_of_its_parts():
  scores, golds = problem(5)
  ids, gold = lists(scores, range(12), 10), padded(golds)
  at_once = judged(ids, gold)
  parts = judged(ids[:13], gold[:13]).merge(judged(ids[13:], gold[13:]))
  assert parts.compute() == pytest.approx(at_once.compute(), abs=1e-15)
  np.testing.assert_array_equal(parts.hits, at_once.hits)
  assert int(parts.documents) == int(at_once.documents)
  again = judged(ids[:13], gold[:13])
  mask = np.ones(27, bool)
  again = again.update(ids[13:], gold[13:], mask, whole(ids[13:], 12))
  assert again.compute() == pytest.approx(at_once.compute(), abs=1e-15)


def test_a_mask_is_a_subset():
  scores, golds = problem(6)
  ids, gold = lists(scores, range(12), 10), padded(golds)
  mask = np.random.default_rng(0).random(len(ids)) < 0.5
  masked, subset = judged(ids, gold, mask), judged(ids[mask], gold[mask])
  assert masked.compute() == pytest.approx(subset.compute(), abs=1e-15)
  assert int(masked.skipped) == int(subset.skipped)
  np.testing.assert_array_equal(masked.unknown, subset.unknown)


def test_a_document_is_judged_alone():
  scores, golds = problem(7)
  ids, gold = lists(scores, range(12), 10), padded(golds)
  with exact():
    values, known = document_values(ids, gold, whole(ids, 12), KS)
    assert values.dtype == np.float64
    for row in range(len(ids)):
      one = slice(row, row + 1)
      alone, alone_known = document_values(
        ids[one], gold[one], whole(ids[one], 12), KS
      )
      np.testing.assert_allclose(values[:, one], alone, rtol=1e-15)
      np.testing.assert_array_equal(known[:, one], alone_known)


def test_best_and_worst():
  gold = padded([{0, 1}, {2}, {3, 4, 5}])
  best = np.array([[0, 1, 9], [2, 8, 9], [5, 3, 4]], np.int32)
  values = judged(best, gold, ks=(1, 3), n_labels=50).compute()
  precision = values.pop('P@3')
  assert precision == (2 + 1 + 3) / 9
  values.pop('R@1')
  assert set(values.values()) == {1.0}
  worst = np.array([[9, 8, 7]] * 3, np.int32)
  values = judged(worst, gold, ks=(1, 3), n_labels=50).compute()
  assert set(values.values()) == {0.0}


def test_ids_above_24_bits_do_not_collide():
  big = 2**24
  ids = np.array([[big + 1, big + 3, 2**31 - 1]], np.int32)
  gold = np.array([[big, big + 3, 2**31 - 2]], np.int32)
  np.testing.assert_array_equal(hits(ids, gold), [[False, True, False]])


def test_padding_is_never_a_hit():
  ids = np.full((1, 4), PAD, np.int32)
  gold = np.array([[3, PAD, PAD]], np.int32)
  assert not hits(ids, gold).any()


def test_a_list_that_is_too_short_gives_no_number():
  # Two labels saved; the gold of the second document is larger.
  ids = np.array([[0, 1], [2, 3], [4, 5]], np.int32)
  gold = padded([{0}, {2, 6, 7}, set()])
  state = judged(ids, gold, ks=(1, 2, 3), n_labels=10)
  values = state.compute()
  # The first document has found all its gold; nothing deeper can change it.
  assert state.unknowns() == {
    'P@3': 1,
    'R@3': 1,
    'RP@3': 1,
    'nDCG@3': 1,
    'R-Precision': 1,
  }
  assert [name for name in values if values[name] is None] == [
    'P@3',
    'R@3',
    'RP@3',
    'nDCG@3',
    'R-Precision',
  ]
  assert values['P@2'] == (1 / 2 + 1 / 2) / 2


def test_what_is_left_of_a_list_may_be_too_short():
  # Of the first document one label is left, and there may be more of them.
  ids = np.array([[0, PAD, PAD], [2, 3, PAD]], np.int32)
  gold, mask = padded([{0, 1}, {2}]), np.ones(2, bool)
  state = Ranking.empty((1, 2)).update(ids, gold, mask, np.array([False] * 2))
  assert set(state.unknowns()) == {
    'P@2',
    'R@2',
    'RP@2',
    'nDCG@2',
    'R-Precision',
  }
  assert state.compute()['P@1'] == 1
  state = Ranking.empty((1, 2)).update(ids, gold, mask, np.array([True] * 2))
  assert state.unknowns() == {}
  assert state.compute()['P@2'] == 0.5


@pytest.mark.parametrize('n_labels', [2, 1])
def test_a_list_of_all_labels_is_deep_enough(n_labels):
  ids = np.array([[0, 1]], np.int32)
  gold = padded([{0, 6, 7}])
  values = judged(ids, gold, ks=(3,), n_labels=n_labels).compute()
  assert values['P@3'] == values['R-Precision'] == 1 / 3
  short = np.array([[0, PAD]], np.int32)
  assert judged(short, gold, ks=(3,), n_labels=9).compute() == values


def test_no_document_no_number():
  state = judged(np.zeros((2, 3), np.int32), padded([set(), set()]))
  assert state.compute() == dict.fromkeys(ranking_names(KS))
  assert int(state.skipped) == 2
  assert Ranking.empty(KS).compute() == dict.fromkeys(ranking_names(KS))


def test_states_of_other_cut_offs_do_not_merge():
  with pytest.raises(ValueError, match='cut-offs differ'):
    Ranking.empty((1,)).merge(Ranking.empty((1, 3)))


def test_counts_and_sums_have_64_bits_in_any_mesh():
  scores, golds = problem(8)
  ids, gold = lists(scores, range(12), 10), padded(golds)
  plain = judged(ids, gold)
  before = _update._cache_size()
  mesh = jax.make_mesh(
    (2, 4), ('data', 'label'), axis_types=(AxisType.Auto,) * 2
  )
  with jax.set_mesh(mesh):
    inside = judged(ids, gold)
  assert _update._cache_size() == before
  for state in (plain, inside):
    assert state.sums.dtype == np.float64
    assert state.hits.dtype == state.documents.dtype == np.int64
    assert len(state.sums.devices()) == 1
  assert inside.compute() == plain.compute()
  assert not jax.config.jax_enable_x64
