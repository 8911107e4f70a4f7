"""Checks metrics as functions of sums, and which protocol prints which."""

import math

import numpy as np
import pytest

from xjax.judge.metrics.documents import Hit, Precision, ideal
from xjax.judge.metrics.labels import Entropy, MicroF1
from xjax.judge.metrics.metric import (
  Measure,
  MetricPoints,
  SumLayout,
  kind_of,
  measures,
)
from xjax.judge.metrics.protocols import (
  ATTENTIONXML,
  LMTC,
  NAPKINXC,
  PECOS,
  PROTOCOLS,
  PYXCLIB,
  XJAX,
)

FORM = SumLayout(alphas=(0.25,), draws=(7, 1000))
BINS = '1-9', '1000+'


def table(protocol, ks=(1, 5), thresholds=('', '-tuned'), bins=BINS):
  points = MetricPoints(ks, thresholds, bins, levels=(1, 2))
  return measures(protocol, points, FORM)


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


def test_a_measure_of_replicates():
  sums = {'correct': np.array([1, 0, 2]), 'predicted': np.array([2, 0, 0])}
  share = Measure('share', Hit(), 'correct', ('predicted',), 1)
  value_R = share.value(sums)
  assert value_R.dtype == np.float64
  np.testing.assert_array_equal(value_R, [0.5, np.nan, np.nan])


def test_entropy():
  entropy = Measure('entropy@5', Entropy(), 'log', ('all',), 5)

  def of(*counts):
    total = sum(counts)
    parts = sum(c * math.log2(c) for c in counts if c)
    return float(entropy.value({'log': parts, 'all': total}))

  assert of(4, 4, 4, 4) == 2
  assert of(5) == 0
  uneven = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
  assert of(1, 3) == pytest.approx(uneven)
  assert of() == 0  # nothing is correct
  # The entropy is never below 0, whatever rounding leaves.
  sums = {'log': 3 * math.log2(3) * (1 + 1e-15), 'all': 3}
  assert entropy.value(sums) >= 0


def test_the_ideal_gain():
  assert ideal(1) == 1
  assert ideal(3) == pytest.approx(1 + 1 / math.log2(3) + 0.5)


# Maps each metric to its sum above the line, the sums below, and its divisor.
OURS = {
  'P@5': ('Precision.over@5', ['documents with gold'], 5),
  'R@5': ('Recall.over@5', ['documents with gold'], 1),
  'nDCG-full@5': ('FullNDCG.over@5', ['documents with gold'], ideal(5)),
  'PSP@5': ('PSP.over@5', ['PSP.under@5'], 1),
  'PSP-raw@5': ('PSP.over@5', ['documents with gold'], 5),
  'PSnDCG@5': ('PSnDCG.over@5', ['PSnDCG.under@5'], 1),
  'PSR@5': ('NormalPSR.over@5', ['documents with gold'], 1),
  'PSR-norm@5': ('NormalPSR.over@5', ['NormalPSR.under@5'], 1),
  'micro-F1@5': ('correct@5', ['predicted@5', 'gold'], 1),
  'macro-F1@5': ('MacroF1AtThreshold.over@5', ['labels'], 1),
  'macro-F1@5[1-9]': ('MacroF1AtThreshold.over@5[1-9]', ['labels[1-9]'], 1),
  'macro-F0.5@5': ('MacroFHalf.over@5', ['labels'], 1),
  'weighted-F1-tuned': ('WeightedF1.over-tuned', ['gold'], 1),
  'coverage@5': ('Coverage.over@5', ['labels'], 1),
  'coverage[n=7]@5': ('SampledCoverage.over[n_drawn=7]@5', ['labels'], 1),
  'entropy@5': ('Entropy.over@5', ['correct@5'], 1),
  'ILD@5': ('Diversity.over@5', ['documents with gold'], 1),
  'hP': ('HierarchicalPrecision.over', ['HierarchicalPrecision.under'], 1),
}
LEVEL = '[level=2]'
TUNED = 'HierarchicalPrecision.over-tuned', ['HierarchicalRecall.under-tuned']
OURS |= {
  'hR-tuned': (*TUNED, 1),
  f'micro-R{LEVEL}': (
    *(f'LevelPrecision.over{LEVEL}', [f'LevelRecall.under{LEVEL}'], 1),
  ),
}
COUNTED = 'NormalPSRByCount.over@5'
LARGEST = 'labels up to largest@5'
THEIRS = {
  (PYXCLIB, 'P@5'): ('Precision.over@5', ['documents'], 5),
  (PYXCLIB, 'PSnDCG@5'): ('PSnDCGOfMeans.over@5', ['PSnDCGOfMeans.under@5'], 1),
  (PYXCLIB, 'PSR-norm@5'): (COUNTED, ['NormalPSRByCount.under@5'], 1),
  (NAPKINXC, 'PSR@5'): (COUNTED, ['documents'], 1),
  (NAPKINXC, 'coverage@5'): ('Coverage.over@5', ['labels with gold'], 1),
  (NAPKINXC, 'macro-F1@5'): ('MacroF1AtThreshold.over@5', [LARGEST], 1),
  (NAPKINXC, 'macro-P@5'): ('MacroPrecision.over@5', [LARGEST], 1),
  (ATTENTIONXML, 'PSnDCG@5'): ('PSnDCG.over@5', ['PSnDCG.under@5'], 1),
  (LMTC, 'P@5'): ('Precision.over@5', ['documents with gold'], 5),
  (PECOS, 'R@5'): ('Recall.over@5', ['documents'], 1),
}


@pytest.mark.parametrize(
  ('protocol', 'metric', 'wanted'),
  [
    *((XJAX, metric, wanted) for metric, wanted in OURS.items()),
    *((who, metric, wanted) for (who, metric), wanted in THEIRS.items()),
  ],
  ids=lambda x: getattr(x, 'name', x if isinstance(x, str) else ''),
)
def test_what_a_metric_is_made_of(protocol, metric, wanted):
  measure = table(protocol)[metric]
  over, under, per = wanted
  assert (measure.over, list(measure.under)) == (over, under)
  scale = 2.0 if metric.startswith('micro-F1') else 1.0
  if metric != 'entropy@5':
    sums = {over: 7.0, **dict.fromkeys(under, 3.0)}
    assert measure.value(sums) == scale * 7 / (per * (3 * len(under)))


def test_every_protocol_prints_its_kinds_and_no_others():
  for protocol in PROTOCOLS.values():
    assert {kind_of(name) for name in table(protocol)} == set(protocol.kinds)
  assert list(table(PECOS)) == ['P@1', 'P@5', 'R@1', 'R@5']


def test_the_order_of_a_table():
  names = list(table(XJAX, ks=(1, 2, 10)))
  # Metrics of one kind stand together.
  kinds = [kind_of(name) for name in names]
  assert sorted(kinds, key=list(dict.fromkeys(kinds)).index) == kinds
  assert names[:4] == ['P@1', 'P@2', 'P@10', 'R@1']
  assert 'ILD@1' not in names and 'ILD@2' in names
  at = names.index('macro-F1@1[1-9]')
  assert names[at + 1] == 'macro-F1@1[1000+]'


def test_thresholds_and_bins_are_those_there_are():
  bare = table(XJAX, thresholds=('',), bins=())
  assert 'micro-F1' in bare and 'micro-F1-tuned' not in bare
  assert not any(name.startswith('macro-F1@5[') for name in bare)
  form = SumLayout(alphas=(), draws=())
  names = measures(XJAX, MetricPoints((5,)), form)
  assert not any('coverage[' in name or name == 'micro-F1' for name in names)
