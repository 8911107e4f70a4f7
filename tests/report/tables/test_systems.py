"""Tests the tables about systems and about the judged data."""

import dataclasses
import pathlib

import numpy as np

from tests.report.conftest import texts
from xjax.core.types import Ragged
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.models.trees.tree_model import TreeModel
from xjax.report.runs import Group, JudgedRun
from xjax.report.tables.systems import (
  bin_table,
  config_table,
  corpus_table,
  cost_table,
  label_space_remarks,
)
from xjax.train.run_record import RunRecord

RECORD = RunRecord(
  75.4, 2_340_000_000, None, 9, 999, '2026-11-24T01:02:03', '1'
)


def group(name, config, *records):
  path = pathlib.Path('/r')
  runs = [
    JudgedRun(name, path, 'dev', config, {}, None, record=record)
    for record in records or (None,)
  ]
  return Group(name, tuple(runs))


def test_costs_of_every_run():
  quick = dataclasses.replace(RECORD, seconds=3.21, model_bytes=45_600)
  table = cost_table(
    [group('a', {'seed': 0}, RECORD, quick), group('file', None)]
  )
  first = ['a', '2026-11-24', '1', '0:01:15', '2.3 GB', '999 B']
  assert texts(table)[0] == first
  assert texts(table)[1][3:] == ['3.2 s', '2.3 GB', '45.6 KB']
  assert texts(table)[2] == ['file', *'-----']
  assert [row[0].below for row in table.rows] == ['seed 0', 'seed 0', '']
  on_gpu = dataclasses.replace(RECORD, device_memory=5)
  assert texts(cost_table([group('a', None, on_gpu)]))[0][-1] == '5 B'


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


def cells(table):
  return {row[0].text: row[1].text for row in table.rows}


def by_hand(predictions_of, **changes):
  rows = [[0], [], [0, 1, 2], [0, 7]] + [[1]] * 8
  return dataclasses.replace(predictions_of(), gold=Ragged.of(rows), **changes)


def test_counts_by_hand(predictions_of):
  # The labels have 60, 55, 30, 12, 9, 3, 1 and 0 training documents.
  assert cells(corpus_table(by_hand(predictions_of))) == {
    'documents (N)': '12',
    'documents without gold': '1',
    'labels (L)': '8',
    'labels that are gold in a document': '4',
    'labels per document, mean': '1.17',
    'labels per document, median': '1.00',
    'labels per document, maximum': '3',
    'judged documents per label, mean': '1.75',
    'training documents': '100',
    'training documents per label, mean': '21.25',
    'training documents per label, median': '10.50',
    'labels: frequent (50 training documents or more)': '2',
    'labels: few (1 to 49 training documents)': '5',
    'labels: zero (no training documents)': '1',
  }


def test_held_out_labels_are_counted(predictions_of):
  held_out = np.array([7], np.int32)
  found = cells(corpus_table(by_hand(predictions_of, held_out=held_out)))
  assert found['labels: held out of training'] == '1'


def test_without_training_labels(predictions_of):
  found = cells(corpus_table(predictions_of(n_train=0)))
  assert found['training documents'] == 'not known'
  assert not any(name.startswith('labels: ') for name in found)


def test_bins_by_hand(predictions_of):
  assert texts(bin_table(by_hand(predictions_of))) == [
    ['0', '1', '1', '0.0714'],
    ['1-9', '3', '0', '0.0000'],
    ['10-99', '4', '13', '0.9286'],
  ]


def test_other_label_spaces_are_told(predictions_of):
  one, other = predictions_of(), predictions_of(n_train=0)
  assert label_space_remarks({'a': one, 'b': one}) == []
  (said,) = label_space_remarks({'a': one, 'b': other})
  assert said.startswith(
    'b has 8 labels and 0 training documents, but a has 8 '
  )
