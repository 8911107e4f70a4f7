"""The scikit-learn estimator."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from tests.fixtures.frames import Frame
import xjax
from xjax.core.errors import ConfigError, DataError
from xjax.models.contract import Config
from xjax.run.named_configs import named_config

LABELS = [f'l{i}' for i in range(6)]


@pytest.fixture(scope='module')
def texts(train):
  return train[0]


@pytest.fixture(scope='module')
def lists(train):
  return train[1]


@pytest.fixture(scope='module')
def hot(lists):
  return np.array([[int(label in ids) for label in LABELS] for ids in lists])


@pytest.fixture(scope='module')
def fitted(texts, hot):
  return xjax.XMCClassifier().fit(texts, hot)


@pytest.mark.thorough
@pytest.mark.filterwarnings('ignore::RuntimeWarning:sklearn')
def test_all_checks_of_scikit_learn_pass():
  results = estimator_checks.check_estimator(
    xjax.XMCClassifier(), on_skip=None, on_fail=None
  )
  wrong = [x['check_name'] for x in results if x['status'] == 'failed']
  assert wrong == []
  # These checks need pandas, or a setting of SciPy.
  skipped = {x['check_name'] for x in results if x['status'] == 'skipped'}
  needs = 'check_array_api_input', 'check_classifier_data_not_an_array'
  assert skipped <= {*needs}


def test_predictions_have_the_form_of_the_gold_labels(texts, hot):
  dense = xjax.XMCClassifier().fit(texts, hot)
  np.testing.assert_array_equal(dense.predict(texts), hot)
  assert dense.predict(texts).dtype == hot.dtype
  assert isinstance(dense.predict_proba(texts), np.ndarray)
  csr = xjax.XMCClassifier().fit(texts, sparse.csr_array(hot))
  assert sparse.issparse(csr.predict(texts))
  np.testing.assert_array_equal(csr.predict(texts).toarray(), hot)
  np.testing.assert_array_equal(
    csr.predict_proba(texts).toarray(), dense.predict_proba(texts)
  )


def test_one_class_for_each_document(texts, hot):
  rng = np.random.default_rng(0)
  for names in (['no', 'yes'], ['aa', 'bb', 'cc']):
    y = np.array(names)[rng.integers(0, len(names), len(texts))]
    given = [f'{text} {name}' for text, name in zip(texts, y)]
    model = xjax.XMCClassifier().fit(given, y)
    assert model.score(given, y) == 1
    shares = model.predict_proba(given)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], y)
  column = sparse.csr_array(np.arange(len(texts))[:, None] % 2)
  with pytest.warns(DataConversionWarning):
    model = xjax.XMCClassifier().fit(texts, column)
  assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize('form', [list, lambda x: np.array([*x, []], object)])
@pytest.mark.parametrize('first', [0, 'l'])
def test_lists_of_ids_are_labels(texts, lists, hot, first, form):
  """Of texts or integers, as xjax.fit takes them."""
  rows = [
    [type(first)(x.strip('l')) if first == 0 else x for x in ids]
    for ids in lists
  ]
  y = form(rows)[: len(rows)]
  model = xjax.XMCClassifier().fit(texts, y)
  assert list(model.classes_) == ([*range(6)] if first == 0 else LABELS)
  assert [*map(set, model.predict(texts))] == [*map(set, rows)]
  assert model.predict_proba(texts).shape == hot.shape
  assert model.score(texts, y) == 1
  assert model.score(texts, [rows[0]] * len(rows)) < 1
  with pytest.raises(ValueError, match='inconsistent numbers of samples'):
    model.score(texts, y[1:])


def test_texts_that_look_like_several_labels_are_a_warning(texts, lists):
  with pytest.warns(UserWarning, match='y: each text is one label, but texts'):
    model = xjax.XMCClassifier().fit(texts, [';'.join(x) for x in lists])
  assert any(';' in name for name in model.classes_)


def test_only_the_columns_of_training_are_read(texts, hot):
  model = xjax.XMCClassifier().fit(Frame(body=texts), hot)
  with pytest.warns(UserWarning, match=r"'id'\] are ignored"):
    found = model.predict(Frame(id=[*range(len(texts))], body=texts))
  np.testing.assert_array_equal(found, model.predict(Frame(body=texts)))


def test_lists_of_zeros_and_ones_are_a_matrix(texts, hot):
  """Also if none has a value twice."""
  y = np.stack([hot[:, 0], 1 - hot[:, 0]], 1)
  model = xjax.XMCClassifier().fit(texts, y.tolist())
  np.testing.assert_array_equal(model.predict(texts), y)


@pytest.mark.parametrize('names', ['ab', 'नम', (7, 9), (0, 1)])
@pytest.mark.parametrize('form', [list, tuple, set, np.array])
def test_lists_of_one_label_are_lists(texts, hot, names, form):
  rows = [form([names[i]]) for i in hot[:, 0]]
  model = xjax.XMCClassifier().fit(texts, rows)
  assert model.predict(texts) == [(names[i],) for i in hot[:, 0]]
  with pytest.warns(DataConversionWarning):  # an array is a column
    model.fit(texts, np.array([[names[i]] for i in hot[:, 0]]))
  assert model.predict(texts).tolist() == [names[i] for i in hot[:, 0]]


@pytest.mark.parametrize('dtype', [None, object, list])
@pytest.mark.parametrize(
  ('form', 'other'),
  [('sante\u0301', 'santé'), ('\u1112\u1161\u11ab', '한'), ('a\xa0b', 'a b')],
)
def test_a_class_in_two_unicode_forms_is_one(texts, hot, form, other, dtype):
  y = [(form, other)[i % 2] if x else 'x' for i, x in enumerate(hot[:, 0])]
  y = y if dtype is list else np.array(y, dtype)
  model = xjax.XMCClassifier().fit(texts, y)
  assert model.classes_.tolist() == sorted([other, 'x'])
  assert model.score(texts, y) == 1


@pytest.mark.parametrize('missing', [None, float('nan')])
@pytest.mark.parametrize('form', [list, lambda x: np.array(x, object)])
def test_a_missing_text_is_named_wherever_it_is(fitted, texts, form, missing):
  for at in (0, 3):
    given = [*texts]
    given[at] = missing
    for call in (fitted.predict, lambda x: clone(fitted).fit(x, [*'ab'] * 120)):
      with pytest.raises(DataError, match=rf"texts\[{at}\] .*use '' for a mis"):
        call(form(given))


@pytest.mark.parametrize('kind', [object, str])
def test_integers_and_indicators_as_pandas_has_them(texts, hot, kind):
  """Columns of its nullable types become arrays of objects."""
  model = xjax.XMCClassifier().fit(texts, hot.astype(kind))
  np.testing.assert_array_equal(model.predict(texts), hot)
  if kind is object:
    model = clone(model).fit(texts, hot[:, 0].astype(kind))
    assert model.classes_.tolist() == [0, 1]
    missing = np.where(hot, hot.astype(kind), None)
    with pytest.raises(DataError, match='y has other values than 0 and 1'):
      model.fit(texts, missing)
    with pytest.raises(ValueError, match='y contains NaN'):
      model.fit(texts[:3], ['a', 'b', None])


@pytest.mark.parametrize(
  'form', [np.asarray, sparse.csr_array, np.ndarray.tolist]
)
def test_labels_that_no_document_has_are_never_assigned(texts, hot, form):
  with pytest.warns(UserWarning, match='y has no label'):
    model = xjax.XMCClassifier().fit(texts, form(0 * hot))
  model = pickle.loads(pickle.dumps(model))
  for scores in model.predict(texts), model.predict_proba(texts):
    assert scores.shape == hot.shape and not scores.sum()
  assert (model.decision_function(texts) < 0).all()
  model.fit(texts, hot * [1, 1, 1, 1, 1, 0])
  np.testing.assert_array_equal(model.predict(texts), hot * [1, 1, 1, 1, 1, 0])


def test_a_label_is_assigned_from_decision_0_on(fitted, texts, monkeypatch):
  decision = fitted.decision_function(texts)
  assert decision.shape == (len(texts), len(LABELS))
  np.testing.assert_array_equal(decision >= 0, fitted.predict(texts) == 1)
  probabilities = fitted.predict_proba(texts)
  np.testing.assert_array_equal(decision >= 0, probabilities >= 0.5)
  # The threshold is exactly a score, or less than float32 can tell above it.
  score = float(np.sort(decision[0])[1] + fitted.threshold_)
  for least, n in ((score, len(LABELS) - 1), (np.nextafter(score, 9), -2)):
    monkeypatch.setattr(fitted, 'threshold_', float(least))
    assert fitted.predict(texts)[0].sum() == n % len(LABELS)
    assert (fitted.decision_function(texts)[0] >= 0).sum() == n % len(LABELS)


def test_a_dev_share_tunes_the_threshold(texts, hot):
  model = xjax.XMCClassifier(dev=0.25).fit(texts, hot)
  assert model.threshold_ != 0
  assert model.model_.run.calibration is not None
  np.testing.assert_array_equal(model.predict(texts), hot)


def test_it_works_in_pipelines_and_searches(texts, hot):
  x = np.array(texts)
  pipeline = make_pipeline(TfidfVectorizer(), xjax.XMCClassifier(scale=False))
  scores = cross_validate(pipeline, x, hot, scoring='f1_micro', cv=2)
  assert (scores['test_score'] > 0.95).all()
  model, values = xjax.XMCClassifier(), {'c': [1e-4, 10.0]}
  search = GridSearchCV(model, values, scoring='f1_micro', cv=2)
  assert search.fit(x, hot).best_params_ == {'c': 10.0}


def test_parameters_are_copied_and_pickled(fitted, texts):
  model = xjax.XMCClassifier(c=2.0, config=named_config('xc_svm'))
  assert clone(model).get_params()['c'] == 2.0
  assert isinstance(clone(model).config, Config)
  loaded = pickle.loads(pickle.dumps(fitted))
  np.testing.assert_array_equal(loaded.predict(texts), fitted.predict(texts))


def test_a_margin_is_no_probability(texts, hot):
  model = xjax.XMCClassifier(named_config('xc_svm')).fit(texts, hot)
  assert not hasattr(model, 'predict_proba')
  np.testing.assert_array_equal(model.predict(texts), hot)


def test_c_is_a_parameter_of_linear_models(texts, hot):
  with pytest.raises(ConfigError, match='c=1.0: NeuralTrain has no such field'):
    xjax.XMCClassifier(Config(), c=1.0).fit(texts, hot)


def test_labels_that_were_not_scored_come_last():
  # With so many labels, a tree scores only the best labels of a document.
  names = [f'x{i}' for i in range(1001)]
  hot = sparse.eye_array(1001, format='csr', dtype=int)
  model = xjax.XMCClassifier().fit(2 * names, sparse.vstack([hot, hot]))
  decision = model.decision_function(names[:9])
  assert decision.shape == (9, 1001)
  scored = model.predict_proba(names[:9]).toarray() > 0
  assert 0 < scored.sum() < scored.size
  for row, is_scored in zip(decision, scored, strict=True):
    assert row[~is_scored].max() < min(row[is_scored].min(), 0)
