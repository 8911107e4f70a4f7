"""Replicates and exchanges, beside judging documents drawn one by one."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.judge.systems import lists_of, system, tree_of
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.judge.criteria import Criteria
from xjax.judge.intervals import (
  bootstrap,
  bootstrap_sums,
  has_value,
  randomized_sums,
  sum_names,
)
from xjax.judge.judge import judge, judged_slices, thresholds
from xjax.judge.metrics import resampling
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.metrics.resampling import (
  bootstrap_weights,
  exchange_weights,
  jackknife_weights,
  n_groups,
)
from xjax.judge.slice import Slice
from xjax.judge.slice_statistics import SliceStatistics

N, L, K, TUNED = 40, 30, 6, 0.1


def predictions(seed, skill=0.5, n_docs=N):
  """Lists of random length, some documents without gold."""
  gold_rng = np.random.default_rng(7)
  golds = [
    gold_rng.choice(L, gold_rng.integers(0, 6), False) for _ in range(n_docs)
  ]
  rng = np.random.default_rng(seed)
  ids = np.full((n_docs, K), PAD, np.int32)
  scores = np.full((n_docs, K), -np.inf, np.float32)
  for row, gold in enumerate(golds):
    ranked = rng.random(L) + skill * np.isin(np.arange(L), gold)
    best = np.argsort(-ranked)[: K - (row % 3 == 0)]
    ids[row, : len(best)] = best
    scores[row, : len(best)] = ranked[best] - 1
  counts = np.repeat([0, 4, 40, 60], [3, 12, 12, 3])
  return system(ids, scores, golds, counts, hierarchy=tree_of(L, 3))


def criteria(protocol='xjax'):
  rng = np.random.default_rng(1)
  return Criteria(
    ks=(1, 3, 5),
    protocols=(PROTOCOLS[protocol],),
    slices={'odd': np.arange(L) % 2 == 1},
    ranks_LK=rng.random((L, 5)),
  )


def evidence_of(found, slice_name, protocol='xjax'):
  by = criteria(protocol)
  mask = judged_slices(found, by, 50)[slice_name]
  part = Slice.of(found, slice_name, mask)
  cuts = thresholds(found, TUNED)
  return SliceStatistics.of(part, by, by.protocols, cuts, found.n_train)


def rows(found, which):
  """The documents of these rows, as often as they come."""
  lists = found.lists['all']
  return dataclasses.replace(
    found,
    doc_ids=tuple(f'd{i}' for i in range(len(which))),
    lists={'all': lists_of(lists.ids[which], lists.scores[which])},
    gold=Ragged.of([found.gold[row] for row in which]),
  )


def judged(found, slice_name, protocol='xjax'):
  return judge(found, criteria(protocol), TUNED)[protocol][slice_name]


def assert_same(measure, sums, r, expected, name):
  value = float(measure.value(sums)[r])
  if expected is None:
    assert np.isnan(value), name
  else:
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-13), name


CASES = (
  *(('xjax', 'all'), ('xjax', 'few')),
  *(('napkinxc', 'odd'), ('pyxclib', 'all')),
)


def table_of_values(*pair, protocol='xjax'):
  """The measures that have a value for each evidence."""
  return {
    name: measure
    for name, measure in pair[0].tables[protocol].items()
    if all(has_value(evidence, measure) for evidence in pair)
  }


@pytest.mark.parametrize('protocol,slice_name', CASES)
def test_replicates_are_what_drawn_documents_are_judged_to_be(
  protocol, slice_name
):
  found = predictions(1)
  evidence = evidence_of(found, slice_name, protocol)
  table = table_of_values(evidence, protocol=protocol)
  assert len(table) > 10
  (sums,) = bootstrap_sums([evidence], sum_names(table.values()), 5, 4)
  for r, counts in enumerate(itertools.islice(bootstrap_weights(5, N), 4)):
    drawn = rows(found, np.repeat(np.arange(N), counts))
    values = judged(drawn, slice_name, protocol)
    for name, measure in table.items():
      assert_same(measure, sums, r, values[name], name)


def test_blocks_do_not_matter(monkeypatch):
  evidence = evidence_of(predictions(1), 'all')
  names = sum_names(table_of_values(evidence).values())
  (whole,) = bootstrap_sums([evidence], names, 5, 12)
  monkeypatch.setattr(resampling, '_WEIGHTS', 4 * N)
  (blocks,) = bootstrap_sums([evidence], names, 5, 12)
  assert set(whole) == set(blocks) == names
  for name in names:
    np.testing.assert_allclose(whole[name], blocks[name], rtol=1e-13)


def test_the_jackknife_leaves_documents_out():
  found = predictions(1)
  evidence = evidence_of(found, 'all')
  # That of a sample is of N documents, whoever is left out.
  table = {n: m for n, m in table_of_values(evidence).items() if '[n=' not in n}
  (sums,) = bootstrap_sums([evidence], sum_names(table.values()), 5, 3)
  left = np.array(list(jackknife_weights(5, N)))
  assert len(left) == n_groups(N) and ((left == 0).sum(0) == 1).all()
  for g in range(0, len(left), 20):
    rest = judged(rows(found, np.flatnonzero(left[g])), 'all')
    for name, measure in table.items():
      assert_same(measure, sums, 3 + g, rest[name], name)


def fresh(seed, n_docs=200, n_labels=150):
  """New documents and the first label listed for each; labels are Zipf."""
  rng = np.random.default_rng(seed)
  shares = 1 / np.arange(1, n_labels + 1)
  golds = [
    np.unique(rng.choice(n_labels, 4, p=shares / shares.sum()))
    for _ in range(n_docs)
  ]
  right = rng.random(n_docs) < 0.6
  ids = np.where(right, [rng.choice(g) for g in golds], rng.integers(n_labels))
  ids = np.stack([ids, np.full(n_docs, PAD)], 1)
  scores = np.tile([0, -np.inf], (n_docs, 1))
  return system(ids, scores, golds, np.full(n_labels, 4))


@pytest.mark.thorough
def test_intervals_have_what_new_documents_would_show():
  # A replicate lacks a third of the documents, and with them labels.
  by = Criteria((1,), ('P@k', 'coverage@k', 'macro-R@k'))
  many = [judge(fresh(1000 + seed), by)['xjax']['all'] for seed in range(60)]
  within = dict.fromkeys(('P@1', 'coverage@1', 'macro-R@1'), 0)
  for seed in range(40):
    found = fresh(seed)
    part = Slice.of(found, 'all', found.masks['all'])
    evidence = SliceStatistics.of(part, by, by.protocols, {}, found.n_train)
    intervals = bootstrap(evidence, evidence.tables['xjax'], seed, 200)
    for name, each in intervals.items():
      mean = np.mean([values[name] for values in many])
      within[name] += each.low <= mean <= each.high
  for name, n in within.items():
    assert n >= 35, (name, n)


@pytest.mark.parametrize('protocol,slice_name', CASES)
def test_exchanges_are_what_mixed_systems_are_judged_to_be(
  protocol, slice_name
):
  ours, theirs = predictions(1), predictions(2, 0.8)
  pair = [evidence_of(p, slice_name, protocol) for p in (ours, theirs)]
  table = table_of_values(*pair, protocol=protocol)
  assert len(table) > 10
  both = randomized_sums(*pair, sum_names(table.values()), 5, 3)
  lists = [p.lists['all'] for p in (ours, theirs)]
  for r, coins in enumerate(itertools.islice(exchange_weights(5, N), 3)):
    for number, sums in enumerate(both):
      taken = np.where(coins, 1 - number, number)[:, None] == 1
      ids = np.where(taken, lists[1].ids, lists[0].ids)
      scores = np.where(taken, lists[1].scores, lists[0].scores)
      mixed = dataclasses.replace(ours, lists={'all': lists_of(ids, scores)})
      values = judged(mixed, slice_name, protocol)
      for name, measure in table.items():
        assert_same(measure, sums, r, values[name], name)


def test_every_metric_with_a_value_has_an_interval():
  evidence = evidence_of(predictions(1), 'all')
  table = evidence.tables['xjax']
  found = bootstrap(evidence, table, 0, 200)
  values = judged(predictions(1), 'all')
  assert set(found) == {n for n in table if values.get(n) is not None}
  some = 'macro-F1@5[10-99]', 'PSP@3', 'entropy@5', 'micro-F1-tuned'
  assert {*some, 'hF1', 'consistency-tuned', 'micro-R[level=3]'} <= set(found)
  for name, each in found.items():
    assert each.low <= values[name] <= each.high, name
    assert each.error >= 0
  macro = found['macro-F1@5']
  assert macro.low < values['macro-F1@5'] < macro.high


def test_what_is_missing_has_no_interval():
  found = dataclasses.replace(
    predictions(1), score_kind=ScoreKind.MARGIN, n_train=0
  )
  evidence = evidence_of(found, 'all')
  intervals = bootstrap(evidence, evidence.tables['xjax'], 0, 50)
  assert 'P@1' in intervals
  for name in ('micro-F1', 'hF1', 'PSP@1', 'macro-F1@5[1-9]', 'ILD@1'):
    assert name not in intervals
  none = dataclasses.replace(found, gold=Ragged.of([[]] * N))
  evidence = evidence_of(none, 'all')
  assert bootstrap(evidence, evidence.tables['xjax'], 0, 50) == {}
