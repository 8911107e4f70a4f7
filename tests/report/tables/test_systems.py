"""Tests the tables about systems and about the judged data."""

import dataclasses
import pathlib

import numpy as np
import pytest

from tests.report.conftest import texts
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.models.trees.tree_model import TreeModel
from xjax.report.runs import JudgedRun, SystemRuns
from xjax.report.tables.systems import (
  config_table,
  cost_table,
  label_space_remarks,
  label_tally,
  worst_labels,
)
from xjax.train.run_record import RunRecord

WHEN = '2026-11-24T01:02:03'
RECORD = RunRecord(75.4, 2_340_000_000, None, 9, 999, WHEN, '1')


def group(name, config, *records):
  path = pathlib.Path('/r')
  runs = [
    JudgedRun(name, path, 'dev', config, {}, None, record=record)
    for record in records or (None,)
  ]
  return SystemRuns(name, tuple(runs))


def test_costs_of_every_run():
  quick = dataclasses.replace(RECORD, seconds=3.21, model_bytes=45_600)
  run = group('a', {'seed': 0}, RECORD, quick)
  table = cost_table([run, group('file', None)])
  first = ['a', '2026-11-24', '1', '0:01:15', '2.34GB', '999B']
  assert texts(table)[0] == first
  assert texts(table)[1][3:] == ['3.2 s', '2.34GB', '45.6kB']
  assert texts(table)[2] == ['file', *'-----']
  assert [row[0].below for row in table.rows] == ['seed 0', 'seed 0', '']
  on_gpu = dataclasses.replace(RECORD, device_memory=5)
  assert texts(cost_table([group('a', None, on_gpu)]))[0][-1] == '5.00B'


def test_only_fields_that_differ_are_shown():
  one, other, tree = Config(), Config(), Config()
  other.model.encoder.units = 77
  other.seed = 3
  tree.model = TreeModel()
  configs = [to_json(config) for config in (one, other, tree)]
  groups = [group(n, c) for n, c in zip('abc', configs)]
  units = str(one.model.encoder.units)
  assert texts(config_table(groups[:2])) == [
    ['seed', '0', '3'],
    ['model.encoder.units', units, '77'],
  ]
  # The fields of different kinds of models are not comparable.
  assert texts(config_table(groups)) == [
    ['seed', '0', '3', '0'],
    ['model.kind', 'NeuralModel', 'NeuralModel', 'TreeModel'],
    ['model.encoder.units', units, '77', '-'],
  ]
  assert config_table([groups[0], group('file', None)]) is None


def test_other_label_spaces_are_told(predictions_of):
  one, other = predictions_of(), predictions_of(n_train=0)
  assert label_space_remarks({'a': one, 'b': one}) == []
  (said,) = label_space_remarks({'a': one, 'b': other})
  says = 'b has 8 labels and 0 training documents, but a has 8 '
  assert said.startswith(says)


def test_labels_are_the_metrics(predictions_of):
  p = predictions_of()
  metrics = judge(p, Criteria(ks=(3,)))['xjax']['all']
  counts = label_tally(p, 3)
  assert counts.f1.mean() == pytest.approx(metrics['macro-F1@3'], abs=1e-15)
  assert (counts.correct > 0).mean() == metrics['coverage@3']
  assert counts.predicted.sum() == 3 * len(p)
  assert counts.gold.sum() == len(p.gold.values)
  assert (counts.lost == counts.gold - counts.correct).all()


def test_worst_labels_by_hand(predictions_of):
  p = predictions_of()
  run = JudgedRun('a', pathlib.Path('/r'), 'dev', None, {}, p)
  counts = dataclasses.replace(
    label_tally(p, 3),
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
