"""Compares protocols with what the tools themselves print, quirk by quirk.

The values are those of tests/golden; where XJAX_PEERS_DIR names the peers'
environment, also what the tools print now, for other random problems.
"""

import dataclasses
import functools
import os
import pathlib
import subprocess

import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.types import PAD
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.metrics.metric import LABELS, PSnDCGVariant, PSRDenominator
from xjax.judge.metrics.protocols import LIBMULTILABEL, NAPKINXC, PECOS, PYXCLIB

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / 'golden'
RANKED = ('plain', 'beyond', 'short', 'ties', 'wide')
TOOLS = {
  # tool: its protocol, problems, tolerance
  'napkinxc': (NAPKINXC, RANKED, 1e-9),
  'pecos': (PECOS, (*RANKED, 'dense'), 1e-9),
  'libmultilabel': (LIBMULTILABEL, ('dense',), 1e-9),
  'libmultilabel-nn': (LIBMULTILABEL, ('dense',), 1e-6),
}
DEPTH = 16  # one for all: fewer traces
CASES = [(tool, name) for tool, row in TOOLS.items() for name in row[1]]


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
  """Ranked lists, their scores, gold, label weights and cut-offs."""

  lists: list[list[int]]
  scores: list[list[float]]
  golds: list[list[int]]
  weights: np.ndarray
  ks: tuple[int, ...]


@functools.cache
def judged(problem, protocol):
  """Every metric at 1..k that we print."""
  n_labels = len(problem.weights)
  # The arrays are deeper than any list, which shows that each list ended.
  ids = np.full((len(problem.lists), DEPTH), PAD, np.int32)
  scores = np.full(ids.shape, -np.inf, np.float32)
  for row, ranked in enumerate(problem.lists):
    ids[row, : len(ranked)] = ranked
    scores[row, : len(ranked)] = problem.scores[row]
  parts = ids, scores, problem.golds, np.zeros(n_labels)
  criteria = Criteria(
    problem.ks, protocols=(protocol,), weights_L=problem.weights
  )
  return judge(system(*parts, n_train=0), criteria)[protocol.name]['all']


class Printed(dict):
  """Arrays by name; hashed as the one object that it is."""

  __hash__ = object.__hash__


@pytest.fixture(
  scope='module',
  params=['golden', pytest.param('live', marks=pytest.mark.peers)],
)
def printed(request, tmp_path_factory):
  """The problems, and what the tools printed for them."""
  if request.param == 'golden':
    return Printed(np.load(GOLDEN / 'peers.npz'))
  out = tmp_path_factory.mktemp('peers') / 'peers.npz'
  python = pathlib.Path(os.environ['XJAX_PEERS_DIR']) / 'bin' / 'python'
  script = HERE / 'metric_peers.py'
  subprocess.run([python, script, out, '1'], check=True, timeout=300)
  return Printed(np.load(out))


@pytest.fixture(scope='module')
def pyxclib():
  return Printed(np.load(GOLDEN / 'pyxclib.npz'))


def rows_of(printed, name, field):
  ends = printed[f'{name}/{field}_indptr'][1:-1]
  return [row.tolist() for row in np.split(printed[f'{name}/{field}'], ends)]


def train_counts(printed, name):
  """Training documents per label, and of them all."""
  rows = rows_of(printed, name, 'train')
  n_labels = int(printed[f'{name}/n_labels'])
  return np.bincount(sum(rows, []), minlength=n_labels), len(rows)


@functools.cache
def read(printed, name):
  return Problem(
    *(rows_of(printed, name, f) for f in ('lists', 'scores', 'golds')),
    weights=propensity_weights(*train_counts(printed, name)),
    ks=tuple(range(1, int(printed[f'{name}/k']) + 1)),
  )


@functools.cache
def read_pyxclib(arrays, name):
  def rows(part, of):
    ends = arrays[f'{name}/{part}/indptr'][1:-1]
    scores = np.split(arrays[f'{name}/{part}/data'], ends)
    values = np.split(arrays[f'{name}/{part}/{of}'], ends)
    return [v[np.argsort(-s)].tolist() for v, s in zip(values, scores)]

  return Problem(
    lists=rows('pred', 'indices'),
    scores=rows('pred', 'data'),
    golds=rows('gold', 'indices'),
    weights=arrays[f'{name}/inv_prop/0.55,1.5'],
    ks=tuple(range(1, 11)),
  )


def at_k(values, kind, n):
  return np.array([values[f'{kind}@{k}'] for k in range(1, n + 1)])


def differ(a, b):
  return np.abs(np.subtract(a, b)).max() > 1e-4


@pytest.mark.parametrize(('tool', 'name'), CASES)
def test_at_k(printed, tool, name):
  protocol, _, tolerance = TOOLS[tool]
  values = judged(read(printed, name), protocol)
  for kind in (k[:-2] for k in protocol.kinds if k.endswith('@k')):
    expected = printed[f'{name}/{tool}/{kind}']
    found = at_k(values, kind, len(expected))
    np.testing.assert_allclose(found, expected, 0, tolerance, err_msg=kind)


def test_the_problems_are_hard(printed):
  for name in RANKED:
    problem, (counts, _) = read(printed, name), train_counts(printed, name)
    assert not all(problem.golds)
    unseen = set(np.flatnonzero(counts == 0).tolist())
    assert any(unseen.intersection(gold) for gold in problem.golds)
  assert not all(read(printed, 'short').lists)
  for name in ('beyond', 'short'):
    problem = read(printed, name)
    assert max(map(len, problem.lists)) < problem.ks[-1]
  assert len(set(printed['ties/scores'].tolist())) == 3


@pytest.mark.parametrize('name', ['small', 'medium'])
@pytest.mark.parametrize('kind', PYXCLIB.kinds)
def test_pyxclib_at_k(pyxclib, name, kind):
  kind = kind.removesuffix('@k')
  table = f'remove_invalid=False/{kind}'
  key = {'R': 'R', 'PSR-norm': 'PSR'}.get(kind, table)
  found = at_k(judged(read_pyxclib(pyxclib, name), PYXCLIB), kind, 10)
  np.testing.assert_allclose(found, pyxclib[f'{name}/{key}@1..10'], 0, 1e-6)


@pytest.mark.parametrize('name', ['small', 'medium'])
@pytest.mark.parametrize('kind', ['P', 'nDCG', 'PSP', 'PSnDCG'])
def test_pyxclib_can_remove_documents_without_gold(pyxclib, name, kind):
  skipping = dataclasses.replace(PYXCLIB, skip_without_gold=True)
  problem = read_pyxclib(pyxclib, name)
  expected = pyxclib[f'{name}/remove_invalid=True/{kind}@1..10']
  found = at_k(judged(problem, skipping), kind, 10)
  np.testing.assert_allclose(found, expected, 0, 1e-6)
  # Counting documents without gold changes means, but not ratios.
  counted = at_k(judged(problem, PYXCLIB), kind, 10)
  assert differ(counted, expected) == (kind in ('P', 'nDCG'))


@pytest.mark.parametrize('name', ['small', 'medium'])
@pytest.mark.parametrize('ab', ['0.55,1.5', '0.6,2.6', '0.5,0.4'])
def test_pyxclib_weights_are_float32(pyxclib, name, ab):
  n_train, n_labels = pyxclib[f'{name}/train/shape'].tolist()
  labels = pyxclib[f'{name}/train/indices']
  counts = np.bincount(labels, minlength=n_labels)
  found = propensity_weights(counts, n_train, *map(float, ab.split(',')))
  expected = pyxclib[f'{name}/inv_prop/{ab}']
  np.testing.assert_allclose(found, expected, 1e-6)
  assert np.abs(found - expected).max() > 1e-9


SKIP = {'skip_without_gold': True}


@pytest.mark.parametrize(
  ('protocol', 'case', 'kind', 'change'),
  [
    # pyxclib divides by the number of gold labels, not by their weights.
    (PYXCLIB, 'medium', 'PSR', {'psr': PSRDenominator.WEIGHT}),
    # pyxclib first divides every document by its own ideal DCG.
    (PYXCLIB, 'medium', 'PSnDCG', {'psndcg': PSnDCGVariant.SUMS}),
    (PYXCLIB, 'medium', 'R', SKIP),
    *((NAPKINXC, 'wide', kind, SKIP) for kind in ('P', 'nDCG')),
    (NAPKINXC, 'wide', 'PSnDCG', {'psndcg': PSnDCGVariant.SUMS}),
    (NAPKINXC, 'wide', 'PSR', {'psr': PSRDenominator.WEIGHT}),
    (NAPKINXC, 'wide', 'PSR-norm', {'psr': PSRDenominator.WEIGHT}),
    # napkinXC averages over the labels that are gold somewhere.
    (NAPKINXC, 'wide', 'coverage', {'coverage_over': LABELS}),
    # napkinXC averages up to the largest label that is gold or listed.
    (NAPKINXC, 'wide', 'macro-F1', {'macro_over': LABELS}),
    (PECOS, 'plain', 'R', SKIP),
  ],
)
def test_conventions_matter(pyxclib, printed, protocol, case, kind, change):
  if protocol is PYXCLIB:
    problem = read_pyxclib(pyxclib, case)
    table = 'remove_invalid=False/' if kind == 'PSnDCG' else ''
    expected = pyxclib[f'{case}/{table}{kind}@1..10']
    kind = 'PSR-norm' if kind == 'PSR' else kind
  else:
    problem = read(printed, case)
    expected = printed[f'{case}/{protocol.name}/{kind}']
  found = judged(problem, dataclasses.replace(protocol, **change))
  assert differ(at_k(found, kind, len(expected)), expected)


@pytest.mark.parametrize('name', ['plain', 'short'])
def test_napkinxc_psdcg_is_our_psndcg(printed, name):
  sums = dataclasses.replace(NAPKINXC, psndcg=PSnDCGVariant.SUMS)
  found = at_k(judged(read(printed, name), sums), 'PSnDCG', 10)
  np.testing.assert_allclose(found, printed[f'{name}/napkinxc/PSDCG'], 0, 1e-9)


@pytest.mark.parametrize('name', RANKED)
def test_napkinxc_weights_are_as_exact_as_the_matrix(printed, name):
  ours = read(printed, name).weights
  expected = printed[f'{name}/napkinxc/weights']
  np.testing.assert_allclose(ours, expected, 1e-12)
  # Labels without training documents weigh most.
  unseen = train_counts(printed, name)[0] == 0
  assert expected[unseen].min() == expected.max()
  single = printed[f'{name}/napkinxc/weights, float32']
  np.testing.assert_allclose(ours, single, 1e-6)
  assert np.abs(ours - single).max() > 1e-9


def test_where_tools_raise_we_do_not():
  def of(listed, gold):
    problem = Problem(
      [listed], [[1.0] * len(listed)], [gold], np.ones(3), (1, 2, 5)
    )
    return judged(problem, NAPKINXC)

  assert of([1], [2])['macro-F1@1'] == 0
  assert of([1, 2], [1])['macro-F1@2'] == pytest.approx(1 / 3)
  assert of([1], [])['coverage@1'] is None
  assert of([1], [1])['P@5'] == 1 / 5


def test_pecos_keeps_labels_of_score_0(printed):
  # One label of each list has score 0; without it other labels would move up.
  problem = read(printed, 'plain')
  assert all(0 in scores for scores in problem.scores)
  lists = [
    [label for label, score in zip(*row) if score]
    for row in zip(problem.lists, problem.scores)
  ]
  scores = [[1.0] * len(labels) for labels in lists]
  without = dataclasses.replace(problem, lists=lists, scores=scores)
  found = at_k(judged(without, PECOS), 'P', 10)
  assert differ(found, printed['plain/pecos/P'])


@pytest.mark.parametrize(
  'value',
  [
    # A score of exactly 0 (probability 1/2) is no prediction.
    'libmultilabel/macro-F1',
    'libmultilabel-nn/macro-F1',
    'libmultilabel/micro-F1',
  ],
)
def test_libmultilabel_f1(printed, value):
  found = judged(read(printed, 'dense'), LIBMULTILABEL)[value.split('/')[1]]
  assert found == pytest.approx(printed[f'dense/{value}'], abs=1e-9)


def test_libmultilabel_micro_f1_of_networks_predicts_at_half_as_well(printed):
  problem = read(printed, 'dense')
  expected = printed['dense/libmultilabel-nn/micro-F1']
  assert differ(judged(problem, LIBMULTILABEL)['micro-F1'], expected)
  # This moves probabilities of exactly 1/2 above 1/2.
  raised = [[score + 1 / 16 for score in scores] for scores in problem.scores]
  at_least = dataclasses.replace(problem, scores=raised)
  found = judged(at_least, LIBMULTILABEL)['micro-F1']
  assert found == pytest.approx(expected, abs=1e-6)
