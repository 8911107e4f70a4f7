"""Runs of every kind that train on labels which judging leaves out."""

import copy
import dataclasses
import re
import shutil

import numpy as np
import pytest

from tests.fixtures.shortlist_runs import reranker
from tests.fixtures.sparse_runs import RUNS, config_of
from tests.run.small_runs import cascade
from tests.run.tagging import tag
import xjax
from xjax.core.errors import ConfigError, DataError
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.judge.make_predictions import recalls_of
from xjax.judge.metrics.slices import cut_gold
from xjax.judge.predictions import Predictions
from xjax.models.ensemble.ensemble_model import Averaging, EnsembleModel
from xjax.models.neural import neural_training
from xjax.run import judging
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest
from xjax.train.train_config import NoTrain

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']
# Roots of topics and leaves, frequent and rare ones.
IDS = [f'c{i:02d}' for i in range(0, 100, 6)]


@pytest.fixture(scope='module')
def listed(tmp_path_factory):
  path = tmp_path_factory.mktemp('labels') / 'meta.txt'
  path.write_text('\n'.join(IDS))
  return str(path)


def with_list(config, listed, **data):
  config = copy.deepcopy(config)
  judged = dataclasses.replace(config.eval, leave_out=listed)
  data = dataclasses.replace(config.data, **data)
  return dataclasses.replace(config, eval=judged, data=data)


def predictions_of(folder):
  return Predictions.load(folder / 'predictions.npz')


def assert_left_out(result, ids=IDS):
  """Checks that labels are trained, but in no list and no gold."""
  space = result.corpus.label_space
  rows = [space.index[id_] for id_ in ids if id_ in space.index]
  assert space.train_counts[rows].sum() > 20
  assert rows
  for folder in result.paths.values():
    predictions = predictions_of(folder)
    np.testing.assert_array_equal(predictions.left_out, sorted(rows))
    assert len(predictions.lists) == len(predictions.masks) > 3
    for lists in predictions.lists.values():
      assert not np.isin(lists.ids, rows).any()
    assert not np.isin(predictions.gold.values, rows).any()
    assert (predictions.lists['all'].ids[:, 0] != PAD).all()
  model = open_run(result.workdir)
  assert model.space.left_out_ids == tuple(ids)
  shown = {x.id for row in model.predict(TEXTS, k=60) for x in row}
  assert shown and not shown & set(ids)
  return model


@pytest.fixture(scope='module')
def linear(tmp_path_factory, listed):
  """The config of a linear run, and results without and with left-out labels.

  No labels are held out, so that both runs have the same weights.
  """
  config, folder = config_of(*RUNS['svm']), tmp_path_factory.mktemp('linear')
  config.data.hold_out_labels = 0
  plain = fit(config, folder / 'plain')
  return plain, fit(with_list(config, listed), folder / 'left_out')


def test_a_linear_model_never_lists_them(linear):
  assert_left_out(linear[1])


def test_evaluate_leaves_labels_out_of_a_run_that_did_not(linear, listed):
  plain, left_out = linear
  before = (plain.paths['dev'] / 'predictions.npz').read_bytes()
  judged = evaluate_split(plain.workdir, 'dev', leave_out=listed)
  assert re.fullmatch(r'dev\.leave_out@[0-9a-f]{8}', judged.folder.name)
  theirs = predictions_of(left_out.paths['dev'])
  for name, lists in judged.predictions.lists.items():
    np.testing.assert_array_equal(lists.ids, theirs.lists[name].ids)
  # Also ECE: no calibration has seen the documents that it is judged on.
  assert 'ECE' in judged.metrics['xjax']['all']
  assert judged.metrics['xjax'] == left_out.metrics['dev']['xjax']
  assert (plain.paths['dev'] / 'predictions.npz').read_bytes() == before
  assert judged.prior['xjax'] == left_out.prior['dev']['xjax']


def test_training_and_evaluate_accept_the_same_lists(linear, tmp_path, caplog):
  config = config_of(*RUNS['svm'])
  config.data.hold_out_labels = 0
  raw = config.data.read()
  unused = sorted(set(raw.labels.ids) - set(raw.label_ids))
  path = tmp_path / 'list.txt'
  path.write_text('\n'.join(['c01', unused[0], 'wrong', 'other']))
  space = fit(with_list(config, str(path)), tmp_path / 'b').corpus.label_space
  # A concept without documents is no unknown label.
  assert [space.ids[i] for i in space.left_out.tolist()] == ['c01']
  assert '2 ids ignored' in caplog.text and "'wrong'" in caplog.text
  caplog.clear()
  evaluate_split(linear[0].workdir, 'dev', leave_out=str(path))
  assert '2 ids ignored' in caplog.text and "'wrong'" in caplog.text
  path.write_text('wrong\n')
  with pytest.raises(DataError, match='has none of these labels'):
    evaluate_split(linear[0].workdir, 'dev', leave_out=str(path))


def test_predict_and_the_saved_model_do_not_show_them(linear, tmp_path):
  lines = [
    {'id': 'a', 'text': TEXTS[0], 'labels': ['c06', 'c01']},
    {'id': 'b', 'text': TEXTS[2], 'labels': ['c02', 'c00']},
  ]
  text = tag(linear[1].workdir, tmp_path, lines, 99).read_text()
  assert not any(f'"{id_}"' in text for id_ in IDS)
  saved = Predictions.load(tmp_path / 'out.npz')
  assert [saved.labels[i] for i in saved.gold.values] == ['c01', 'c02']
  model = xjax.load(linear[1].workdir)
  model.save(tmp_path / 'saved')
  again = xjax.load(tmp_path / 'saved')
  shown = {x.id for row in again.predict(TEXTS, k=99) for x in row}
  assert not shown & set(IDS)
  documents = [TEXTS[0], TEXTS[2]]
  metrics = again.evaluate(documents, [x['labels'] for x in lines])
  assert metrics['all']['n_labels'] == int(saved.masks['all'].sum())


def test_the_list_belongs_to_the_run(linear, tmp_path):
  workdir = shutil.copytree(linear[1].workdir, tmp_path / 'run')
  (workdir / 'left_out.txt').write_text('c01\n')
  with pytest.raises(DataError, match='is not the file that this run wrote'):
    open_run(workdir)


def test_a_resumed_run_needs_the_same_list(tmp_path):
  listed = tmp_path / 'list.txt'
  listed.write_text('c00\n')
  config = with_list(config_of(*RUNS['svm']), str(listed))
  assert fit(config, tmp_path / 'run').metrics
  listed.write_text('c01\n')
  with pytest.raises(DataError, match='was started on another corpus'):
    fit(config, tmp_path / 'run')


def test_an_empty_list_is_as_none(tmp_path):
  listed = tmp_path / 'list.txt'
  listed.write_text('\n')
  config = config_of(*RUNS['svm'])
  plain = fit(config, tmp_path / 'plain').metrics
  assert fit(with_list(config, str(listed)), tmp_path / 'run').metrics == plain


@pytest.mark.parametrize(
  ('text', 'error', 'message'),
  [
    ('wrong\n', DataError, "leave_out=.*has none of these labels .'wrong'"),
    (None, ConfigError, 'config.eval.leave_out=.*no such file'),
    ('\n'.join(f'c{i:02d}' for i in range(100)), DataError, 'has all 100'),
  ],
)
def test_a_faulty_list_is_an_error_before_anything_is_written(
  tmp_path, text, error, message
):
  path = tmp_path / 'list.txt'
  if text is not None:
    path.write_text(text)
  data = {'labels': 'all', 'hold_out_labels': 0}
  config = with_list(config_of(*RUNS['svm']), str(path), **data)
  with pytest.raises(error, match=message):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.thorough
def test_a_neural_model_is_judged_and_chosen_without_them(
  tmp_path, config, monkeypatch
):
  ids = ['c00', 'c03', 'c05']
  (tmp_path / 'list.txt').write_text('\n'.join(ids))
  config = with_list(config, str(tmp_path / 'list.txt'))
  seen, run = [], judging.predict

  def watched(*arguments, **more):
    seen.append(run(*arguments, **more))
    return seen[-1]

  for module in (judging, neural_training):
    monkeypatch.setattr(module, 'predict', watched)
  result = fit(config, tmp_path / 'run')
  space = result.corpus.label_space
  rows = [space.index[id_] for id_ in ids]
  dev = [p for p in seen if len(p) == len(result.corpus.splits['dev'])]
  assert len(dev) >= 3  # twice while training, and at the end
  for predictions in dev:
    for lists in predictions.lists.values():
      assert not np.isin(lists.ids, rows).any()
    assert not np.isin(predictions.gold.values, rows).any()
  model = open_run(result.workdir)
  shown = {x.id for row in model.predict(TEXTS, k=60) for x in row}
  assert len(shown) == model.n_labels - len(rows) and not shown & set(ids)


def test_an_ensemble_leaves_them_out_of_all_its_runs(linear, listed, tmp_path):
  config = config_of(*RUNS['svm'])
  config.data.hold_out_labels = 0
  config = dataclasses.replace(config, train=NoTrain())

  def ensemble(*results):
    runs = tuple(str(result.workdir) for result in results)
    model = EnsembleModel(runs, Averaging.RANK, depth=20)
    return dataclasses.replace(config, model=model)

  # Runs that list the labels are averaged as if they did not.
  whole = ensemble(linear[0], linear[0])
  result = fit(with_list(whole, listed), tmp_path / 'whole')
  assert_left_out(result)
  other = fit(with_list(ensemble(linear[1], linear[1]), listed), tmp_path / 'b')
  ours, theirs = (predictions_of(x.paths['dev']) for x in (result, other))
  for name, lists in ours.lists.items():
    np.testing.assert_array_equal(lists.ids, theirs.lists[name].ids)
    np.testing.assert_array_equal(lists.scores, theirs.lists[name].scores)


@pytest.mark.thorough
@pytest.mark.parametrize('config_of', [reranker, cascade])
def test_shortlists_are_filled_with_other_labels(tmp_path, listed, config_of):
  result = fit(with_list(config_of(), listed), tmp_path / 'run')
  model = assert_left_out(result)
  # The recalls are those of the slice of all other labels.
  scorer, inside_L = model.scorer, result.corpus.label_space.allowed
  dev = result.corpus.splits['dev']
  documents, gold = Documents.of_split(dev), cut_gold(dev.gold, inside_L)
  measured = scorer.rank(documents, Query(20, (inside_L,), measured=1))
  filtered = scorer.rank(documents, Query(20, allowed=inside_L, measured=0))
  by_slice = recalls_of(measured.kept, dev.gold, {'inside': inside_L})
  recalls = predictions_of(result.paths['dev']).recalls['all']
  assert recalls == recalls_of(filtered.kept, gold, {})['all']
  assert recalls == by_slice['inside']
  if config_of is reranker:
    # In training, all labels are proposed, since all are trained.
    nodes = np.load(result.workdir / 'model' / 'shortlists.npz')['nodes']
    assert np.isin(nodes, model.space.left_out).any()
    assert open_run(result.workdir / 'stages' / 'proposer').space.left_out_ids


def test_strategies_choose_among_the_other_labels(linear):
  strategy = StrategyRequest(StrategyKind.COVERAGE, k=5)
  home = linear[1].workdir
  chosen = evaluate_split(home, 'dev', strategy=strategy).predictions
  assert not np.isin(chosen.lists['all'].ids, chosen.left_out).any()


def test_held_out_labels_are_others(tmp_path, listed):
  config = with_list(config_of(*RUNS['svm']), listed, hold_out_labels=40)
  space = fit(config, tmp_path / 'run').corpus.label_space
  held_out = {space.ids[i] for i in space.held_out.tolist()}
  assert len(held_out) == 40 and not held_out & set(IDS)
