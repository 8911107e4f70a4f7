"""Terms of documents and labels, and what lists of a slice may hide."""

import numpy as np

from tests.judge.systems import system
from xjax.core.types import PAD
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.label_metrics import AlphaCoverage
from xjax.judge.metrics.metric import GOLD_LABELS, LabelCounts
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.slice import Slice
from xjax.judge.slice_statistics import SliceStatistics

N, L, K = 24, 12, 6


def statistics(predicted, ks=(1, 3, 6), cuts=()):
  part = Slice.of(predicted, 'all', predicted.masks['all'])
  criteria = Criteria(ks)
  return SliceStatistics.of(part, criteria, [XJAX], dict(cuts), 50)


def documents():
  """Returns random documents, some without gold, some with short lists."""
  rng = np.random.default_rng(0)
  ids = np.full((N, K), PAD, np.int32)
  scores = np.full((N, K), -np.inf, np.float32)
  golds = []
  for row in range(N):
    n = rng.integers(0, K + 1)
    ids[row, :n] = rng.choice(L, n, replace=False)
    scores[row, :n] = np.sort(rng.integers(-4, 5, n))[::-1] / 2
    golds.append(rng.choice(L, rng.integers(0, 5), replace=False))
  return system(ids, scores, golds, np.arange(L) * 5)


def test_a_document_adds_the_same_beside_any_others():
  predicted = documents()
  every = statistics(predicted)
  terms = every.document_terms
  assert len(terms) > 40
  for row in range(N):
    alone = statistics(predicted.of_documents(np.arange(N) == row))
    for name, (value, known) in alone.document_terms.items():
      values_N, known_N = terms[name]
      np.testing.assert_allclose(values_N[row], value[0], rtol=1e-15)
      assert known_N[row] == known[0]


def test_a_list_that_may_hide_decisions_is_counted():
  ids = np.array([[0, 1], [0, PAD], [0, 2]], np.int32)
  scores = np.array([[3, 1], [3, -np.inf], [3, 1]], np.float32)
  golds = [[0, 2], [0, 3], [0]]
  predicted = system(ids, scores, golds, [1] * 4)
  every = statistics(predicted, (1, 3), {'': 1.0, '-tuned': 1.01})
  counts = {name: n for name, (n, _) in every.short.items()}
  # Up to 3, and from 1 on, the first list and the last may go on; nothing more
  # is above 1. All gold labels of the last document are listed.
  for name, n in {'@1': 0, '@3': 2, '': 2, '-tuned': 0}.items():
    assert counts.get(f'predicted{name}', 0) == n
    assert counts.get(f'correct{name}', 0) == n // 2
  precision = {n[-2:]: m for n, m in counts.items() if '.Precision()' in n}
  assert precision == {'@3': 1}
  assert every.sums[GOLD_LABELS] == 3


def test_a_recall_that_is_met_to_the_last_bit():
  for correct, gold, alpha in ((51, 75, 0.68), (7, 10, 0.7), (1, 3, 1 / 3)):
    counts = (np.full(1, float(n)) for n in (correct, correct, gold))
    assert AlphaCoverage(alpha).over(LabelCounts(*counts, 100)) == [1]
