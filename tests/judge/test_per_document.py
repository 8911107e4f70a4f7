"""Checks metrics document by document, and that they add up."""

import dataclasses
import json
import math

import numpy as np
import pytest
import scipy.sparse

from tests.judge.test_intervals import L, predictions
from xjax.core.types import PAD
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.judge import document_lines, judge
from xjax.judge.metrics.protocols import LMTC, NAPKINXC, PECOS, PYXCLIB, XJAX

KS = (1, 3)
PREDICTIONS = predictions(1)
COUNTS, LABELS = PREDICTIONS.train_counts, PREDICTIONS.labels


def criteria(*protocols, ks=KS):
  vectors = np.random.default_rng(1).random((L, 3))
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  return Criteria(
    ks=ks,
    protocols=protocols or (XJAX,),
    vectors_LD=scipy.sparse.csr_array(vectors),
    ranks_LK=np.random.default_rng(2).random((L, max(ks))),
  )


def rows_of(by):
  return [json.loads(line) for line in document_lines(PREDICTIONS, by)]


MEANS = (
  *('P', 'R', 'RP', 'nDCG', 'nDCG-full', 'Hit', 'PSP-raw', 'PSnDCG-full'),
  *('PSR', 'weighted'),
)


def test_means_over_documents_with_gold_are_the_metrics():
  rows = rows_of(criteria())
  values = judge(PREDICTIONS, criteria())['xjax']['all']
  with_gold = [row for row in rows if row['gold']]
  assert 0 < values['n_skipped'] == len(rows) - len(with_gold)
  names = [f'{kind}@{k}' for kind in MEANS for k in KS]
  for name in (*names, 'R-Precision', 'ILD@3'):
    each = [row[name] for row in with_gold]
    assert math.fsum(each) / len(each) == pytest.approx(values[name], rel=1e-12)
  # One document has no F1 and no coverage, which are metrics of labels.
  assert not any('F1' in name or 'coverage' in name for name in rows[0])


def test_ratios_of_sums_are_of_the_document_and_add_up():
  rows = rows_of(criteria())
  values = judge(PREDICTIONS, criteria())['xjax']['all']
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
    found = math.fsum(over) / math.fsum(under)
    assert found == pytest.approx(values[f'PSP@{k}'], rel=1e-12)


def test_a_document():
  names = ('é', *PREDICTIONS.doc_ids[1:])
  named = dataclasses.replace(PREDICTIONS, doc_ids=names)
  line = next(document_lines(named, criteria()))
  assert '\n' not in line and '"é"' in line
  row = json.loads(line)
  listed = PREDICTIONS.lists['all'].ids[0]
  assert row['gold'] == [LABELS[g] for g in PREDICTIONS.gold[0]]
  assert row['labels'] == [LABELS[i] for i in listed[:3] if i != PAD]
  assert list(row)[:4] == ['id', 'gold', 'labels', 'P@1']


def test_a_list_that_is_too_short_has_no_value():
  by = criteria(ks=(1, 7))
  cut = (PREDICTIONS.lists['all'].ids[:, -1] != PAD).tolist()
  rows = rows_of(by)
  assert any(cut) and not all(cut)
  for row, ended in zip(rows, cut, strict=True):
    found = set(row['labels']) >= set(row['gold'])
    known = bool(row['gold']) and (not ended or found)
    assert (row['P@7'] is not None) == known
    # Nothing is known about labels that are not listed, gold or not.
    assert (row['ILD@7'] is not None) == (bool(row['gold']) and not ended)
    assert (row['P@1'] is not None) == bool(row['gold'])
  values = judge(PREDICTIONS, by)
  assert values['xjax']['all']['ILD@7'] is None
  n = sum(ended and bool(row['gold']) for row, ended in zip(rows, cut))
  assert values['notes']['all']['ILD@7'].startswith(f'{n} of ')


@pytest.mark.parametrize('protocol', [LMTC, PECOS, PYXCLIB, NAPKINXC])
def test_another_protocol(protocol):
  rows = rows_of(criteria(protocol, XJAX))
  metrics = set(rows[0]) - {'id', 'gold', 'labels'}
  assert metrics and all(map(protocol.prints, metrics))
  # A document's own values do not depend on how a protocol averages documents.
  ours = rows_of(criteria())
  for name in ('P@1', 'R@3'):
    assert [row[name] for row in rows] == [row[name] for row in ours]
