"""Predictions as JSON lines."""

import json

import numpy as np

from xjax.core.types import PAD, ScoreKind
from xjax.data.schema import Label
from xjax.judge.calibration import readable_scores
from xjax.judge.prediction_lines import prediction_line

LABELS = [Label('c_1', 'food additive'), Label('c_2', 'cérale')]


def test_a_line():
  ids = np.array([1, 0, PAD], np.int32)
  scores = np.array([0.5, 0.25, 0], np.float32)
  line = prediction_line('d', ids, scores, LABELS)
  assert '\n' not in line and 'cérale' in line
  first = {'id': 'c_2', 'name': 'cérale', 'score': 0.5}
  second = {'id': 'c_1', 'name': 'food additive', 'score': 0.25}
  row = json.loads(line)
  assert row == {'id': 'd', 'labels': [first, second]}
  assert list(row) == ['id', 'labels']


def test_an_empty_list():
  ids, scores = np.array([PAD], np.int32), np.array([-np.inf], np.float32)
  line = prediction_line('d', ids, scores, LABELS)
  assert json.loads(line) == {'id': 'd', 'labels': []}


def test_scores_are_probabilities_where_the_kind_allows():
  scores = np.array([-1e30, -800, -1, 0, 1, 800, 1e30], np.float32)
  probabilities = readable_scores(scores, ScoreKind.LOGIT)
  np.testing.assert_allclose(
    probabilities, [0, 0, 1 / (1 + np.e), 0.5, np.e / (1 + np.e), 1, 1]
  )
  for kind in (ScoreKind.MARGIN, ScoreKind.PROBABILITY):
    np.testing.assert_array_equal(readable_scores(scores, kind), scores)
