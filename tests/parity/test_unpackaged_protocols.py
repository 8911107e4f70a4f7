"""Checks lmtc and attentionxml, which are no packages, by values on paper.

The values follow from their conventions as the metric definitions and their
public code have them; nothing here was printed by them.
"""

import numpy as np
import pytest

from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.protocols import ATTENTIONXML, LMTC, XJAX
from xjax.judge.predictions import Predictions

# Labels 0 and 2 are frequent for lmtc, which asks for more than 50 documents;
# 1 and 3 are few, 4 is zero-shot.
COUNTS = np.array([60, 50, 51, 3, 0], np.int32)
N_TRAIN = 200
# T is 1 / log2(3); I2 and I3 are the DCG of ideal lists of two and three.
T = 0.6309297535714575
I2 = 1.6309297535714575
I3 = 2.1309297535714575


def predictions(rows, golds, scores=None, depth=6):
  """Returns predictions with these ranked lists, scores and gold labels."""
  ids = np.full((len(rows), depth), PAD, np.int32)
  values = np.full((len(rows), depth), -np.inf, np.float32)
  for i, row in enumerate(rows):
    ids[i, : len(row)] = row
    values[i, : len(row)] = (scores or [0.9, 0.8, 0.5, 0.2, 0.1])[: len(row)]
  return Predictions(
    score_kind=ScoreKind.PROBABILITY,
    n_scored=5,
    n_train=N_TRAIN,
    doc_ids=tuple(f'd{i}' for i in range(len(rows))),
    labels=tuple(f'l{i}' for i in range(5)),
    train_counts=COUNTS,
    lists={'all': LabelLists(ids, values)},
    gold=Ragged.of(golds),
  )


ROWS = [[1, 0, 2, 3, 4], [0, 3, 1, 4, 2], [2, 1, 0, 3, 4]]
GOLDS = [[1, 2], [3], []]


def lmtc(*args, ks=(1, 2, 5), protocol=LMTC):
  return judge(predictions(*args), Criteria(ks, protocols=(protocol,)))[
    protocol.name
  ]


def assert_has(values, table):
  assert {name: values[name] for name in table} == pytest.approx(
    table, abs=1e-14
  )


def test_lmtc_ranks_within_a_slice_and_skips_documents_without_gold_there():
  found = lmtc(ROWS, GOLDS)
  # Cut to labels 0 and 2, the first document has the list 0 2 and gold 2; no
  # other document has gold there.
  assert_has(
    found['frequent'],
    {'P@1': 0, 'P@2': 1 / 2, 'R@2': 1, 'RP@2': 1, 'nDCG@2': T, 'n_docs': 1},
  )
  # Cut to labels 1 and 3, the lists are 1 3 with gold 1, and 3 1 with gold 3.
  assert_has(found['few'], {'P@1': 1, 'RP@2': 1, 'nDCG@2': 1, 'n_docs': 2})
  assert found['zero']['P@1'] is None


def test_lmtc_calls_a_label_of_fifty_documents_few():
  # xjax calls a label frequent from 50 documents on: 1 0 2 with gold 1 2.
  ours = lmtc(ROWS, GOLDS, protocol=XJAX)['frequent']
  assert_has(ours, {'P@1': 1, 'n_labels': 3})
  assert_has(lmtc(ROWS, GOLDS)['frequent'], {'P@1': 0, 'n_labels': 2})
  assert_has(lmtc(ROWS, GOLDS)['few'], {'n_labels': 2})


def test_lmtc_means():
  # The hits are at places 1 and 3, and at 2; the third document is skipped.
  assert_has(
    lmtc(ROWS, GOLDS)['all'],
    {
      'P@1': (1 + 0) / 2,
      'P@5': (2 / 5 + 1 / 5) / 2,
      'R@2': (1 / 2 + 1) / 2,
      'RP@2': (1 / 2 + 1) / 2,
      'nDCG@2': (1 / I2 + T) / 2,
      'nDCG@5': (1.5 / I2 + T) / 2,
    },
  )


def test_lmtc_gains_are_of_one():
  # lmtc's gain of a hit, 2^1 - 1, is the same 1 that xjax adds.
  ours = lmtc(ROWS, GOLDS, protocol=XJAX)['all']
  assert lmtc(ROWS, GOLDS)['all']['nDCG@5'] == ours['nDCG@5']


def test_lmtc_divides_by_k_beyond_the_labels_of_a_slice():
  # The slice has two labels, one of them gold, but k = 5 is asked for.
  frequent = lmtc(ROWS, GOLDS)['frequent']
  assert_has(frequent, {'P@5': 1 / 5, 'R@5': 1, 'RP@5': 1, 'nDCG@5': T})


def test_lmtc_f1_is_of_probabilities_above_a_half_and_all_documents():
  # Each document has two predictions (0.5 is none): 1 0, 0 3, 2 1.
  # Label 0 has none of two right, and label 1 one of two. Label 2 has one wrong
  # prediction and one gold. Label 3 is right, and label 4 has neither.
  found = lmtc(ROWS, GOLDS)
  assert_has(
    found['all'],
    {
      'micro-F1': 2 * 2 / (6 + 3),
      'macro-F1': (2 / 3 + 1) / 5,
      'weighted-F1': (2 / 3 + 0 + 1) / 3,
    },
  )
  # A slice's F1 counts the labels of the slice alone.
  assert_has(found['frequent'], {'micro-F1': 0, 'macro-F1': 0})
  assert_has(
    found['few'], {'micro-F1': 2 * 2 / (3 + 2), 'macro-F1': (2 / 3 + 1) / 2}
  )


def test_lmtc_prints_these_alone():
  assert set(lmtc(ROWS, GOLDS, ks=(5,))['all']) == {
    *('n_docs', 'n_skipped', 'n_labels', 'P@5', 'R@5', 'RP@5', 'nDCG@5'),
    *('micro-F1', 'macro-F1', 'weighted-F1'),
  }


def attentionxml(rows, golds, ks):
  criteria = Criteria(ks, protocols=(ATTENTIONXML,))
  return judge(predictions(rows, golds), criteria)['attentionxml']['all']


def test_attentionxml_counts_documents_without_gold():
  assert_has(
    attentionxml(ROWS, GOLDS, (1, 3)),
    {
      'P@1': (1 + 0 + 0) / 3,
      'P@3': (2 / 3 + 1 / 3 + 0) / 3,
      'nDCG@1': 1 / 3,
      'nDCG@3': (1.5 / I2 + T) / 3,
    },
  )


def test_attentionxml_divides_sums():
  w = propensity_weights(COUNTS, N_TRAIN)
  # Label 4 was not trained, so it weighs most. It is gold in document three.
  golds = [[1, 2], [3], [4]]
  best = max(w[1], w[2]), min(w[1], w[2])
  assert w.argmax() == 4
  assert_has(
    attentionxml(ROWS, golds, (1, 3)),
    {
      'PSP@1': w[1] / (best[0] + w[3] + w[4]),
      'PSP@3': (w[1] + w[2] + w[3]) / (sum(best) + w[3] + w[4]),
      'PSnDCG@3': (w[1] + w[2] / 2 + w[3] * T)
      / (best[0] + best[1] * T + w[3] + w[4]),
    },
  )
  # One more document without gold changes nothing.
  before = attentionxml(ROWS, golds, (3,))['PSnDCG@3']
  after = attentionxml([*ROWS, [0]], [*golds, []], (3,))['PSnDCG@3']
  assert after == pytest.approx(before, abs=1e-15)


def test_attentionxml_divides_short_lists_by_k():
  found = attentionxml([[1], [0, 3]], [[1, 2, 3], [3]], (3,))
  assert_has(found, {'P@3': (1 / 3 + 1 / 3) / 2, 'nDCG@3': (1 / I3 + T) / 2})


def test_attentionxml_prints_these_alone():
  assert set(attentionxml(ROWS, GOLDS, (5,))) == {
    *('n_docs', 'n_skipped', 'n_labels', 'P@5', 'nDCG@5', 'PSP@5'),
    'PSnDCG@5',
  }
