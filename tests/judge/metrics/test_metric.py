"""The bins of labels by frequency."""

import math

import numpy as np
import pytest

from xjax.judge.metrics.document_metrics import Hit, Precision
from xjax.judge.metrics.label_metrics import Entropy, MicroF1
from xjax.judge.metrics.label_sums import in_bins
from xjax.judge.metrics.metric import (
  Measure,
  MetricPoints,
  MetricSettings,
  measures,
  metric_classes,
  metric_kind,
)
from xjax.judge.metrics.protocols import PECOS, PROTOCOLS, XJAX


def test_names_of_bins():
  ends = {'0': [0], '1-9': [1, 9], '10-99': [10, 99], '100-999': [100, 999]}
  ends['1000+'] = [1000, 10**9]
  counts = np.array([0, 1, 9, 10, 99, 100, 999, 1000, 10**9])
  found = {name: counts[mask] for name, mask in in_bins(counts).items()}
  assert {name: each.tolist() for name, each in found.items()} == ends


SETTINGS = MetricSettings(alphas=(0.25,), draws=(7, 1000))
BINS = '1-9', '1000+'


def table(protocol, ks=(1, 5), thresholds=('', '-tuned'), bins=BINS):
  points = MetricPoints(ks, thresholds, bins, levels=(1, 2))
  return measures(metric_classes(), protocol, points, SETTINGS)


def test_a_measure():
  measure = Measure('P@5', Precision(), 'hits@5', ('documents',), 5)
  assert measure.sums == ('hits@5', 'documents')
  assert measure.value({'hits@5': 6, 'documents': 4}) == 6 / (5 * 4)
  f1 = Measure('F1', MicroF1(), 'correct', ('predicted', 'gold'), 5)
  assert f1.value({'correct': 3, 'predicted': 5, 'gold': 4}) == 6 / 9
  # The first sums are whole numbers beyond float32; then the divisor is 0.
  big = {'hits@5': 2**40 + 1, 'documents': 2**40}
  mean = Measure('Hit@5', Hit(), 'hits@5', ('documents',), 5)
  assert mean.value(big) == 1 + 2**-40
  assert np.isnan(measure.value({'hits@5': 0, 'documents': 0}))


def test_entropy_is_never_below_0():
  entropy = Measure('entropy@5', Entropy(), 'log', ('all',), 5)
  assert entropy.value({'log': 0, 'all': 0}) == 0  # nothing is correct
  # Whatever rounding leaves of one label alone.
  sums = {'log': 3 * math.log2(3) * (1 + 1e-15), 'all': 3}
  assert entropy.value(sums) >= 0


def test_every_protocol_prints_its_kinds_and_no_others():
  for protocol in PROTOCOLS.values():
    assert {metric_kind(name) for name in table(protocol)} == set(
      protocol.kinds
    )
  assert list(table(PECOS)) == ['P@1', 'P@5', 'R@1', 'R@5']


def test_the_order_of_a_table():
  names = list(table(XJAX, ks=(1, 2, 10)))
  # Metrics of one kind stand together.
  kinds = [metric_kind(name) for name in names]
  assert sorted(kinds, key=list(dict.fromkeys(kinds)).index) == kinds
  assert names[:4] == ['P@1', 'P@2', 'P@10', 'R@1']
  assert 'ILD@1' not in names and 'ILD@2' in names
  at = names.index('macro-F1@1[1-9]')
  assert names[at + 1] == 'macro-F1@1[1000+]'


@pytest.mark.parametrize(
  ('metric', 'kind'),
  [
    ('P@5', 'P@k'),
    ('nDCG-full@10', 'nDCG-full@k'),
    ('R-Precision', 'R-Precision'),
    ('micro-F1', 'micro-F1'),
    ('micro-F1@5', 'micro-F1@k'),
    ('macro-F1-tuned', 'macro-F1-tuned'),
    ('macro-F1@5[10-99]', 'macro-F1@k[]'),
    ('macro-F1@5[1000+]', 'macro-F1@k[]'),
    ('macro-F0.5@5', 'macro-F0.5@k'),
    ('coverage[a=0.5]@5', 'coverage[a]@k'),
    ('coverage[n=1000]@5', 'coverage[n]@k'),
  ],
)
def test_kinds(metric, kind):
  assert metric_kind(metric) == kind
  assert XJAX.prints(metric)
