"""Checks every metric under every protocol against the slow definitions."""

import dataclasses
import operator

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import scipy.sparse

from tests.judge.reference import metrics as reference
from tests.judge.systems import system
from xjax.core.types import PAD, ScoreKind
from xjax.data.schema import propensity_weights
from xjax.judge.criteria import Criteria, main_metrics
from xjax.judge.judge import NOTES, judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.metric import MetricSettings
from xjax.judge.metrics.protocols import LIBMULTILABEL, LMTC, PROTOCOLS, XJAX
from xjax.judge.metrics.slices import judged_masks

L, K = 14, 8
KS = (1, 2, 5, 8)
SETTINGS = MetricSettings(alphas=(0.3, 1.0), draws=(1, 7))
# 50 and 51 are where the protocols disagree on what is frequent.
COUNTS = np.array([90, 12, 60, 50, 0, 49, 3, 12, 0, 51, 1, 2000, 0, 700])


def problem(seed, n_docs=23, depth=K):
  """Coarse scores with ties; ranked lists of all labels and of each slice."""
  rng = np.random.default_rng(seed)
  scores = (rng.integers(-6, 5, (n_docs, L)) / 2).astype(np.float32)
  golds = [
    sorted(rng.choice(L, rng.integers(0, 7), replace=False).tolist())
    for _ in range(n_docs)
  ]
  masks = judged_masks(COUNTS, np.zeros(0, np.int32))
  lists = {name: lists_of(scores, mask, depth) for name, mask in masks.items()}
  parts = lists['all'].ids, lists['all'].scores, golds, COUNTS
  return system(*parts, n_train=3000, lists=lists)


def lists_of(scores, mask, depth):
  masked = np.where(mask, scores, -np.inf)
  order = np.argsort(-masked, axis=1, kind='stable')[:, :depth]
  values = np.take_along_axis(masked, order, 1)
  return LabelLists(
    np.where(np.isneginf(values), PAD, order).astype(np.int32),
    values.astype(np.float32),
  )


def unit_vectors(seed):
  vectors = np.abs(np.random.default_rng(seed).normal(size=(L, 5)))
  vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
  return scipy.sparse.csr_array(vectors)


def expected(predictions, mask, protocol, criteria):
  """By the definitions, of the same lists cut to the slice."""
  labels = np.flatnonzero(mask).tolist()
  # All labels are listed somewhere, so that cutting loses nothing.
  ids, scores = predictions.lists['all'].ids, predictions.lists['all'].scores
  rows = [[i for i in row if i in labels] for row in ids.tolist()]
  vectors = criteria.vectors_LD.toarray()
  # Many scores are exactly 0, the threshold.
  assigned = operator.ge if protocol.assigns_equal else operator.gt
  ranked = reference.Problem(
    lists=rows,
    golds=[
      {int(v) for v in predictions.gold[i] if mask[v]} for i in range(len(ids))
    ],
    labels=labels,
    weights=propensity_weights(COUNTS, predictions.n_train),
    train_counts=COUNTS,
    decisions=[
      [i for i, z in zip(row, values) if assigned(z, 0) and i in labels]
      for row, values in zip(ids.tolist(), scores.tolist(), strict=True)
    ],
    similarity=lambda a, b: float(vectors[a] @ vectors[b]),
    table_LK=criteria.ranks_LK,
    alphas=SETTINGS.alphas,
    drawn=SETTINGS.draws,
  )
  return reference.judge(ranked, KS, protocol)


@hypothesis.given(st.integers(0, 10**6))
# A smaller seed is no simpler problem: nothing is gained by shrinking.
@hypothesis.settings(
  max_examples=3, deadline=None, phases=[hypothesis.Phase.generate]
)
def test_every_metric_under_every_protocol(seed):
  predictions = problem(seed, depth=L)
  criteria = Criteria(
    ks=KS,
    protocols=tuple(PROTOCOLS.values()),
    vectors_LD=unit_vectors(seed),
    ranks_LK=np.random.default_rng(seed).random((L, K)),
    settings=SETTINGS,
  )
  metrics = judge(predictions, criteria)
  assert NOTES not in metrics
  for protocol in criteria.protocols:
    masks = judged_masks(COUNTS, np.zeros(0, np.int32), protocol.frequent_from)
    for name, mask in masks.items():
      values = metrics[protocol.name][name]
      wanted = expected(predictions, mask, protocol, criteria)
      judged = {m: v for m, v in values.items() if not m.startswith('n_')}
      # The definitions have no bin of labels never seen.
      judged = {m: v for m, v in judged.items() if '[0]' not in m}
      # The definitions have no ECE, which needs scores.
      assert ('ECE' in judged) == ((protocol.name, name) == ('xjax', 'all'))
      judged.pop('ECE', None)
      judged.pop('ECE[>0.1]', None)
      assert set(judged) == {
        m
        for m in wanted
        if m != 'ILD@1'  # of one label
        if protocol.prints(m)
        and (name == 'all' or '@' not in m.split('[')[0] or not m.endswith(']'))
      }
      for metric, value in judged.items():
        assert value == pytest.approx(wanted[metric], abs=1e-12), metric


@pytest.mark.parametrize('depth', [2, 5])
def test_a_slice_is_cut_from_the_lists_of_other_slices(depth):
  # Lists are saved for slices of xjax, whose few has no label of 50 documents.
  predictions = problem(2, depth=depth, n_docs=60)
  whole = problem(2, depth=L, n_docs=60)
  criteria = Criteria((1, 2), protocols=(LMTC,))
  ours = judge(predictions, criteria)['lmtc']
  theirs = judge(whole, criteria)['lmtc']
  for name, values in ours.items():
    for metric, value in values.items():
      if value is not None:
        assert value == pytest.approx(theirs[name][metric], abs=1e-14)
  # Fewer values are known if slices are cut from the list of all labels alone.
  lists = {'all': predictions.lists['all']}
  alone = judge(dataclasses.replace(predictions, lists=lists), criteria)['lmtc']
  less, known = (
    sum(v is not None for values in slices.values() for v in values.values())
    for slices in (alone, ours)
  )
  assert less < known


def test_slices_are_not_cut_from_what_a_strategy_chose():
  predictions = problem(3, n_docs=60)
  # The strategy chose two labels of each document, with scores of its own.
  chosen = LabelLists(
    predictions.lists['all'].ids[:, :1:-5], np.float32([[3, -2]] * 60)
  )
  lists = {**predictions.lists, 'all': chosen}
  changed = dataclasses.replace(
    predictions, lists=lists, strategy='coverage(k=2)'
  )
  bins = {'bin': (COUNTS > 1) & (COUNTS < 80)}
  criteria = Criteria((1, 2), protocols=(XJAX, LMTC), slices=bins)
  before, after = judge(predictions, criteria), judge(changed, criteria)
  for who in ('xjax', 'lmtc'):
    for name in ('frequent', 'few', 'zero', 'bin'):
      # Fewer values may be known than before, when all lists were of use.
      same = {m: v for m, v in after[who][name].items() if v is not None}
      assert same.items() <= before[who][name].items()
      assert same['P@2'] > 0
    assert after[who]['all']['P@1'] != before[who]['all']['P@1']
  # Nothing is known about labels that no slice lists.
  alone = dataclasses.replace(changed, lists={'all': chosen})
  assert judge(alone, criteria)['xjax']['bin']['P@1'] is None


def names(*ks):
  kinds = 'P', 'R', 'nDCG', 'RP', 'PSP', 'macro-F1'
  return [f'{kind}@{k}' for kind in kinds for k in ks] + ['micro-F1', 'n_docs']


def test_metrics_that_are_shown_first():
  assert main_metrics(names(1, 3, 5, 10)) == [
    *('P@1', 'P@3', 'P@5', 'nDCG@5', 'RP@5', 'PSP@1', 'PSP@3', 'PSP@5'),
    'macro-F1@5',
  ]
  # Other cut-offs take the place of the usual ones.
  assert main_metrics(names(2, 8)) == [
    *('P@2', 'P@8', 'nDCG@8', 'RP@8', 'PSP@2', 'PSP@8', 'macro-F1@8')
  ]
  assert main_metrics(['n_docs', 'micro-F1']) == ['micro-F1']
  assert main_metrics([]) == []


@pytest.mark.parametrize(
  ('kind', 'own', 'score', 'is_assigned'),
  [
    (ScoreKind.PROBABILITY, None, 0.5, True),
    (ScoreKind.LOGIT, None, 0.0, True),
    (ScoreKind.LOGIT, None, -0.0, True),
    (ScoreKind.MARGIN, -1.0, -1.0, True),
    # As float32, 0.1 is a little more, and 0.7 a little less.
    (ScoreKind.PROBABILITY, 0.1, 0.1, None),
    (ScoreKind.PROBABILITY, 0.7, 0.7, False),
  ],
)
def test_a_score_at_the_threshold_is_assigned(kind, own, score, is_assigned):
  """Checks it for all protocols; None if they agree on an assigned label."""
  scores = [[0.9, score]]
  predictions = system([[0, 1]], scores, [[0, 1]], [1, 1], score_kind=kind)
  predictions = dataclasses.replace(predictions, assigned_above=own)
  protocols = XJAX, LMTC, LIBMULTILABEL
  metrics = judge(predictions, Criteria((1,), protocols=protocols))
  ours, *theirs = (metrics[x.name]['all']['micro-F1'] for x in protocols)
  assert ours == (2 / 3 if is_assigned is False else 1)
  assert theirs == [2 / 3 if is_assigned else ours] * 2
  for name in ('lmtc', 'libmultilabel') if is_assigned else ():
    assert metrics['reasons'][name]['all']['micro-F1'] == (
      'a score of exactly the threshold is assigned in xjax, not assigned in '
      + name
    )
