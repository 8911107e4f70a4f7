"""Hits by place and by label, against the metrics."""

import dataclasses

import numpy as np
import pytest

from tests.report.conftest import texts
from xjax.core.types import PAD, Ragged
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.report.figures.tally import label_tally, tally
from xjax.report.tables.systems import worst_labels


def test_curves_are_the_metrics(predictions_of):
  p = predictions_of()
  metrics = judge(p, Criteria(ks=range(1, 9)))['xjax']['all']
  curves = tally(p).curves
  for kind, values in curves.items():
    for k, value in enumerate(values, 1):
      assert value == pytest.approx(metrics[f'{kind}@{k}'], abs=1e-15)
  # The curves meet where the paper's Fig. 2 shows it.
  assert curves['RP'][0] == curves['P'][0]
  assert curves['RP'][-1] == curves['R'][-1] == 1


def test_lists_that_end_early_and_documents_without_gold(predictions_of):
  p = predictions_of()
  ids, scores = p.lists['all'].ids.copy(), p.lists['all'].scores.copy()
  ids[:, 2:], scores[:, 2:] = PAD, -np.inf
  short = dataclasses.replace(p, lists={'all': LabelLists(ids, scores)})
  curves = tally(short).curves
  assert (curves['R'][1:] == tally(p).curves['R'][1]).all()
  rows = [p.gold[row].tolist() for row in range(len(p))]
  some = dataclasses.replace(p, gold=Ragged.of([[], *rows[1:]]))
  metrics = judge(some, Criteria(ks=(5,)))['xjax']['all']
  assert tally(some).curves['RP'][4] == pytest.approx(metrics['RP@5'])
  assert not tally(some).hits[0].any()


def test_labels_are_the_metrics(predictions_of):
  p = predictions_of()
  metrics = judge(p, Criteria(ks=(3,)))['xjax']['all']
  counts = label_tally(p, tally(p).hits, 3)
  assert counts.f1.mean() == pytest.approx(metrics['macro-F1@3'], abs=1e-15)
  assert (counts.correct > 0).mean() == metrics['coverage@3']
  assert counts.predicted.sum() == 3 * len(p)
  assert counts.gold.sum() == len(p.gold.values)
  assert (counts.lost == counts.gold - counts.correct).all()


def test_worst_labels_by_hand(predictions_of):
  p = predictions_of()
  run = type('JudgedRun', (), {'predictions': p})
  counts = dataclasses.replace(
    label_tally(p, tally(p).hits, 3),
    correct=np.array([5, 1, 0, 0, 2, 3, 0, 0]),
    predicted=np.array([9, 1, 0, 2, 2, 3, 4, 0]),
    gold=np.array([9, 2, 4, 4, 3, 3, 0, 0]),
  )
  table = worst_labels(run, {'l2': 'two'}, counts, 3)
  rows = texts(table)
  # Of the 19 gold labels with 10 to 99 training documents, 13 are missed. So
  # l0 is missed in 4 documents of 9, which is less than expected.
  assert [row[0] for row in rows] == ['l2', 'l3', 'l4']
  counted = ['l2', 'two', '30', '4', '0', '0', '4', '2.7', '1.3', '0.0000']
  assert rows[0] == counted
  assert rows[2][-4:] == ['1', '0.5', '0.5', '0.8000']
  assert len(worst_labels(run, {}, counts, 3, n=2).rows) == 2


def test_documents_are_counted_in_blocks(predictions_of, monkeypatch):
  whole = tally(predictions_of())
  monkeypatch.setattr('xjax.report.figures.tally._ROWS', 5)
  parts = tally(predictions_of())
  np.testing.assert_array_equal(parts.hits, whole.hits)
  for kind, values in whole.curves.items():
    np.testing.assert_allclose(parts.curves[kind], values, rtol=1e-13)
