"""Checks that label costs are read from JSON lines or refused with the line."""

import gzip

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import DataError
from xjax.judge.files.label_costs import read_label_costs

INDEX = {'a': 0, 'b': 1, 'ä c': 2}


def test_labels_without_a_weight_weigh_1(tmp_path):
  path = tmp_path / 'costs.jsonl'
  text = '{"id": "ä c", "weight": 2.5}\n\n{"id": "a", "weight": 0}\n'
  path.write_text(text)
  np.testing.assert_array_equal(read_label_costs(path, INDEX), [0, 1, 2.5])
  zipped = tmp_path / 'costs.jsonl.gz'
  zipped.write_bytes(gzip.compress(text.encode()))
  np.testing.assert_array_equal(read_label_costs(zipped, INDEX), [0, 1, 2.5])


NO_NUMBER = 'weight is not a finite number'


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('', 'no label in it'),
    ('{"id": "a", "weight": 1}\n{"id": "x", "weight": 1}', ":2: 'x' is not a"),
    ('{"id": "a", "weight": 1}\n{"id": "a", "weight": 2}', 'already on line 1'),
    ('{"id": "a", "weight": -1}', NO_NUMBER),
    ('{"id": "a", "weight": 1e999}', NO_NUMBER),
    ('{"id": "a", "weight": ' + '9' * 400 + '}', NO_NUMBER),
    ('{"id": "a", "weight": true}', NO_NUMBER),
    ('{"id": "a"}', NO_NUMBER),
    ('{"weight": 1}', "no field 'id'"),
    ('a\t1', ':1: not JSON'),
  ],
)
def test_what_cannot_be_is_told_with_its_line(tmp_path, text, says):
  path = tmp_path / 'costs.jsonl'
  path.write_text(text)
  message = error_text(read_label_costs, path, INDEX)
  assert 'costs.jsonl' in message and says in message


def test_no_such_file(tmp_path):
  with pytest.raises(DataError, match='none.jsonl: cannot be read'):
    read_label_costs(tmp_path / 'none.jsonl', INDEX)
