"""Documents shown with their predictions, and beginnings of texts."""

import numpy as np
import pytest

from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.schema import Document, Label, Labels, Split
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.report.terminal.run_summary import example_text, excerpt

LABELS = Labels.of(
  [Label('a', 'agriculture'), Label('b'), Label('c', 'fisheries')]
)
SPLIT = Split(
  name='dev',
  ids=('d1', 'd2', 'd3'),
  gold=Ragged.of([[0, 2], [], [1]]),
  documents=tuple(
    Document(id_, {'text': text})
    for id_, text in [('d1', 'short\ntext'), ('d2', 'word ' * 99), ('d3', 'x')]
  ),
  digest='',
)
PREDICTIONS = Predictions(
  score_kind=ScoreKind.LOGIT,
  n_scored=3,
  n_train=9,
  doc_ids=SPLIT.ids,
  labels=('a', 'b', 'c'),
  train_counts=np.array([5, 1, 0], np.int32),
  lists={
    'all': LabelLists(
      np.array([[0, 1], [2, PAD], [1, 0]], np.int32),
      np.array([[0, -1], [9, -np.inf], [1, 0]], np.float32),
    )
  },
)


def test_gold_and_predicted_stand_side_by_side():
  first, second = example_text(PREDICTIONS, SPLIT, LABELS, n=2).split('\n\n')
  assert first.splitlines() == [
    'd1: short text',
    '  gold      agriculture, fisheries',
    '  predicted agriculture 0.50*, b 0.27',
  ]
  text, gold, predicted = second.splitlines()
  assert text.endswith('word ...')
  assert len(text) <= 79
  assert gold.split() == ['gold', '-']
  assert predicted.split() == ['predicted', 'fisheries', '1.00']


def test_labels_of_one_name_have_their_ids_beside_it():
  labels = [Label('T1', 'Zip'), Label('b', 'b'), Label('T2', 'Zip ')]
  text = example_text(PREDICTIONS, SPLIT, Labels.of(labels), n=1)
  assert text.splitlines()[1:] == [
    '  gold      Zip (T1), Zip (T2)',
    '  predicted Zip (T1) 0.50*, b 0.27',
  ]


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('', ''),
    (' two\n words ', 'two words'),
    ('exactly 10', 'exactly 10'),
    ('eight to ten', 'eight to'),
    ('six or seven', 'six or'),
    ('four toolong', 'four toolo'),
    ('x' * 11, 'x' * 10),
    ('d1: ' + '文' * 30, 'd1: ' + '文' * 6),
  ],
)
def test_ten_columns(text, expected):
  assert excerpt(text, 10) == expected
