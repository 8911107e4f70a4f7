"""Runs that find parts of names: lists, new labels, explanations."""

import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.types import ScoreKind
from xjax.data.schema import Label
from xjax.judge.predictions import Predictions
from xjax.models.config_check import check_config
from xjax.models.lookup.names import NamesModel, Units, UnitSplitter
from xjax.run.fit import fit
from xjax.run.open_run import open_run

TEXTS = ['The sea has many fishes', 'Oil of olives', '', '?']


@pytest.fixture(scope='module')
def fitted(by_words):
  return by_words(NamesModel())


@pytest.fixture(scope='module')
def dev(fitted):
  return Predictions.load(fitted.paths['dev'] / 'predictions.npz')


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


LABELS = [
  {'id': '7', 'name': 'sea fish', 'alt': ['herring']},
  {'id': '8', 'name': 'olive oil'},
  {'id': '9', 'name': 'fish oil'},
]


def listed(predictor, texts):
  return [[label.id for label in row] for row in predictor.predict(texts)]


@pytest.mark.parametrize('units', Units)
def test_names_are_found_by_parts(own_corpus, tmp_path, units):
  result = fit(own_corpus(NamesModel(units=units), LABELS), tmp_path / 'run')
  predictor = open_run(result.workdir)
  assert listed(predictor, TEXTS) == [['7', '9'], ['8', '9'], [], []]
  compound = listed(predictor, ['Seafishing'])
  assert compound == ([['7', '9']] if units is Units.CHARACTERS else [[]])


def test_new_labels_are_found_by_name(own_corpus, tmp_path):
  result = fit(own_corpus(NamesModel(), LABELS), tmp_path / 'run')
  predictor = open_run(result.workdir)
  more = predictor.with_labels([Label('new', 'Many whales')])
  before, after = listed(predictor, TEXTS), listed(more, TEXTS)
  assert after[0].pop(before[0].index('9')) == 'new' and after == before
  assert listed(more, ['many whales of the sea'])[0][0] == 'new'
  assert more.calibration == predictor.calibration


def test_the_matched_words_explain_a_label(own_corpus, tmp_path):
  result = fit(own_corpus(NamesModel(), LABELS), tmp_path / 'run')
  predictor = open_run(result.workdir)
  (labels,) = predictor.explain([TEXTS[0]], 9, 9)
  words = {x.id: {word.word for word in x.why} for x in labels}
  assert words == {'7': {'sea', 'fishes'}, '9': {'fishes'}}
  scores = predictor.lists([TEXTS[0]], 2).scores[0]
  sums = [sum(word.weight for word in label.why) for label in labels]
  assert sums == pytest.approx(scores.tolist(), abs=1e-5)


def test_languages_without_a_stemmer_are_an_error(own_corpus):
  with pytest.raises(ConfigError, match="config.model.language='klingon'"):
    check_config(own_corpus(NamesModel(language='klingon'), LABELS))
  check_config(own_corpus(NamesModel(language='german'), LABELS))
  options = {'units': Units.CHARACTERS, 'language': 'klingon'}
  check_config(own_corpus(NamesModel(**options), LABELS))
