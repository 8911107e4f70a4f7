"""A model without training: fit, fit again, load, predict, judge."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import sparse

from xjax.core.errors import ConfigError, DataError
from xjax.core.types import ScoreKind
from xjax.data.config import WordsConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.schema import Document, Label
from xjax.data.sparse_documents import SparseDocuments
from xjax.data.text.words import split_words
from xjax.judge.predictions import Predictions
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.shrink import shrink
from xjax.report.terminal.fitted import run_summary
from xjax.run.evaluate import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.predict_file import predict_file
from xjax.train.train_config import NoTrain

N_DEV = 60


@pytest.fixture(scope='module')
def matching():
  small = shrink(Config(model=ExactMatchModel(), train=NoTrain()))
  tokens = dataclasses.replace(
    small.data.tokens, max_tokens=200, buckets=(200,)
  )
  return dataclasses.replace(
    small,
    data=dataclasses.replace(
      small.data,
      n_train=300,
      n_dev=N_DEV,
      n_labels=64,
      hold_out_labels=10,
      tokens=tokens,
    ),
  )


@pytest.fixture(scope='module')
def matched(matching, tmp_path_factory):
  return fit(matching, tmp_path_factory.mktemp('matched') / 'run')


@pytest.fixture(scope='module')
def dev(matched):
  return Predictions.load(matched.paths['dev'] / 'predictions.npz')


def contents(folder):
  files = (path for path in folder.rglob('*') if path.is_file())
  return {path.relative_to(folder): path.read_bytes() for path in files}


def test_the_workdir_has_what_the_model_is_and_what_it_predicted(matched):
  assert {path.name for path in matched.workdir.iterdir()} == {
    'config.json',
    'corpus.json',
    'labels.jsonl',
    'concepts.jsonl',
    'calibration.json',
    'digests.json',
    'eval',
    'run.json',
    'tb',
  }
  assert matched.steps == 0 and set(matched.paths) == {'dev', 'test'}


def test_a_second_start_changes_nothing(matching, matched):
  before = contents(matched.workdir)
  again = fit(matching, matched.workdir)
  assert contents(matched.workdir) == before
  assert again.metrics == matched.metrics
  assert run_summary(again) == run_summary(matched)
  assert 'checkpoint' not in run_summary(matched)
  other = dataclasses.replace(matching, model=ExactMatchModel(alt=True))
  with pytest.raises(ConfigError, match='model.alt: false -> true'):
    fit(other, matched.workdir)
  with pytest.raises(
    ConfigError, match='only the steps of neural models can be'
  ):
    fit(matching, matched.workdir, profile=(1, 2))


def test_labels_are_listed_where_their_names_are_found(matched, dev):
  split, space = matched.corpus.split('dev'), matched.corpus.label_space
  names = [' '.join(split_words(label.name)) for label in space.labels]
  n_listed = 0
  for row in range(N_DEV):
    text = f' {" ".join(split_words(split.documents[row].text()))} '
    found = [i for i, name in enumerate(names) if f' {name} ' in text]
    for name, mask in dev.masks.items():
      listed = dev.lists[name].ids[row]
      wanted = {i for i in found if mask[i]}
      assert len(wanted) <= len(listed)
      assert set(listed[listed >= 0].tolist()) == wanted
    n_listed += len(found)
  assert n_listed > N_DEV
  assert dev.score_kind is ScoreKind.MARGIN


def test_held_out_labels_are_found_like_all_others(matched, dev):
  assert dev.n_scored == len(dev.labels)
  assert (dev.lists['held_out'].ids >= dev.held_out.min()).any()
  values = matched.metrics['dev']['xjax']['held_out']
  assert values['n_labels'] == 10 and values['RP@5'] > 0.1


def test_what_is_found_is_assigned(matched, dev):
  gold = [set(dev.gold[row].tolist()) for row in range(N_DEV)]
  listed = [set(row[row >= 0].tolist()) for row in dev.lists['all'].ids]
  right = sum(len(a & b) for a, b in zip(gold, listed, strict=True))
  both = sum(map(len, gold)) + sum(map(len, listed))
  assert matched.metrics['dev']['xjax']['all']['micro-F1'] == pytest.approx(
    2 * right / both
  )


def test_evaluate_says_the_same(matched):
  path = matched.paths['dev'] / 'metrics.json'
  before = path.read_bytes()
  path.unlink()
  found = evaluate_split(matched.workdir, 'dev')
  assert path.read_bytes() == before
  assert found.predictions.assigned_above == 0


def test_predicts_texts_and_documents_alike(matched, dev):
  predictor = open_run(matched.workdir)
  split = matched.corpus.split('dev')
  documents = [split.documents[row] for row in range(N_DEV)]
  lists = predictor.predict(documents, 3)
  ids = dev.lists['all'].ids[:, :3]
  assert [[p.id for p in row] for row in lists] == [
    [dev.labels[i] for i in row if i >= 0] for row in ids
  ]
  assert predictor.predict([d.text() for d in documents], 3) == lists
  assert predictor.predict([], 3) == []
  assert predictor.predict(['', '?'], 3) == [[], []]
  scores = [p.score for row in lists for p in row]
  assert scores and all(score > 0 for score in scores)


def test_tags_files_and_labels_that_are_new(matched, tmp_path):
  (tmp_path / 'in.jsonl').write_text(
    json.dumps({'id': 'd', 'text': 'of brand new, words'}) + '\n'
  )
  (tmp_path / 'new.txt').write_text('Brand new\nother words\n')
  source, output = str(tmp_path / 'in.jsonl'), str(tmp_path / 'out.jsonl')
  predict_file(
    matched.workdir, source, output, 5, labels=str(tmp_path / 'new.txt')
  )
  (row,) = map(json.loads, (tmp_path / 'out.jsonl').read_text().splitlines())
  assert [found['id'] for found in row['labels']] == ['Brand new']
  saved = Predictions.load(tmp_path / 'out.npz')
  assert (
    saved.n_scored == matched.corpus.label_space.n_trained + 12
    and saved.assigned_above == 0
  )


def test_new_labels_do_not_change_the_old_ones(matched):
  predictor = open_run(matched.workdir)
  more = predictor.with_labels([Label('new', 'shoe and sock')])
  split = matched.corpus.split('dev')
  documents = [split.documents[row] for row in range(9)]
  assert more.predict(documents) == predictor.predict(documents)
  (found,) = more.predict([Document('d', {'title': 'Shoe and sock!'})])
  assert [p.id for p in found] == ['new']


def test_the_words_of_a_name_explain_its_label(matched, tmp_path):
  predictor = open_run(matched.workdir)
  label = next(x for x in predictor.space.labels if split_words(x.name))
  text = f'Zzz, {label.name.upper()}!'
  labels = predictor.explain([text], 99, 99)[0]
  (why,) = (x.why for x in labels if x.id == label.id)
  shown = [word.word.lower() for word in sorted(why, key=lambda word: word.at)]
  assert shown == list(dict.fromkeys(split_words(label.name, True)))
  raw = predictor.lists([text], 99)
  index = predictor.space.index[label.id]
  (score,) = raw.scores[raw.ids == index]
  assert sum(word.weight for word in why) == pytest.approx(score, abs=1e-5)
  path, out = tmp_path / 'in.jsonl', tmp_path / 'out.jsonl'
  path.write_text(json.dumps({'text': text}))
  shown = predict_file(matched.workdir, str(path), str(out), 99, explain=3)
  assert [w.weight for w in shown.documents[0].labels[0].why]


def test_what_it_cannot_do_is_said(matched):
  predictor = open_run(matched.workdir)
  with pytest.raises(ConfigError, match='do not give it features'):
    predictor.predict(['text'], features=[np.zeros(3, np.float32)])


def own_corpus(folder, labels):
  rows = [{'id': f'{i}', 'text': 'a fish', 'labels': ['7']} for i in range(4)]
  for name in ('train', 'dev'):
    (folder / f'{name}.jsonl').write_text(
      ''.join(json.dumps(row) + '\n' for row in rows)
    )
  (folder / 'labels.jsonl').write_text(
    ''.join(json.dumps(row) + '\n' for row in labels)
  )
  data = JsonlData(
    dir=str(folder), tokens=WordsConfig(max_tokens=9, buckets=(9,))
  )
  return Config(data=data, model=ExactMatchModel(), train=NoTrain())


def test_labels_without_names_are_an_error_that_leaves_nothing(tmp_path):
  config = own_corpus(tmp_path, [{'id': '7'}, {'id': '8', 'name': ' - '}])
  with pytest.raises(DataError, match='no label has a name'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('alt', [False, True])
def test_alternative_names_are_an_option(tmp_path, alt):
  labels = [{'id': '7', 'name': 'sea animals', 'alt': ['fish', '?']}]
  config = own_corpus(tmp_path, [*labels, {'id': '8', 'name': '8'}])
  config.model.alt = alt
  fit(config, tmp_path / 'run')
  (found,) = open_run(tmp_path / 'run').predict(['8 fish'])
  assert [p.id for p in found] == ['7'] * alt


def test_nothing_is_found_at_all(tmp_path):
  """Empty lists are judged, and cannot be calibrated."""
  config = own_corpus(tmp_path, [{'id': '7', 'name': 'sea animals'}])
  result = fit(config, tmp_path / 'run')
  values = result.metrics['dev']['xjax']['all']
  assert values['RP@5'] == values['micro-F1'] == 0
  assert run_summary(fit(config, tmp_path / 'run')) == run_summary(result)


def test_what_is_next_is_told_as_the_run_reads_documents(matched):
  told = run_summary(matched)
  assert (
    'echo ' in told and 'xjax serve --workdir=' not in told.split('echo')[0]
  )
  assert 'Instead of --k=5, --threshold=tuned writes only' in told
  assert ' serve --workdir=' in told
  rows = sparse.csr_array((N_DEV, 3), dtype=np.float32)
  splits = {
    name: dataclasses.replace(
      split, documents=SparseDocuments(f'my files/{name}.txt', rows)
    )
    for name, split in matched.corpus.splits.items()
  }
  corpus = dataclasses.replace(matched.corpus, splits=splits)
  told = run_summary(dataclasses.replace(matched, corpus=corpus))
  assert 'predict --workdir' in told and 'echo ' not in told
  assert "--k=5 --input='my files/dev.txt'\n" in told
