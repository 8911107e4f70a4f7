"""Labels whose names are in a text: runs, new labels, explanations."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.data.schema import Document, Label
from xjax.data.sparse_documents import SparseDocuments
from xjax.data.text.words import split_words
from xjax.judge.predictions import Predictions
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.report.terminal.fitted import run_summary
from xjax.run.fit import fit
from xjax.run.open_run import open_run


@pytest.fixture(scope='module')
def matched(by_words):
  return by_words(ExactMatchModel())


@pytest.fixture(scope='module')
def dev(matched):
  return Predictions.load(matched.paths['dev'] / 'predictions.npz')


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
  assert 'checkpoint' not in run_summary(matched)


def test_labels_are_listed_where_their_names_are_found(matched, dev):
  split, space = matched.corpus.split('dev'), matched.corpus.label_space
  names = [' '.join(split_words(label.name)) for label in space.labels]
  n_listed = 0
  for row in range(len(split)):
    text = f' {" ".join(split_words(split.documents[row].text()))} '
    found = [i for i, name in enumerate(names) if f' {name} ' in text]
    for name, mask in dev.masks.items():
      listed = dev.lists[name].ids[row]
      wanted = {i for i in found if mask[i]}
      assert len(wanted) <= len(listed)
      assert set(listed[listed >= 0].tolist()) == wanted
    n_listed += len(found)
  assert n_listed > len(split)
  assert dev.score_kind is ScoreKind.MARGIN and dev.assigned_above == 0
  listed = dev.lists['all']
  assert (listed.scores[listed.ids >= 0] > 0).all()
  assert open_run(matched.workdir).predict(['', '?'], 3) == [[], []]


def test_what_is_found_is_assigned(matched, dev):
  gold = [set(dev.gold[row].tolist()) for row in range(len(dev.gold))]
  listed = [set(row[row >= 0].tolist()) for row in dev.lists['all'].ids]
  right = sum(len(a & b) for a, b in zip(gold, listed, strict=True))
  both = sum(map(len, gold)) + sum(map(len, listed))
  assert matched.metrics['dev']['xjax']['all']['micro-F1'] == pytest.approx(
    2 * right / both
  )


def test_the_words_of_a_name_explain_its_label(matched):
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


def test_new_labels_are_found_by_name(matched):
  more = open_run(matched.workdir).with_labels([Label('new', 'shoe and sock')])
  (found,) = more.predict([Document('d', {'title': 'Shoe and sock!'})])
  assert [p.id for p in found] == ['new']


def test_what_it_cannot_do_is_said(matched):
  with pytest.raises(ConfigError, match='do not give it features'):
    open_run(matched.workdir).predict(
      ['text'], features=[np.zeros(3, np.float32)]
    )
  with pytest.raises(
    ConfigError, match='only the steps of neural models can be'
  ):
    fit(open_run(matched.workdir).config, matched.workdir, profile=(1, 2))


def test_nothing_is_found_at_all(own_corpus, tmp_path):
  """Empty lists are judged, and cannot be calibrated."""
  config = own_corpus(ExactMatchModel(), [{'id': '7', 'name': 'sea animals'}])
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
  rows = sparse.csr_array((60, 3), dtype=np.float32)
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
