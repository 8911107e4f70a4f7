"""Tests the tables that describe the judged data in numbers."""

import dataclasses

import numpy as np

from tests.report.conftest import texts
from xjax.core.types import Ragged
from xjax.report.tables.corpus import (
  bin_table,
  corpus_table,
  label_space_remarks,
)


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
