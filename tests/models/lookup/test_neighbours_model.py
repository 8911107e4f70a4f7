"""Nearest documents: fit, resume, load, predict, judge; on text and on rows."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.fixtures.sparse_runs import N_DEV, config_of, contents
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import ScoreKind
from xjax.data.config import GivenFeaturesConfig, TfidfConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.schema import Label
from xjax.data.text.tfidf import Tfidf
from xjax.judge.predictions import Predictions
from xjax.models.contract import Config
from xjax.models.ensemble.ensemble_model import EnsembleModel
from xjax.models.lookup import neighbours_model as neighbours
from xjax.models.lookup.neighbours_model import NeighboursModel
from xjax.report.terminal.fitted import run_summary
from xjax.run.evaluate import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.predict_file import predict_file
from xjax.train.train_config import NoTrain

MODEL = NeighboursModel(neighbours=7, power=2.0)


@pytest.fixture(scope='module')
def config():
  return config_of(MODEL, NoTrain())


@pytest.fixture(scope='module')
def fitted(config, tmp_path_factory):
  return fit(config, tmp_path_factory.mktemp('neighbours') / 'run')


@pytest.fixture(scope='module')
def dev(fitted):
  return Predictions.load(fitted.paths['dev'] / 'predictions.npz')


def votes_by_definition(features, rows, gold, n_labels):
  """Returns the votes for labels by NumPy, from all similarities."""
  cosines = (rows @ features.T).toarray().astype(np.float64)
  votes = np.zeros((len(cosines), n_labels))
  for i, row in enumerate(cosines):
    near = np.argsort(-row, kind='stable')[: MODEL.neighbours]
    weights = np.maximum(row[near], 0) ** MODEL.power
    for document, weight in zip(near, weights):
      votes[i, gold[document]] += weight / weights.sum()
  return votes


def split_texts(corpus, name):
  split = corpus.split(name)
  return [split.documents[row].text() for row in range(len(split))]


def test_scores_are_the_votes_of_the_nearest_documents(fitted, dev):
  corpus, tfidf = (
    fitted.corpus,
    Tfidf.load(fitted.workdir / 'features/tfidf.npz'),
  )
  features, rows = (tfidf(split_texts(corpus, x)) for x in ('train', 'dev'))
  n_labels = corpus.label_space.n_trained
  votes = votes_by_definition(features, rows, corpus.trained_gold, n_labels)
  lists = dev.lists['all']
  for row in range(N_DEV):
    real = lists.ids[row] >= 0
    ids, scores = lists.ids[row][real], lists.scores[row][real]
    np.testing.assert_allclose(scores, votes[row, ids], rtol=1e-4)
    assert len(ids) == min(20, (votes[row] > 0).sum())
  assert dev.score_kind is ScoreKind.MARGIN and dev.n_scored == n_labels


def test_the_documents_that_vote_are_similar_in_labels(fitted):
  values = fitted.metrics['dev']['xjax']['all']
  assert values['P@1'] > fitted.prior['dev']['xjax']['all']['P@1'] + 0.1


def test_labels_with_most_votes_are_assigned(fitted, dev):
  listed = dev.lists['all']
  assigned = [
    set(i[s > 0.5].tolist()) for i, s in zip(listed.ids, listed.scores)
  ]
  gold = [set(dev.gold[row].tolist()) for row in range(N_DEV)]
  right = sum(len(a & b) for a, b in zip(gold, assigned, strict=True))
  both = sum(map(len, gold)) + sum(map(len, assigned))
  assert right and dev.assigned_above == 0.5
  assert fitted.metrics['dev']['xjax']['all']['micro-F1'] == pytest.approx(
    2 * right / both
  )


def test_a_second_start_changes_nothing(config, fitted):
  before = contents(fitted.workdir)
  again = fit(config, fitted.workdir)
  assert contents(fitted.workdir) == before
  assert again.metrics == fitted.metrics
  assert run_summary(again) == run_summary(fitted)
  other = dataclasses.replace(config, model=NeighboursModel(neighbours=8))
  with pytest.raises(ConfigError, match='model.neighbours: 7 -> 8'):
    fit(other, fitted.workdir)


@pytest.mark.parametrize('lost', ['features', 'rows'])
def test_a_start_after_a_kill_makes_the_same_files(
  config, fitted, tmp_path, monkeypatch, lost
):
  class Killed(Exception):
    pass

  def kill(*args):
    raise Killed

  kind = Tfidf if lost == 'features' else neighbours.TrainedRows
  with monkeypatch.context() as patched:
    patched.setattr(kind, 'save', kill)
    with pytest.raises(Killed):
      fit(config, tmp_path / 'run')
  fit(config, tmp_path / 'run')
  for name in ('features/tfidf.npz', 'model/neighbours.npz'):
    same = (tmp_path / 'run' / name).read_bytes()
    assert same == (fitted.workdir / name).read_bytes()


def test_no_document_votes_for_itself(fitted):
  """Without its own vote, a document has what the other documents vote."""
  found = evaluate_split(fitted.workdir, 'train').predictions
  corpus, tfidf = (
    fitted.corpus,
    Tfidf.load(fitted.workdir / 'features/tfidf.npz'),
  )
  rows = tfidf(split_texts(corpus, 'train'))
  n_labels, gold = corpus.label_space.n_trained, corpus.trained_gold
  for row in range(0, len(gold), 29):
    others = np.arange(len(gold)) != row
    others_gold = [gold[i] for i in np.flatnonzero(others)]
    (votes,) = votes_by_definition(
      rows[others], rows[[row]], others_gold, n_labels
    )
    real = found.lists['all'].ids[row] >= 0
    ids = found.lists['all'].ids[row][real]
    scores = found.lists['all'].scores[row][real]
    np.testing.assert_allclose(scores, votes[ids], rtol=1e-4)


def test_a_text_of_train_is_predicted_with_its_own_vote(fitted):
  predictor, corpus = open_run(fitted.workdir), fitted.corpus
  judged = evaluate_split(fitted.workdir, 'train').predictions.lists['all']
  lists = predictor.lists(split_texts(corpus, 'train'), 20)
  both = zip(corpus.trained_gold, lists.ids, judged.ids)
  hits = np.array(
    [[np.isin(g, a).all(), np.isin(g, b).all()] for g, a, b in both]
  )
  assert hits[:, 0].all() and not hits[:, 1].all()


def test_predicts_texts_and_documents_alike(fitted, dev):
  predictor = open_run(fitted.workdir)
  split = fitted.corpus.split('dev')
  documents = [split.documents[row] for row in range(N_DEV)]
  lists = predictor.predict(documents, 3)
  ids = dev.lists['all'].ids[:, :3]
  assert [[p.id for p in row] for row in lists] == [
    [dev.labels[i] for i in row if i >= 0] for row in ids
  ]
  assert predictor.predict([d.text() for d in documents], 3) == lists
  assert predictor.predict([], 3) == []
  assert predictor.predict(['', '?'], 3) == [[], []]


def test_what_it_cannot_do_is_said(fitted, tmp_path):
  predictor = open_run(fitted.workdir)
  with pytest.raises(ConfigError, match='nearest training documents decide'):
    predictor.explain(['text'])
  with pytest.raises(ConfigError, match='nearest training documents decide'):
    source, out = tmp_path / 'in.jsonl', tmp_path / 'out.jsonl'
    source.write_text(json.dumps({'text': 'text'}))
    predict_file(fitted.workdir, str(source), str(out), 3, explain=3)
  with pytest.raises(
    ConfigError, match='NeighboursModel cannot score new labels: it can only'
  ):
    predictor.with_labels([Label('new', 'a name')])
  with pytest.raises(ConfigError, match='only neural models have checkpoints'):
    open_run(fitted.workdir, 3)


def test_several_processes_are_an_error(config, tmp_path, monkeypatch):
  monkeypatch.setattr('xjax.models.contract.process_count', lambda: 2)
  with pytest.raises(ConfigError, match='can only be used by one process'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run' / 'config.json').exists()


def test_a_corpus_without_gold_is_an_error_that_leaves_nothing(
  config, tmp_path
):
  for name in ('train', 'dev'):
    row = {'id': '1', 'text': 'some words', 'labels': []}
    (tmp_path / f'{name}.jsonl').write_text(json.dumps(row) + '\n')
  (tmp_path / 'labels.jsonl').write_text('{"id": "7"}\n')
  data = JsonlData(dir=str(tmp_path), labels='all', tokens=TfidfConfig())
  with pytest.raises(DataError, match='there is nothing to learn'):
    fit(dataclasses.replace(config, data=data), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def saved_arrays(path):
  with np.load(path, allow_pickle=False) as file:
    return dict(file)


ROWS, GOLD, ENDS = 'rows/indices', 'gold/indices', 'gold/indptr'
FAULTS = {
  'another number of features': (
    lambda x: x | {'features': x['features'] + 1},
    'but the run has 500 documents',
  ),
  'another number of labels': (
    lambda x: x | {'labels': x['labels'] + 1},
    'is this a file of another run',
  ),
  'a column that does not exist': (
    lambda x: x | {ROWS: np.where(x[ROWS] == 3, 10**6, x[ROWS])},
    'rows/indices: is not in 0..',
  ),
  'columns that fall': (
    lambda x: x | {ROWS: x[ROWS] * 0},
    'rows/indices: does not ascend',
  ),
  'a label that does not exist': (
    lambda x: x | {GOLD: x[GOLD] + 10**6},
    'gold/indices: is not in 0..',
  ),
  'a value that is not finite': (
    lambda x: x | {'rows/values': x['rows/values'] * np.nan},
    'rows/values: is not finite',
  ),
  'too few values': (
    lambda x: x | {'rows/values': x['rows/values'][1:]},
    'rows/values: is float32',
  ),
  'an array that is missing': (
    lambda x: {name: y for name, y in x.items() if name != ROWS},
    'rows/indices: missing',
  ),
  'labels of fewer documents': (
    lambda x: (
      x
      | {'gold/indptr': x['gold/indptr'][:-1]}
      | {GOLD: x[GOLD][: x['gold/indptr'][-2]]}
    ),
    'gold/indptr: should have 501 entries',
  ),
}


@pytest.mark.parametrize('fault', FAULTS)
def test_damage_is_found(fitted, tmp_path, fault):
  """Files of earlier versions have no digests, which would find all faults."""
  folder = shutil.copytree(fitted.workdir, tmp_path / 'run')
  (folder / 'digests.json').unlink()
  path = folder / 'model' / 'neighbours.npz'
  whole = path.read_bytes()
  damage, message = FAULTS[fault]
  np.savez(path, **damage(saved_arrays(path)))
  with pytest.raises(DataError, match=message):
    open_run(folder)
  path.write_bytes(whole[:-50])
  with pytest.raises(DataError, match='cannot be read'):
    open_run(folder)
  path.unlink()
  with pytest.raises(DataError, match='no such file'):
    open_run(folder)


def test_a_changed_file_is_found(fitted, tmp_path):
  folder = shutil.copytree(fitted.workdir, tmp_path / 'run')
  path = folder / 'model' / 'neighbours.npz'
  arrays = saved_arrays(path)
  np.savez(path, **arrays | {'rows/values': arrays['rows/values'] * 2})
  with pytest.raises(DataError, match='is not the file that this run wrote'):
    open_run(folder)


def test_an_ensemble_copies_what_its_run_needs(config, fitted, tmp_path):
  model = EnsembleModel(workdirs=(str(fitted.workdir),))
  ensemble = fit(dataclasses.replace(config, model=model), tmp_path / 'run')
  lists = open_run(ensemble.workdir).predict(
    split_texts(fitted.corpus, 'dev'), 1
  )
  own = open_run(fitted.workdir).predict(split_texts(fitted.corpus, 'dev'), 1)
  assert [[x.id for x in row] for row in lists] == [
    [x.id for x in row] for row in own
  ]


def feature_file(rows, gold):
  lines = [f'{len(rows)} {rows.shape[1]} 6']
  for row, labels in zip(rows, gold, strict=True):
    cells = ' '.join(f'{i}:{x:.3f}' for i, x in enumerate(row) if x)
    lines.append(f'{",".join(map(str, labels))} {cells}')
  return '\n'.join(lines) + '\n'


def test_files_of_features(tmp_path):
  """A document has the features of its labels, and of a few others."""
  rng = np.random.default_rng(0)
  for split, n in (('train', 80), ('dev', 20), ('test', 20)):
    gold = [np.sort(rng.choice(6, 2, replace=False)) for _ in range(n)]
    rows = 0.2 * rng.random((n, 9)) * (rng.random((n, 9)) < 0.5)
    for row, labels in zip(rows, gold):
      row[labels] += 1
    (tmp_path / f'{split}.txt').write_text(feature_file(rows, gold))
  data = XcFeaturesData(dir=str(tmp_path), tokens=GivenFeaturesConfig())
  config = Config(data=data, model=NeighboursModel(), train=NoTrain())
  result = fit(config, tmp_path / 'run')
  assert result.metrics['test']['xjax']['all']['P@1'] > 0.9
  assert not (tmp_path / 'run' / 'features').exists()
  before = contents(tmp_path / 'run')
  assert fit(config, tmp_path / 'run').metrics == result.metrics
  assert contents(tmp_path / 'run') == before
  predictor = open_run(tmp_path / 'run')
  predictor.warmup()
  with pytest.raises(ConfigError, match='reads sparse features, not text'):
    predictor.predict(['text'])
  with pytest.raises(ConfigError, match='reads features, not words'):
    predictor.explain(['text'])
  dev = Predictions.load(result.paths['test'] / 'predictions.npz')
  lists = predictor.predict(result.corpus.split('test').documents, 3)
  assert [[int(found.id) for found in row] for row in lists] == [
    [int(dev.labels[i]) for i in row if i >= 0]
    for row in dev.lists['all'].ids[:, :3]
  ]
