"""Groups of seeds, means, and what may stand on one page."""

import math
import pathlib

import pytest

from xjax.report.runs import (
  Estimate,
  JudgedRun,
  SystemRuns,
  estimate,
  group_by_seed,
  group_metrics,
)

CONFIG = {'model': {'units': 16}, 'data': {'dir': 'x'}}


def run(name, seed=None, predictions=None, metrics=None, **config):
  whole = None if seed is None else {'seed': seed, **CONFIG, **config}
  path = pathlib.Path(f'/runs/{name}')
  return JudgedRun(name, path, 'dev', whole, metrics or {}, predictions)


def names(groups):
  return [(group.name, len(group.runs)) for group in groups]


def test_runs_that_differ_in_the_seed_alone_are_one():
  a, b, c = (run(name, seed) for seed, name in enumerate('abc'))
  other, file = run('other', 0, model={'units': 32}), run('file')
  found = names(group_by_seed([a, other, b, file, c, file]))
  assert found == [('a + b + c', 3), ('other', 1), ('file', 1), ('file', 1)]


def test_the_same_seed_twice_is_no_second_sample():
  groups = group_by_seed([run('a', 0), run('a', 1), run('again', 1)])
  assert names(groups) == [('a', 2), ('again', 1)]


@pytest.mark.parametrize(
  ('values', 'mean', 'error'),
  [
    # s^2 = (0.01 + 0 + 0.01) / 2, over n = 3.
    ([0.1, 0.2, 0.3], 0.2, math.sqrt(0.01 / 3)),
    ([0.25], 0.25, None),
    ([0.25, 0.25], 0.25, 0.0),
    ([1, 2], 1.5, 0.5),
    ([0.1, None], None, None),
    ([], None, None),
  ],
)
def test_estimates(values, mean, error):
  found = estimate(values)
  assert found.n == len(values)
  assert found.mean == (None if mean is None else pytest.approx(mean))
  assert found.error == (None if error is None else pytest.approx(error))


def test_metrics_of_a_group():
  tables = [
    {'xjax': {'all': {'P@1': value, 'n_docs': 9}}, 'notes': {'all': {}}}
    for value in (0.5, 0.7)
  ]
  group = SystemRuns(
    'g', tuple(run(f'{i}', i, metrics=t) for i, t in enumerate(tables))
  )
  found = group_metrics(group, 'xjax')['all']
  assert found['P@1'].mean == pytest.approx(0.6)
  assert found['P@1'].error == pytest.approx(0.1)
  assert found['n_docs'] == Estimate(9, 0.0, 2)
