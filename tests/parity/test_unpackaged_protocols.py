"""Checks lmtc and attentionxml, which are no packages, by values on paper.

The values follow from their conventions as the metric definitions and their
public code have them; nothing here was printed by them.
"""

import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.types import PAD, ScoreKind
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.metrics.protocols import ATTENTIONXML, LMTC, XJAX

# Labels 0 and 2 are frequent for lmtc, which asks for more than 50 documents;
# 1 and 3 are few, 4 is zero-shot.
COUNTS = np.array([60, 50, 51, 3, 0], np.int32)
N_TRAIN = 200
# T is 1 / log2(3); I2 and I3 are the DCG of ideal lists of two and three.
T = 0.6309297535714575
I2 = 1.6309297535714575
I3 = 2.1309297535714575


def predictions(rows, golds, depth=6):
  """Returns predictions with these ranked lists and gold labels."""
  ids = np.full((len(rows), depth), PAD, np.int32)
  for i, row in enumerate(rows):
    ids[i, : len(row)] = row
  scores = np.float32([0.9, 0.8, 0.5, 0.2, 0.1, -np.inf])
  values = np.where(ids == PAD, -np.inf, scores)
  kind = ScoreKind.PROBABILITY
  return system(ids, values, golds, COUNTS, score_kind=kind, n_train=N_TRAIN)


ROWS = [[1, 0, 2, 3, 4], [0, 3, 1, 4, 2], [2, 1, 0, 3, 4]]
GOLDS = [[1, 2], [3], []]


def judged(protocol, rows=ROWS, golds=GOLDS, ks=(1, 2, 5)):
  criteria = Criteria(ks, protocols=(protocol,))
  return judge(predictions(rows, golds), criteria)[protocol.name]


@pytest.mark.parametrize(
  ('protocol', 'part', 'expected'),
  [
    # The hits are at places 1 and 3, and at 2; the third document is skipped.
    (
      LMTC,
      'all',
      {
        'P@1': (1 + 0) / 2,
        'P@5': (2 / 5 + 1 / 5) / 2,
        'R@2': (1 / 2 + 1) / 2,
        'RP@2': (1 / 2 + 1) / 2,
        'nDCG@2': (1 / I2 + T) / 2,
        'nDCG@5': (1.5 / I2 + T) / 2,
      },
    ),
    # Cut to labels 0 and 2, the first document has the list 0 2 and gold 2; no
    # other document has gold there. Beyond the labels of a slice, lmtc divides
    # by k all the same.
    (
      LMTC,
      'frequent',
      {'P@1': 0, 'P@2': 1 / 2, 'R@2': 1, 'RP@2': 1, 'nDCG@2': T, 'n_docs': 1}
      | {'P@5': 1 / 5, 'R@5': 1, 'RP@5': 1, 'nDCG@5': T, 'n_labels': 2},
    ),
    # Cut to labels 1 and 3, the lists are 1 3 with gold 1, and 3 1 with gold 3.
    # A label of fifty documents is few.
    (
      LMTC,
      'few',
      {'P@1': 1, 'RP@2': 1, 'nDCG@2': 1, 'n_docs': 2, 'n_labels': 2},
    ),
    # xjax calls a label frequent from 50 documents on: 1 0 2 with gold 1 2.
    (XJAX, 'frequent', {'P@1': 1, 'n_labels': 3}),
    # lmtc's gain of a hit, 2^1 - 1, is the same 1 that xjax adds.
    (XJAX, 'all', {'nDCG@5': (1.5 / I2 + T) / 2}),
    # F1 is of probabilities above a half, and of all documents. Each document
    # has two predictions (0.5 is none): 1 0, 0 3, 2 1. Label 0 has none of two
    # right, and label 1 one of two. Label 2 has one wrong prediction and one
    # gold. Label 3 is right, and label 4 has neither.
    (
      LMTC,
      'all',
      {
        'micro-F1': 2 * 2 / (6 + 3),
        'macro-F1': (2 / 3 + 1) / 5,
        'weighted-F1': (2 / 3 + 0 + 1) / 3,
      },
    ),
    # A slice's F1 counts the labels of the slice alone.
    (LMTC, 'frequent', {'micro-F1': 0, 'macro-F1': 0}),
    (LMTC, 'few', {'micro-F1': 2 * 2 / (3 + 2), 'macro-F1': (2 / 3 + 1) / 2}),
    # Documents without gold count.
    (
      ATTENTIONXML,
      'all',
      {
        'P@1': (1 + 0 + 0) / 3,
        'P@3': (2 / 3 + 1 / 3 + 0) / 3,
        'nDCG@1': 1 / 3,
        'nDCG@3': (1.5 / I2 + T) / 3,
      },
    ),
  ],
)
def test_values_on_paper(protocol, part, expected):
  ks = (1, 3) if protocol is ATTENTIONXML else (1, 2, 5)
  values = judged(protocol, ks=ks)[part]
  assert {n: values[n] for n in expected} == pytest.approx(expected, abs=1e-14)
  if protocol is LMTC:
    assert judged(protocol)['zero']['P@1'] is None


def test_attentionxml_divides_sums():
  w = propensity_weights(COUNTS, N_TRAIN)
  # Label 4 was not trained, so it weighs most. It is gold in document three.
  golds = [[1, 2], [3], [4]]
  best = max(w[1], w[2]), min(w[1], w[2])
  assert w.argmax() == 4
  values = judged(ATTENTIONXML, ROWS, golds, (1, 3))['all']
  ideal = best[0] + best[1] * T + w[3] + w[4]
  expected = {
    'PSP@1': w[1] / (best[0] + w[3] + w[4]),
    'PSP@3': (w[1] + w[2] + w[3]) / (sum(best) + w[3] + w[4]),
    'PSnDCG@3': (w[1] + w[2] / 2 + w[3] * T) / ideal,
  }
  assert {n: values[n] for n in expected} == pytest.approx(expected, abs=1e-14)
  # One more document without gold changes nothing.
  after = judged(ATTENTIONXML, [*ROWS, [0]], [*golds, []], (3,))['all']
  assert after['PSnDCG@3'] == pytest.approx(values['PSnDCG@3'], abs=1e-15)


def test_attentionxml_divides_short_lists_by_k():
  values = judged(ATTENTIONXML, [[1], [0, 3]], [[1, 2, 3], [3]], (3,))['all']
  assert values['P@3'] == pytest.approx((1 / 3 + 1 / 3) / 2)
  assert values['nDCG@3'] == pytest.approx((1 / I3 + T) / 2)


@pytest.mark.parametrize(
  ('protocol', 'names'),
  [
    (LMTC, 'P@5 R@5 RP@5 nDCG@5 micro-F1 macro-F1 weighted-F1'),
    (ATTENTIONXML, 'P@5 nDCG@5 PSP@5 PSnDCG@5'),
  ],
)
def test_these_alone_are_printed(protocol, names):
  counts = {'n_docs', 'n_skipped', 'n_labels'}
  assert set(judged(protocol, ks=(5,))['all']) == counts | {*names.split()}
