"""Checks metrics document by document, and that they add up."""

import json
import math

import numpy as np
import pytest
import scipy.sparse

from tests.judge.systems import system
from xjax.core.types import PAD, ScoreKind
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.judge import document_lines, judge
from xjax.judge.metrics.protocols import LMTC, NAPKINXC, PECOS, PYXCLIB, XJAX

L, K = 9, 4
KS = (1, 3)
COUNTS = np.array([70, 12, 60, 50, 3, 49, 3, 1, 0], np.int32)
LABELS = ('ä', *(f'l{i}' for i in range(1, L)))


def problem(n_docs=40, seed=0):
  """Lists of four labels, some ending sooner; some documents without gold."""
  rng = np.random.default_rng(seed)
  ids = np.full((n_docs, K), PAD, np.int32)
  scores = np.full((n_docs, K), -np.inf, np.float32)
  for row in range(n_docs):
    n = rng.integers(1, K + 1)
    ids[row, :n] = rng.choice(L, n, replace=False)
    scores[row, :n] = np.sort(rng.normal(size=n))[::-1]
  golds = [
    sorted(rng.choice(L, rng.integers(0, 5), replace=False).tolist())
    for _ in range(n_docs)
  ]
  ids_of_docs = tuple(f'dé{i}' for i in range(n_docs))
  fields = {'doc_ids': ids_of_docs, 'labels': LABELS}
  kind = ScoreKind.MARGIN
  return system(ids, scores, golds, COUNTS, score_kind=kind, **fields)


def criteria(*protocols, ks=KS):
  vectors = np.random.default_rng(1).random((L, 3))
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  return Criteria(
    ks=ks,
    protocols=protocols or (XJAX,),
    vectors_LD=scipy.sparse.csr_array(vectors),
  )


def rows_of(predictions, by):
  return [json.loads(line) for line in document_lines(predictions, by)]


MEANS = (
  *('P', 'R', 'RP', 'nDCG', 'nDCG-full', 'Hit', 'PSP-raw', 'PSnDCG-full'),
  'PSR',
)


def test_means_over_documents_with_gold_are_the_metrics():
  predictions = problem()
  rows = rows_of(predictions, criteria())
  values = judge(predictions, criteria())['xjax']['all']
  with_gold = [row for row in rows if row['gold']]
  assert 0 < values['n_skipped'] == len(rows) - len(with_gold)
  names = [f'{kind}@{k}' for kind in MEANS for k in KS]
  for name in (*names, 'R-Precision', 'ILD@3'):
    each = [row[name] for row in with_gold]
    assert math.fsum(each) / len(each) == pytest.approx(values[name], rel=1e-12)
  # One document has no F1 and no coverage, which are metrics of labels.
  assert not any('F1' in name or 'coverage' in name for name in rows[0])


def test_ratios_of_sums_are_of_the_document_and_add_up():
  predictions = problem()
  rows = rows_of(predictions, criteria())
  values = judge(predictions, criteria())['xjax']['all']
  weight = dict(zip(LABELS, propensity_weights(COUNTS, 100), strict=True))
  for k in KS:
    over, under = [], []
    for row in rows:
      gold = sorted((weight[g] for g in row['gold']), reverse=True)
      hits = [weight[x] for x in row['labels'][:k] if x in row['gold']]
      over.append(math.fsum(hits))
      under.append(math.fsum(gold[:k]))
      if gold:
        assert row[f'PSP@{k}'] == pytest.approx(over[-1] / under[-1])
    assert math.fsum(over) / math.fsum(under) == pytest.approx(
      values[f'PSP@{k}'], rel=1e-12
    )


def test_a_document():
  predictions = problem()
  row = rows_of(predictions, criteria())[0]
  listed = predictions.lists['all'].ids[0]
  assert row['id'] == 'dé0'
  assert row['gold'] == [LABELS[g] for g in predictions.gold[0]]
  assert row['labels'] == [LABELS[i] for i in listed[:3] if i != PAD]
  assert list(row)[:4] == ['id', 'gold', 'labels', 'P@1']
  line = next(iter(document_lines(predictions, criteria())))
  assert '\n' not in line and 'dé0' in line


def test_a_list_that_is_too_short_has_no_value():
  predictions = problem()
  by = criteria(ks=(1, 6))
  cut = (predictions.lists['all'].ids[:, -1] != PAD).tolist()
  rows = rows_of(predictions, by)
  assert any(cut) and not all(cut)
  for row, ended in zip(rows, cut, strict=True):
    found = set(row['labels']) >= set(row['gold'])
    known = bool(row['gold']) and (not ended or found)
    assert (row['P@6'] is not None) == known
    # Nothing is known about labels that are not listed, gold or not.
    assert (row['ILD@6'] is not None) == (bool(row['gold']) and not ended)
    assert (row['P@1'] is not None) == bool(row['gold'])
  values = judge(predictions, by)
  assert values['xjax']['all']['ILD@6'] is None
  n = sum(ended and bool(row['gold']) for row, ended in zip(rows, cut))
  assert values['notes']['all']['ILD@6'].startswith(f'{n} of ')


@pytest.mark.parametrize('protocol', [LMTC, PECOS, PYXCLIB, NAPKINXC])
def test_another_protocol(protocol):
  predictions = problem()
  rows = rows_of(predictions, criteria(protocol, XJAX))
  metrics = set(rows[0]) - {'id', 'gold', 'labels'}
  assert metrics and all(map(protocol.prints, metrics))
  # A document's own values do not depend on how a protocol averages documents.
  ours = rows_of(predictions, criteria())
  for name in ('P@1', 'R@3'):
    assert [row[name] for row in rows] == [row[name] for row in ours]
