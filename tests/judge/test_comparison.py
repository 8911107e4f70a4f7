"""Systems beside a baseline, beside the same put together by hand."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from tests.judge.systems import lists_of, system, tree_of
from xjax.core.errors import ConfigError
from xjax.core.types import PAD, ScoreKind
from xjax.judge.comparison import (
  best_systems,
  clip_interval,
  compare as compare_by,
)
from xjax.judge.comparison_request import ComparisonRequest
from xjax.judge.judge import judge
from xjax.judge.metrics.significance import Interval, holm

N, L, K = 60, 40, 12


def golds():
  fixed = np.random.default_rng(3)
  return [fixed.choice(L, fixed.integers(1, 5), False) for _ in range(N)]


def predictions(seed, skill):
  ranked = np.random.default_rng(seed).random((N, L)).astype(np.float32)
  for row, gold in enumerate(golds()):
    ranked[row, gold] += skill
  ids = np.argsort(-ranked, axis=1)[:, :K]
  return system(
    *(ids, np.take_along_axis(ranked, ids, 1) / 2, golds()),
    np.repeat([0, 5, 20, 120], [3, 12, 15, 10]),
    score_kind=ScoreKind.PROBABILITY,
    n_train=200,
    hierarchy=tree_of(L, 4),
  )


def compare(systems, plan):
  criteria = plan.request().criteria(next(iter(systems.values())))
  return compare_by(systems, criteria, plan)


SYSTEMS = {
  'base': predictions(0, 0.3),
  'better': predictions(1, 0.9),
  'alike': predictions(2, 0.32),
}
METRICS = (
  *('RP@5', 'PSP@3', 'macro-F1@5', 'micro-F1', 'entropy@3'),
  *('hF1', 'micro-F1[level=2]'),
)
PLAN = ComparisonRequest(metrics=METRICS, iterations=300, replicates=200)


@pytest.fixture(scope='module')
def found():
  return compare(SYSTEMS, PLAN)


def test_values_are_those_of_judging(found):
  values = {who: judge(p)['xjax']['all'] for who, p in SYSTEMS.items()}
  pairs = [(row.metric, row.system) for row in found.differences]
  assert pairs == [(m, who) for m in METRICS for who in ('better', 'alike')]
  for row in found.differences:
    ours, base = values[row.system][row.metric], values['base'][row.metric]
    assert (row.baseline, row.value) == pytest.approx((base, ours), rel=1e-12)
    assert row.difference == pytest.approx(ours - base, rel=1e-9)
    assert row.interval.low < row.difference < row.interval.high
    assert (row.slice, row.note) == ('all', '')
    if row.metric == 'RP@5':  # what differs clearly is significant
      clear = row.system == 'better'
      assert (row.p < 0.01) == clear
      assert (row.interval.low > 0) == clear


def test_p_values_are_corrected_within_a_metric(found):
  for rows in zip(found.differences[::2], found.differences[1::2]):
    assert [row.holm for row in rows] == holm([row.p for row in rows])


def test_the_best_system_is_significantly_better_than_all_others():
  criteria = PLAN.request().criteria(SYSTEMS['base'])
  metrics = 'RP@5', 'P@1', 'no-such-metric'
  best = best_systems(SYSTEMS, criteria, metrics)
  assert best['all']['RP@5'] == 'better'
  # The two others hardly differ, so neither of them is the best.
  for names in ('base', 'alike'), ('base',):
    few = {name: SYSTEMS[name] for name in names}
    assert best_systems(few, criteria, metrics)['all'] == {}


def label_f1(found, k):
  lists, values = found.lists['all'].ids[:, :k], np.zeros(L)
  for label in range(L):
    gold = np.array([label in found.gold[row] for row in range(N)])
    predicted = (lists == label).any(1)
    both = gold.sum() + predicted.sum()
    values[label] = 2 * (gold & predicted).sum() / both if both else 0
  return values


def test_gains_by_bin(found):
  counts = SYSTEMS['base'].train_counts
  bins = {'0': 0, '1-9': 5, '10-99': 20, '100-999': 120}
  assert [(row.metric, row.system) for row in found.gains] == [
    (f'macro-F1@5[{name}]', who) for name in bins for who in ('better', 'alike')
  ]
  f1 = {who: label_f1(p, 5) for who, p in SYSTEMS.items()}
  for row in found.gains:
    inside = counts == bins[row.metric[11:-1]]
    ours, base = f1[row.system][inside], f1['base'][inside]
    assert row.n_labels == inside.sum()
    assert row.value == pytest.approx(ours.mean())
    assert row.relative == pytest.approx(ours.mean() / base.mean() - 1)
    assert row.interval.low < row.relative < row.interval.high
    if row.n_labels > 10:
      expected = scipy.stats.ttest_rel(ours, base).pvalue
      assert row.t_p == pytest.approx(expected)
    else:
      assert row.t_p is row.holm is None


def test_a_bin_without_a_hit_has_no_relative_gain():
  base = SYSTEMS['base']
  none = np.where(base.train_counts[base.lists['all'].ids] == 5, PAD, 1)
  ids = np.where(none == PAD, PAD, base.lists['all'].ids)
  order = np.argsort(ids == PAD, axis=1, kind='stable')
  ids = np.take_along_axis(ids, order, 1)
  scores = np.where(ids == PAD, -np.inf, -np.arange(K))
  lacking = dataclasses.replace(base, lists={'all': lists_of(ids, scores)})
  rows = compare({'none': lacking, 'some': base}, PLAN).gains
  (row,) = (row for row in rows if row.metric == 'macro-F1@5[1-9]')
  assert row.baseline == 0 < row.value
  assert row.relative is row.interval is None
  assert row.t_p < 0.05


def test_slices_and_what_is_missing_in_them():
  plan = dataclasses.replace(PLAN, by_frequency=True, metrics=('P@1', 'RP@10'))
  rows = compare(SYSTEMS, plan).differences
  names = list(dict.fromkeys(row.slice for row in rows))
  assert names == ['all', 'frequent', 'few', 'zero']
  values = judge(SYSTEMS['better'])['xjax']
  for row in rows:
    if row.system == 'better':
      assert row.value == values[row.slice][row.metric]
    if row.value is None or row.baseline is None:
      assert row.difference is row.interval is row.p is row.holm is None
      assert 'need a list deeper' in row.note
  missing = [row for row in rows if row.note]
  assert {row.metric for row in missing if row.slice == 'few'} == {'RP@10'}
  assert {row.slice for row in missing} == {'frequent', 'few', 'zero'}


def test_thresholds_only_where_scores_have_them():
  margin = dataclasses.replace(SYSTEMS['alike'], score_kind=ScoreKind.MARGIN)
  systems = {'base': SYSTEMS['base'], 'margin': margin}
  plan = dataclasses.replace(PLAN, metrics=('micro-F1', 'P@1'))
  for pair in (systems, dict(reversed(systems.items()))):
    lacking, known = compare(pair, plan).differences
    assert lacking.note.startswith('margin: the scores are margins')
    assert lacking.p is None and known.p is not None


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'metrics': ('Q@5',)}, r"'Q@5' is unknown; known metrics.*P@k"),
    ({'metrics': ('P@k',)}, "'P@k' is unknown"),
    ({'metrics': ('P@0',)}, "'P@0' is unknown"),
    ({'metrics': ('ILD@5',)}, "'ILD@5' is unknown"),
    ({'metrics': ('micro-F1-tuned',)}, 'is unknown'),
    ({'metrics': ('macro-F1@5[7-8]',)}, r"'macro-F1@5\[7-8\]' does not exist"),
    ({'metrics': ()}, 'name at least one metric'),
    ({'propensity': (1.0,)}, 'two numbers'),
  ],
)
def test_what_cannot_be_compared(fields, message):
  plan = dataclasses.replace(PLAN, **fields)
  with pytest.raises(ConfigError, match=message):
    compare(SYSTEMS, plan)


@pytest.mark.parametrize(
  ('ends', 'value', 'least', 'most', 'expected'),
  [
    ((-0.8937, -0.8937), -0.89362, -1.0, 1.0, (-0.8937, -0.89362)),
    ((0.3, 0.3), 0.2, -1.0, 1.0, (0.2, 0.3)),
    ((-1.4, -0.5), -0.9, -1.0, 1.0, (-1, -0.5)),
    ((0.5, 1.4), 0.9, -1.0, np.inf, (0.5, 1.4)),
  ],
)
def test_intervals_have_the_value_and_nothing_impossible(
  ends, value, least, most, expected
):
  found = clip_interval(Interval(*ends, 0.1), value, least, most)
  assert (found.low, found.high) == expected
