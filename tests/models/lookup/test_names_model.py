"""Runs that find parts of names: fit, resume, load, predict, explain."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.core.types import ScoreKind
from xjax.data.config import WordsConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.schema import Label
from xjax.judge.predictions import Predictions
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.lookup.names import NamesModel, UnitCounts, Units, UnitSplitter
from xjax.models.shrink import shrink
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.train_config import NoTrain

N_DEV = 60
TEXTS = ['The sea has many fishes', 'Oil of olives', '', '?']


@pytest.fixture(scope='module')
def config():
  small = shrink(Config(model=NamesModel(), train=NoTrain()))
  tokens = dataclasses.replace(
    small.data.tokens, max_tokens=200, buckets=(200,)
  )
  sizes = {
    'n_train': 300,
    'n_dev': N_DEV,
    'n_labels': 64,
    'hold_out_labels': 10,
  }
  data = dataclasses.replace(small.data, tokens=tokens, **sizes)
  return dataclasses.replace(small, data=data)


@pytest.fixture(scope='module')
def fitted(config, tmp_path_factory):
  return fit(config, tmp_path_factory.mktemp('names') / 'run')


@pytest.fixture(scope='module')
def dev(fitted):
  return Predictions.load(fitted.paths['dev'] / 'predictions.npz')


def copy_of(fitted, folder):
  return shutil.copytree(fitted.workdir, folder / 'run')


def no_count(*_):
  raise AssertionError('the units are counted again')


def test_labels_that_share_a_stem_with_the_text_are_listed(fitted, dev):
  split, space = fitted.corpus.split('dev'), fitted.corpus.label_space
  stems = UnitSplitter(Units.STEMS, 'english').words
  names = [
    [stems(name) for name in (label.name, *label.alt)]
    for label in space.labels[: space.n_inside]
  ]
  for row, ids in enumerate(dev.lists['all'].ids):
    words = stems(split.documents[row].text())
    shared = {i for i, x in enumerate(names) if set(sum(x, [])) & set(words)}
    listed = ids[ids >= 0].tolist()
    assert set(listed) <= shared
    assert len(listed) == min(len(shared), len(ids))
    scores = dev.lists['all'].scores[row, : len(listed)]
    assert (np.diff(scores) <= 0).all() and (scores > 0).all()
  assert dev.score_kind is ScoreKind.MARGIN and dev.assigned_above == 20


def test_held_out_labels_are_scored_like_all_others(fitted, dev):
  assert dev.n_scored == fitted.corpus.label_space.n_inside
  assert (dev.lists['held_out'].ids >= dev.held_out.min()).any()
  values = fitted.metrics['dev']['xjax']['held_out']
  assert values['n_labels'] == 10 and values['RP@5'] > 0.1


def test_a_loaded_run_predicts_the_same(fitted, dev):
  predictor = open_run(fitted.workdir)
  split = fitted.corpus.split('dev')
  lists = predictor.lists([split.documents[row] for row in range(N_DEV)], 9)
  np.testing.assert_array_equal(lists.ids, dev.lists['all'].ids[:, :9])
  np.testing.assert_array_equal(lists.scores, dev.lists['all'].scores[:, :9])


def test_a_resumed_run_does_not_count_again(
  config, fitted, tmp_path, monkeypatch
):
  workdir = copy_of(fitted, tmp_path)
  shutil.rmtree(workdir / 'eval')
  before = (workdir / 'model' / 'units.npz').read_bytes()
  monkeypatch.setattr(UnitCounts, 'fit', no_count)
  assert fit(config, workdir).metrics == fitted.metrics
  assert (workdir / 'model' / 'units.npz').read_bytes() == before
  for name in ('dev', 'test'):
    path = f'eval/{name}/predictions.npz'
    again = (workdir / path).read_bytes()
    assert again == (fitted.workdir / path).read_bytes()


def test_two_runs_count_the_same(config, fitted, tmp_path):
  again = fit(config, tmp_path / 'run')
  for path in ('model/units.npz', 'eval/dev/predictions.npz'):
    same = (fitted.workdir / path).read_bytes()
    assert (again.workdir / path).read_bytes() == same


@pytest.mark.parametrize('recorded', [True, False])
def test_damaged_counts_are_an_error(fitted, tmp_path, recorded):
  workdir = copy_of(fitted, tmp_path)
  if not recorded:
    (workdir / 'digests.json').unlink()
  path = workdir / 'model' / 'units.npz'
  path.write_bytes(path.read_bytes()[:-9])
  with pytest.raises(DataError, match='units.npz'):
    open_run(workdir)
  path.unlink()
  with pytest.raises(DataError, match='units.npz: no such file'):
    open_run(workdir)


def test_counts_of_another_run_are_an_error(fitted, tmp_path):
  workdir = copy_of(fitted, tmp_path)
  path = workdir / 'model' / 'units.npz'
  dataclasses.replace(UnitCounts.load(path), n_documents=1000).save(path)
  with pytest.raises(DataError, match='units.npz: is not the file'):
    open_run(workdir)


def own_corpus(folder, labels, **options):
  texts = ['A fish in the sea', 'fish oil', 'olive oil', 'the sea']
  rows = [
    {'id': f'{i}', 'text': text, 'labels': ['7']}
    for i, text in enumerate(texts)
  ]
  for name, lines in {'train': rows, 'dev': rows, 'labels': labels}.items():
    text = ''.join(json.dumps(row) + '\n' for row in lines)
    (folder / f'{name}.jsonl').write_text(text)
  tokens = WordsConfig(max_tokens=9, buckets=(9,))
  data = JsonlData(dir=str(folder), tokens=tokens, labels='all')
  return Config(data=data, model=NamesModel(**options), train=NoTrain())


LABELS = [
  {'id': '7', 'name': 'sea fish', 'alt': ['herring']},
  {'id': '8', 'name': 'olive oil'},
  {'id': '9', 'name': 'fish oil'},
]


def listed(predictor, texts):
  return [[label.id for label in row] for row in predictor.predict(texts)]


@pytest.mark.parametrize('units', Units)
def test_names_are_found_by_parts(tmp_path, units):
  result = fit(own_corpus(tmp_path, LABELS, units=units), tmp_path / 'run')
  predictor = open_run(result.workdir)
  assert listed(predictor, TEXTS) == [['7', '9'], ['8', '9'], [], []]
  compound = listed(predictor, ['Seafishing'])
  assert compound == ([['7', '9']] if units is Units.CHARACTERS else [[]])


@pytest.mark.parametrize('alt', [False, True])
def test_alternative_names_are_an_option(tmp_path, alt):
  fit(own_corpus(tmp_path, LABELS, alt=alt), tmp_path / 'run')
  assert listed(open_run(tmp_path / 'run'), ['Herrings']) == [['7'] * alt]


def test_new_labels_are_found_by_name(tmp_path):
  result = fit(own_corpus(tmp_path, LABELS), tmp_path / 'run')
  predictor = open_run(result.workdir)
  more = predictor.with_labels([Label('new', 'Many whales')])
  before, after = listed(predictor, TEXTS), listed(more, TEXTS)
  assert after[0].pop(before[0].index('9')) == 'new' and after == before
  assert listed(more, ['many whales of the sea'])[0][0] == 'new'
  assert more.calibration == predictor.calibration


def test_the_matched_words_explain_a_label(tmp_path):
  result = fit(own_corpus(tmp_path, LABELS), tmp_path / 'run')
  predictor = open_run(result.workdir)
  (labels,) = predictor.explain([TEXTS[0]], 9, 9)
  words = {x.id: {word.word for word in x.why} for x in labels}
  assert words == {'7': {'sea', 'fishes'}, '9': {'fishes'}}
  scores = predictor.lists([TEXTS[0]], 2).scores[0]
  sums = [sum(word.weight for word in label.why) for label in labels]
  assert sums == pytest.approx(scores.tolist(), abs=1e-5)


def test_labels_without_names_are_an_error_that_leaves_nothing(tmp_path):
  config = own_corpus(tmp_path, [{'id': '7'}, {'id': '8', 'name': ' - '}])
  with pytest.raises(DataError, match='no label has a name'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_languages_without_a_stemmer_are_an_error(tmp_path):
  with pytest.raises(ConfigError, match="config.model.language='klingon'"):
    check_config(own_corpus(tmp_path, LABELS, language='klingon'))
  check_config(own_corpus(tmp_path, LABELS, language='german'))
  options = {'units': Units.CHARACTERS, 'language': 'klingon'}
  check_config(own_corpus(tmp_path, LABELS, **options))
