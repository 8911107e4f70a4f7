"""Tests that frozen figures are compared by the bounds."""

import dataclasses

import numpy as np
import pytest

from tests.golden.compare import compared, main, read
from tests.golden.record import Frozen, digest

# Places 1 and 2 are near, as are the last place and what may follow it.
IDS = np.array([[4, 2, 7, 1], [3, 0, -1, -1]], np.int32)
SCORES = np.array(
  [[2.0, 0.500001, 0.5, 0.1], [0.3, 0.2, -np.inf, -np.inf]], np.float32
)


def frozen(neural=True, ids=IDS, scores=SCORES, **metrics):
  digests = {'all/ids': digest(ids), 'all/scores': digest(scores)}
  metrics = {'xjax': {'all': {'P@1': 0.5, 'hP': None, **metrics}}}
  facts = {'n_train': '120'}
  lists = {'all': (ids, scores)}
  return Frozen('', neural, facts, digests, lists, metrics)


def placed(row, place, label):
  ids = IDS.copy()
  ids[row, place] = label
  return ids


def scored(row, place, score):
  scores = SCORES.copy()
  scores[row, place] = score
  return scores


def verdict(before, after):
  return compared(before, after)[:2]


def test_a_file_has_what_was_kept(tmp_path):
  path = tmp_path / 'quickstart.tree.npz'
  frozen().save(path)
  found = read(tmp_path)
  assert [*found] == ['quickstart:tree']
  assert verdict(frozen(), found['quickstart:tree']) == ('equal', False)
  Frozen(failure='no memory').save(path)
  assert read(tmp_path)['quickstart:tree'].failure == 'no memory'


@pytest.mark.parametrize(
  'after',
  [
    frozen(scores=scored(1, 0, 0.3000005)),
    frozen(scores=scored(0, 0, 2.0000015)),
    frozen(ids=placed(0, 1, 7)),
    frozen(ids=placed(0, 3, 8)),
    frozen(**{'P@1': 0.5000005}),
  ],
)
def test_a_neural_run_may_differ_a_little(after):
  assert verdict(frozen(), after) == ('within bounds', False)


@pytest.mark.parametrize(
  'after',
  [
    frozen(scores=scored(1, 0, 0.300002)),
    frozen(scores=scored(0, 0, 2.00001)),
    frozen(scores=scored(1, 1, -np.inf)),
    frozen(scores=scored(1, 0, np.nan)),
    frozen(ids=placed(0, 0, 5)),
    frozen(ids=placed(1, 3, 5)),
    frozen(ids=IDS[:1], scores=SCORES[:1]),
    frozen(**{'P@1': 0.50001}),
    frozen(**{'P@1': None}),
    frozen(**{'P@5': 0.1}),
    frozen(neural=False),
    dataclasses.replace(frozen(), facts={'n_train': '121'}),
  ],
)
def test_other_differences_are_beyond_the_bounds(after):
  assert verdict(frozen(), after) == ('DIFFERS', True)


def test_lists_of_other_runs_are_equal_bit_for_bit():
  before = frozen(neural=False)
  assert verdict(before, frozen(neural=False)) == ('equal', False)
  near = frozen(neural=False, scores=scored(1, 0, 0.3000001))
  assert verdict(before, near) == ('DIFFERS', True)
  metric = frozen(neural=False, **{'P@1': 0.5000001})
  assert verdict(before, metric) == ('within bounds', False)


def test_differences_outside_the_kept_part_are_seen():
  after = dataclasses.replace(frozen(), digests={'all/ids': 'other'})
  assert verdict(frozen(), after) == ('within bounds', False)


def test_what_is_missing_or_fails_is_said():
  bad = Frozen(failure='no memory')
  assert verdict(None, frozen()) == ('new', False)
  assert verdict(frozen(), bad) == ('FAILS', True)
  assert verdict(bad, bad) == ('fails as before', False)
  assert verdict(bad, frozen()) == ('failed before', False)


def test_the_exit_code_says_whether_a_config_differs(tmp_path, capsys):
  for name in ('old', 'same', 'other'):
    (tmp_path / name).mkdir()
    after = frozen(**{'P@1': 0.1}) if name == 'other' else frozen()
    after.save(tmp_path / name / 'a.npz')
  frozen().save(tmp_path / 'old' / 'b.npz')
  folders = [str(tmp_path / name) for name in ('old', 'same', 'other')]
  assert main(folders[0], folders[1]) == 0
  assert main(folders[0], folders[2]) == 1
  printed = capsys.readouterr().out
  assert 'a: DIFFERS; metric xjax/all/P@1' in printed
  assert '1 are missing' in printed
