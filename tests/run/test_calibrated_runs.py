"""The calibration of a run: made with its judging, shown, never a stale one."""

import dataclasses
import json
import logging
import re

import numpy as np
import pytest

from tests.run.tagging import read_rows, rows_of, tag
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.load import load_corpus
from xjax.judge.calibration import (
  Calibration,
  Method,
  calibrate,
  cross_fitted,
  readable_scores,
  reliability_of,
  shown_probabilities,
)
from xjax.judge.metrics.calibration_error import sigmoid
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.report.terminal.run_summary import example_text
from xjax.run.evaluate_split import evaluate_split
from xjax.run.judging import calibrate_run
from xjax.run.open_run import load_calibration, open_run
from xjax.run.serve.service import Service
from xjax.train.workdir import Workdir


@pytest.fixture
def workdir(workdir):
  return Workdir(workdir)


@pytest.fixture(scope='module')
def dev(finished):
  return Predictions.load(finished.paths['dev'] / 'predictions.npz')


def saved(workdir, step, method=Method.AUTO, kind=ScoreKind.LOGIT):
  return load_calibration(workdir, method, step, kind)


def test_a_finished_run_is_calibrated(config, finished, dev):
  assert config.eval.calibration is Method.AUTO
  home = Workdir(finished.workdir)
  digest = home.digests()['dev']
  found = Calibration.load(finished.workdir / 'calibration.json')
  assert found == calibrate(dev, Method.AUTO, finished.best_step, digest)
  assert found == finished.calibration
  assert found == saved(home, finished.best_step)
  assert None not in (found.log_loss_before, found.log_loss_after)
  fitted = reliability_of(dev, cross_fitted(dev, Method.AUTO))
  assert fitted.ece == found.ece_after


def test_calibration_is_judged_on_documents_that_it_did_not_see(finished, dev):
  test = Predictions.load(finished.paths['test'] / 'predictions.npz')
  shown = {
    'dev': (dev, cross_fitted(dev, Method.AUTO)),
    'test': (test, shown_probabilities(test, finished.calibration)),
  }
  for name, (predictions, probabilities) in shown.items():
    diagram = reliability_of(predictions, probabilities)
    judged = finished.metrics[name]['xjax']['all']
    assert judged['ECE'] == diagram.ece
    assert judged['ECE[>0.1]'] == diagram.ece_above
    request = JudgeRequest(ks=(3,))
    again = evaluate_split(finished.workdir, name, request=request).metrics
    assert again['xjax']['all']['ECE[>0.1]'] == diagram.ece_above


def test_predictions_show_calibrated_probabilities(
  config, finished, dev, tmp_path
):
  predictor = open_run(finished.workdir)
  assert predictor.calibration == finished.calibration
  split = load_corpus(config.data, config.seed).split('dev')
  documents = [split.documents[row] for row in range(len(split))]
  lists = dev.lists['all']
  counts = dev.train_counts[lists.ids[:, :5]]
  logits = lists.scores[:, :5], ScoreKind.LOGIT
  expected = readable_scores(*logits, finished.calibration, counts)
  raw = sigmoid(lists.scores[:, :5])
  assert np.abs(expected - raw).max() > 1e-3
  output = tag(finished.workdir, tmp_path, rows_of(documents), 5)
  scores = [[x['score'] for x in row['labels']] for row in read_rows(output)]
  np.testing.assert_allclose(scores, expected, atol=1e-5)
  shown = predictor.predict(documents, 5)
  scores = [[p.score for p in row] for row in shown]
  np.testing.assert_allclose(scores, expected, atol=1e-5)
  assert [[p.id for p in row] for row in shown] == [
    [dev.labels[i] for i in row] for row in lists.ids[:, :5]
  ]
  # The artefact has the scores as the model gave them.
  tagged = Predictions.load(output.with_suffix('.npz')).lists['all']
  real = lists.ids != PAD
  np.testing.assert_allclose(tagged.scores[real], lists.scores[real], atol=1e-5)


def test_again_it_is_the_same_file(finished, workdir):
  before = workdir.calibration.read_bytes()
  evaluate_split(workdir.path, 'dev')
  assert workdir.calibration.read_bytes() == before
  workdir.calibration.unlink()
  evaluate_split(workdir.path, 'test')
  assert not workdir.calibration.exists()
  evaluate_split(workdir.path, 'dev')
  assert workdir.calibration.read_bytes() == before


def test_a_stale_one_is_not_applied(finished, workdir, caplog):
  caplog.set_level(logging.INFO)
  values = json.loads(workdir.calibration.read_text())
  with workdir.recording(workdir.calibration):
    workdir.calibration.write_text(json.dumps(values | {'digest': '0' * 64}))
  predictor = open_run(workdir.path)
  assert predictor.calibration is None
  for says in (
    'was not fitted on the dev split of this run and the checkpoint of step '
    f'{predictor.step}',
    'xjax evaluate --split=dev calibrates those of the best checkpoint',
  ):
    assert says in caplog.text
  fresh = open_run(finished.workdir)
  (shown,), (calibrated,) = (p.predict(['nipa'], 3) for p in (predictor, fresh))
  logits = [np.log(p.score) - np.log1p(-p.score) for p in shown]
  np.testing.assert_allclose(
    [p.score for p in calibrated],
    sigmoid(finished.calibration.a * np.array(logits) + finished.calibration.b),
    atol=1e-5,
  )


def test_a_missing_one_is_told(finished, workdir, caplog):
  caplog.set_level(logging.INFO)
  workdir.calibration.unlink()
  assert saved(workdir, finished.best_step) is None
  assert 'scores are not calibrated: no ' in caplog.text
  caplog.clear()
  # Where there is none to be expected, nothing is said.
  assert saved(workdir, finished.best_step, method=Method.NONE) is None
  # A run whose corpus has no dev split cannot have one.
  corpus = json.loads(workdir.corpus.read_text())
  del corpus['digests']['dev']
  workdir.corpus.write_text(json.dumps(corpus))
  workdir.digest_list.unlink()
  assert saved(workdir, finished.best_step) is None
  assert not caplog.text


def test_a_damaged_or_changed_one_is_named(workdir):
  before = workdir.calibration.read_bytes()
  values = json.loads(before)
  changed = json.dumps(values | {'a': 2 * values['a']}).encode()
  for content, says in (
    (before[:-20], 'calibration.json.*remove the file'),
    (changed, 'calibration.json: is not .* Remove the file.*--split=dev'),
  ):
    workdir.calibration.write_bytes(content)
    with pytest.raises(DataError, match=says):
      open_run(workdir.path)


def test_one_of_other_scores_is_refused(finished, workdir):
  says = 'of kind logit, but the scores of this run are of kind margin'
  with pytest.raises(DataError, match=says):
    saved(workdir, finished.best_step, kind=ScoreKind.MARGIN)


def test_scores_that_cannot_be_calibrated(finished, workdir, dev, caplog):
  caplog.set_level(logging.INFO)
  nothing = dataclasses.replace(dev, gold=Ragged.of([[]] * len(dev)))
  step, digest = finished.best_step, workdir.digests()['dev']
  calibrate_run(nothing, workdir, Method.AUTO, step, digest)
  says = 'scores are not calibrated: every listed label is wrong'
  assert says in caplog.text
  caplog.clear()
  predictor = open_run(workdir.path)
  assert says in caplog.text
  levels = [r.levelname for r in caplog.records if says in r.getMessage()]
  assert levels == ['WARNING']
  (shown,) = predictor.predict(['nipa'], 3)
  workdir.calibration.unlink()
  assert open_run(workdir.path).predict(['nipa'], 3) == [shown]


def test_lists_that_people_read_are_sorted_by_what_they_show(
  config, workdir, dev, tmp_path, monkeypatch
):
  """Checks Python, files, the service and the summary; npz keeps its order."""
  values = json.loads(workdir.calibration.read_text())
  # Rare labels become far likelier than frequent ones of the same score.
  counts = dev.train_counts.max()
  monkeypatch.setattr('xjax.judge.calibration.FREQUENT_FROM', counts)
  values |= {'frequent': (1.0, -3.0), 'others': (1.0, 3.0)}
  with workdir.recording(workdir.calibration):
    workdir.calibration.write_text(json.dumps(values))
  run, split = open_run(workdir.path), load_corpus(config.data, 0).split('dev')
  documents = [split.documents[row] for row in range(len(split))]
  ids, scores = (
    x[:, :5] for x in (dev.lists['all'].ids, dev.lists['all'].scores)
  )
  shown = run.readable(ids, scores)
  assert (np.diff(shown) > 0).any()
  order = np.argsort(-shown, axis=1, kind='stable')
  wanted = [
    [dev.labels[i] for i in row] for row in np.take_along_axis(ids, order, 1)
  ]
  found = run.predict(documents, 5)
  assert [[x.id for x in row] for row in found] == wanted
  output = tag(workdir.path, tmp_path, rows_of(documents), 5)
  rows = read_rows(output)
  assert [[x['id'] for x in row['labels']] for row in rows] == wanted
  saved_lists = Predictions.load(output.with_suffix('.npz')).lists['all']
  np.testing.assert_array_equal(saved_lists.ids[:, :5], ids)
  service, body = Service(run), {'documents': rows_of(documents), 'k': 5}
  request = service.parse(json.dumps(body).encode(), 99)
  answers = service.answer([(request, x) for x in request.documents])
  found = [[x['id'] for x in json.loads(row)['labels']] for row in answers]
  assert found == wanted
  labels = run.space.labels
  text = example_text(dev, split, labels, 99, calibration=run.calibration)
  for example in text.split('\n\n'):
    shown = re.findall(r' (\d\.\d\d)', example.partition('predicted')[2])
    assert shown == sorted(shown, reverse=True) and len(shown) == 5
