"""A calibration: what it is fitted to, its file; predictions as JSON lines."""

import dataclasses
import json

import numpy as np
import pytest

from tests.judge.systems import lists_of, system
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.judge.calibration import (
  Calibration,
  Method,
  calibrate,
  cross_fitted,
  decisions,
  readable_scores,
  reliability_of,
  shown_probabilities,
)
from xjax.judge.metrics.calibration_error import (
  fit_isotonic,
  fit_platt,
  reliability,
  sigmoid,
)

N, K, L = 200, 6, 40


def predictions(kind=ScoreKind.LOGIT, a=0.5, b=0.0, seed=0):
  """Gold is drawn with probability sigmoid(a z + b); some lists are short."""
  rng = np.random.default_rng(seed)
  scores = np.sort(rng.normal(-1, 3, (N, K)).astype(np.float32))[:, ::-1].copy()
  ids = np.argsort(rng.random((N, L)))[:, :K].astype(np.int32)
  gold = rng.random((N, K)) < sigmoid(a * scores + b)
  rows = [sorted(ids[i][gold[i]].tolist()) for i in range(N)]
  if kind is ScoreKind.PROBABILITY:
    scores = sigmoid(scores).astype(np.float32)
  ids[::7, K - 2 :], scores[::7, K - 2 :] = PAD, -np.inf
  return system(ids, scores, rows, np.ones(L), score_kind=kind)


def with_scores(found, scores):
  lists = lists_of(found.lists['all'].ids, scores)
  return dataclasses.replace(found, lists={'all': lists})


def test_decisions_are_the_list_entries():
  found = predictions()
  lists = found.lists['all']
  listed = [
    (score, id_ in found.gold[row])
    for row in range(N)
    for id_, score in zip(lists.ids[row], lists.scores[row])
    if id_ != PAD
  ]
  assert list(zip(*decisions(found), strict=True)) == listed
  with pytest.raises(DataError, match='no gold'):
    decisions(dataclasses.replace(found, gold=None))


def shown_of(scores, kind, calibration=None):
  counts = np.ones(np.shape(scores), int)
  return readable_scores(scores, kind, calibration, counts)


def error_of(found, calibration=None):
  return reliability_of(found, shown_probabilities(found, calibration)).ece


@pytest.mark.parametrize('kind', [ScoreKind.LOGIT, ScoreKind.MARGIN])
@pytest.mark.parametrize('enough', [True, False])
def test_auto_is_isotonic_regression_where_enough_labels_are_correct(
  kind, enough
):
  found = predictions(kind, b=-1.0)
  if not enough:
    found = found.of_documents(np.arange(N) < N // 2)
  calibration = calibrate(found, Method.AUTO, 7, 'digest')
  method = Method.ISOTONIC if enough else Method.PLATT
  assert (calibration.n_correct >= 200) == enough
  assert calibration.method is method
  scores, correct = decisions(found)
  platt = fit_platt(scores, correct)
  assert (calibration.a, calibration.b) == (platt.a, platt.b)
  expected = platt(scores)
  if enough:
    # All labels have one training document, so one correction is for all.
    curve = fit_isotonic(scores, correct, platt)
    correction = fit_platt(curve.logits(scores), correct)
    assert calibration.others == (correction.a, correction.b)
    assert calibration.frequent == (1, 0)
    expected = correction(curve.logits(scores))
  np.testing.assert_array_equal(shown_of(scores, kind, calibration), expected)
  assert calibration == calibrate(found, method, 7, 'digest')
  told = calibration.n_documents, calibration.n_decisions, calibration.n_correct
  assert told == (len(found), len(scores), correct.sum())
  assert (calibration.step, calibration.digest) == (7, 'digest')
  for before in (calibration.ece_before, calibration.log_loss_before):
    assert (before is None) == (kind is ScoreKind.MARGIN)
  assert calibration.reason is None


@pytest.mark.parametrize('method', [Method.PLATT, Method.ISOTONIC])
@pytest.mark.parametrize('kind', [ScoreKind.LOGIT, ScoreKind.PROBABILITY])
def test_overconfident_scores_get_better(kind, method):
  found = predictions(kind, a=0.3)
  calibration = calibrate(found, method, 0, '')
  assert calibration.log_loss_after < calibration.log_loss_before
  assert calibration.ece_after < calibration.ece_before
  assert error_of(found) == calibration.ece_before
  judged = reliability_of(found, cross_fitted(found, method))
  assert judged.ece == calibration.ece_after
  logits = calibrate(predictions(a=0.3), method, 0, '')
  assert calibration.a == pytest.approx(logits.a, rel=1e-3)


def test_certain_probabilities_are_finite_logits():
  found = predictions(ScoreKind.PROBABILITY)
  scores = found.lists['all'].scores.copy()
  scores[:, 0] = 1
  scores[:, -1] = np.where(np.isinf(scores[:, -1]), -np.inf, 0)
  calibration = calibrate(with_scores(found, scores), Method.AUTO, 0, '')
  assert calibration.method is Method.ISOTONIC
  assert np.isfinite([calibration.a, calibration.log_loss_before]).all()
  edges = np.array([-np.inf, 0, 1])
  shown = shown_of(edges, ScoreKind.PROBABILITY, calibration)
  assert 0 < shown[0] == shown[1] < 0.5 < shown[2] < 1


@pytest.mark.parametrize('kind', list(ScoreKind))
def test_what_cannot_be_fitted_stays_and_says_why(kind):
  found = predictions(kind)
  scores = np.where(found.lists['all'].ids == PAD, -np.inf, 0.5)
  found = with_scores(found, scores)
  calibration = calibrate(found, Method.AUTO, 0, '')
  assert calibration.method is Method.NONE
  assert calibration.reason == 'all scores are equal'
  assert (calibration.a, calibration.b) == (1, 0)
  assert calibration.ece_after == calibration.ece_before
  shown = shown_of(scores, kind, calibration)
  np.testing.assert_array_equal(shown, readable_scores(scores, kind))
  margin = kind is ScoreKind.MARGIN
  shown = shown_probabilities(found, calibration)
  assert (shown is None) == margin
  assert (reliability_of(found, shown) is None) == margin


@pytest.mark.parametrize('kind', list(ScoreKind))
def test_a_file_gives_back_what_it_got(tmp_path, kind):
  calibration = calibrate(predictions(kind), Method.AUTO, 3, 'ab12')
  calibration.save(tmp_path / 'calibration.json')
  assert Calibration.load(tmp_path / 'calibration.json') == calibration
  first = (tmp_path / 'calibration.json').read_bytes()
  calibration.save(tmp_path / 'calibration.json')
  assert (tmp_path / 'calibration.json').read_bytes() == first
  assert [path.name for path in tmp_path.iterdir()] == ['calibration.json']


@pytest.mark.parametrize(
  'change',
  [{'schema': 3}, {'method': 'magic'}, {'score_kind': 'points'}, {'more': 1}],
)
def test_another_field_is_refused(tmp_path, change):
  path = tmp_path / 'calibration.json'
  calibrate(predictions(), Method.AUTO, 3, 'ab12').save(path)
  path.write_text(json.dumps(json.loads(path.read_text()) | change))
  with pytest.raises(DataError, match='calibration.json: is not a calibration'):
    Calibration.load(path)


@pytest.mark.parametrize('content', [b'', b'{', b'[]', b'3', b'\xff', b'{}'])
def test_a_damaged_file_is_named(tmp_path, content):
  path = tmp_path / 'calibration.json'
  with pytest.raises(DataError, match='calibration.json'):
    Calibration.load(path)
  path.write_bytes(content)
  with pytest.raises(DataError, match='calibration.json.*to write it again'):
    Calibration.load(path)


def many(n, likely, seed=0):
  """Predictions with gold of probability likely(score, whether it is rare)."""
  rng = np.random.default_rng(seed)
  scores = np.sort(rng.normal(-2, 2, (n, 20)).astype(np.float32))[:, ::-1]
  ids = np.argsort(rng.random((n, L)))[:, :20].astype(np.int32)
  counts = np.where(np.arange(L) % 4, 70, 20)
  gold = rng.random((n, 20)) < likely(scores, counts[ids] < 50)
  rows = [sorted(ids[i][gold[i]].tolist()) for i in range(n)]
  return system(ids, scores, rows, counts)


SHAPES = {
  'a level where nothing is surer': lambda z, _: 0.6 * sigmoid(2 * z + 2),
  'sure above a threshold': lambda z, _: np.where(z > -1, 0.7, 0.02),
  'one sigmoid': lambda z, _: sigmoid(0.7 * z - 1),
}


@pytest.mark.parametrize('shape', SHAPES)
def test_probabilities_hold_on_new_documents(shape):
  dev, test = (many(2000, SHAPES[shape], seed) for seed in (0, 1))
  calibration = calibrate(dev, Method.AUTO, 0, '')
  new = shown_probabilities(test, calibration)
  for found, shown in ((test, new), (dev, cross_fitted(dev, Method.AUTO))):
    assert reliability_of(found, shown).ece_above < 0.03
  platt = calibrate(dev, Method.PLATT, 0, '')
  error = reliability_of(test, shown_probabilities(test, platt)).ece_above
  assert (error < 0.03) == (shape == 'one sigmoid')


@pytest.mark.parametrize('shift', [-1, 1])
def test_probabilities_hold_for_rare_labels_too(shift):
  def likely(z, rare):
    return sigmoid(z - 1 + shift * rare)

  dev, test = (many(2000, likely, seed) for seed in (0, 1))
  rare = test.train_counts[test.lists['all'].ids] < 50
  gold = test.lists['all'].hits(test.gold, L)
  errors = {}
  for method in (Method.AUTO, Method.PLATT):
    calibration = calibrate(dev, method, 0, '')
    shown = shown_probabilities(test, calibration)
    errors[method] = reliability(shown[rare], gold[rare]).ece_above
  assert errors[Method.AUTO] < 0.03 < 0.1 < errors[Method.PLATT]


def test_a_document_does_not_see_its_own_calibration():
  found = many(60, SHAPES['one sigmoid'])
  folds = cross_fitted(found, Method.PLATT)
  for fold in range(5):
    inside = np.zeros(60, bool)
    inside[np.random.default_rng(0).permutation(60) % 5 == fold] = True
    others = calibrate(found.of_documents(~inside), Method.PLATT, 0, '')
    shown = shown_probabilities(found.of_documents(inside), others)
    np.testing.assert_allclose(folds[inside], shown, rtol=1e-12)


@pytest.mark.parametrize('kind', [ScoreKind.LOGIT, ScoreKind.MARGIN])
def test_folds_without_a_fit_have_raw_scores(kind):
  found = predictions(kind).of_documents(np.arange(N) < 3)
  listed = found.lists['all'].ids != PAD
  one = found.lists['all'].ids[0, 0]
  # In one fold all others are wrong.
  alone = dataclasses.replace(found, gold=Ragged.of([[int(one)], [], []]))
  shown = cross_fitted(alone, Method.AUTO)
  if kind is ScoreKind.MARGIN:
    assert shown is None
  else:
    raw = sigmoid(found.lists['all'].scores[0])
    np.testing.assert_allclose(shown[0][listed[0]], raw[listed[0]])


def test_scores_are_probabilities_where_the_kind_allows():
  scores = [-np.inf, -1e30, -800, -1, 0, 1, 800, 1e30]
  scores = np.array(scores, np.float32)
  probabilities = readable_scores(scores, ScoreKind.LOGIT)
  np.testing.assert_allclose(
    probabilities, [0, 0, 0, 1 / (1 + np.e), 0.5, np.e / (1 + np.e), 1, 1]
  )
  for kind in (ScoreKind.MARGIN, ScoreKind.PROBABILITY):
    np.testing.assert_array_equal(readable_scores(scores, kind), scores)


def test_no_documents(tmp_path):
  empty = predictions().of_documents(np.zeros(N, bool))
  calibration = calibrate(empty, Method.AUTO, 0, '')
  assert calibration.reason == 'no decisions to fit to'
  assert reliability_of(empty) is None
  assert cross_fitted(empty, Method.AUTO).shape == (0, K)
  calibration.save(tmp_path / 'c.json')
  assert Calibration.load(tmp_path / 'c.json') == calibration


@pytest.mark.parametrize(
  ('count', 'ranks_unseen'),
  # A label of no training document, or one that is ranked by its name.
  [(0, False), (0, True), (0, None)],
)
@pytest.mark.parametrize('kind', [ScoreKind.LOGIT, ScoreKind.MARGIN])
def test_a_label_of_all_documents_that_training_did_not_see(
  count, ranks_unseen, kind
):
  """Checks that the other labels are calibrated as if it were not listed."""
  found = predictions(kind)
  counts = np.append(np.full(L, 60, np.int32), count)
  plain = dataclasses.replace(
    found, train_counts=counts[:-1], ranks_unseen=ranks_unseen
  )
  lists = found.lists['all']
  ids, scores = (
    np.full((N, K + 1), end, part.dtype)
    for end, part in ((PAD, lists.ids), (-np.inf, lists.scores))
  )
  ids[:, :K], scores[:, :K] = lists.ids, lists.scores
  at = np.arange(N), lists.lengths
  ids[at], scores[at] = L, lists.scores[lists.scores > -np.inf].min() - 9
  rows = [[*row.tolist(), L] for row in found.gold]
  changed = dataclasses.replace(
    system(ids, scores, rows, counts, score_kind=kind),
    ranks_unseen=ranks_unseen,
  )
  ours, theirs = (calibrate(x, Method.AUTO, 1, 'd') for x in (changed, plain))
  for name in ('method', 'a', 'b', 'knots', 'frequent', 'n_decisions'):
    assert getattr(ours, name) == getattr(theirs, name)
  assert ours.method is Method.ISOTONIC and ours.reason is None
  shown_NK, theirs_NK = (cross_fitted(x, Method.AUTO) for x in (changed, plain))
  np.testing.assert_array_equal(shown_NK[:, 0], theirs_NK[:, 0])
  assert (shown_NK[at] < 0.05).all()


def test_a_document_without_gold_does_not_stop_the_calibration():
  found = predictions()
  rows = [row.tolist() if i % 2 else [] for i, row in enumerate(found.gold)]
  found = dataclasses.replace(found, gold=Ragged.of(rows))
  assert calibrate(found, Method.AUTO, 1, 'd').reason is None
  none = dataclasses.replace(found, gold=Ragged.of([[]] * N))
  reason = calibrate(none, Method.AUTO, 1, 'd').reason
  assert reason == 'every listed label is wrong'
