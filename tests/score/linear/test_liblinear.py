"""LIBLINEAR, label by label: scikit-learn's, in parts, in any processes."""

import multiprocessing

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from xjax.core.errors import ConfigError, DataError, UserError
from xjax.core.types import Ragged
from xjax.score.linear.config import Loss
from xjax.score.linear.liblinear import fit_liblinear
from xjax.score.linear.part_files import PartFiles

SETTINGS = {
  'loss': Loss.SQUARED_HINGE,
  'c': 1.0,
  'eps': 0.1,
  'max_iter': 1000,
  'threshold': 0.01,
  'batch_labels': 3,
  'workers': 1,
}
ALL, NONE = 3, 4  # labels of all documents, of none


def fit(documents, folder, between=lambda: None, **changes):
  return fit_liblinear(
    *documents,
    **{**SETTINGS, **changes},
    parts=PartFiles(folder),
    between=between,
  )


def dense_gold(gold, n_labels):
  dense_NL = np.zeros((len(gold), n_labels), bool)
  for row in range(len(gold)):
    dense_NL[row, [x for x in gold[row] if x < n_labels]] = True
  return dense_NL


def assert_same(one, other):
  for name, array in one.arrays().items():
    assert array.tobytes() == other.arrays()[name].tobytes(), name


ESTIMATORS = {
  Loss.SQUARED_HINGE: LinearSVC(tol=0.1, random_state=0, dual=True),
  Loss.LOGISTIC: LogisticRegression(
    tol=0.1, random_state=0, dual=True, solver='liblinear', max_iter=1000
  ),
}


@pytest.mark.parametrize('loss', Loss)
def test_each_label_is_that_of_scikit_learn(documents, tmp_path, loss):
  rows, gold, n_labels = documents
  found = fit(documents, tmp_path, loss=loss)
  gold_NL = dense_gold(gold, n_labels)
  for label in set(range(n_labels)) - {ALL, NONE}:
    model = ESTIMATORS[loss].fit(rows.astype(np.float64), gold_NL[:, label])
    wanted = np.where(np.abs(model.coef_[0]) < 0.01, 0, model.coef_[0])
    np.testing.assert_array_equal(
      found.weights[:, [label]].toarray()[:, 0], wanted.astype(np.float32)
    )
    assert found.bias[label] == np.float32(model.intercept_[0])


def objective(parameters, rows, signs_N, loss):
  margins_N = signs_N * (rows @ parameters[:-1] + parameters[-1])
  match loss:
    case Loss.SQUARED_HINGE:
      losses_N = np.maximum(0, 1 - margins_N) ** 2
    case Loss.LOGISTIC:
      losses_N = np.logaddexp(0, -margins_N)
  return parameters @ parameters / 2 + losses_N.sum()


@pytest.mark.parametrize('loss', Loss)
def test_the_objective_is_the_least(documents, tmp_path, loss):
  """Also of the label that all documents have."""
  rows, gold, n_labels = documents
  found = fit(documents, tmp_path, loss=loss, eps=1e-6, threshold=0)
  gold_NL = dense_gold(gold, n_labels)
  for label in (2, ALL):
    signs_N = np.where(gold_NL[:, label], 1, -1)
    weights_D = found.weights[:, [label]].toarray()[:, 0]
    have = objective(
      np.append(weights_D, found.bias[label]), rows, signs_N, loss
    )
    least = optimize.minimize(
      objective, np.zeros(rows.shape[1] + 1), (rows, signs_N, loss)
    )
    assert have == pytest.approx(least.fun, rel=1e-5)


@pytest.mark.parametrize('loss', Loss)
def test_labels_without_documents_come_last(documents, tmp_path, loss):
  rows, _, n_labels = documents
  found = fit(documents, tmp_path, loss=loss)
  scores_NL = rows @ found.weights.toarray() + found.bias
  assert (scores_NL.argmin(axis=1) == NONE).all()
  assert np.isfinite(scores_NL).all()
  assert scores_NL[:, ALL].min() > 0


class Stop(Exception):
  pass


def stop_after(calls):
  left = iter(range(calls))

  def between():
    if next(left, None) is None:
      raise Stop

  return between


def test_a_stopped_run_goes_on_and_ends_the_same(documents, tmp_path):
  whole = fit(documents, tmp_path / 'whole')
  calls = []
  for _ in range(2):
    with pytest.raises(Stop):
      fit(documents, tmp_path / 'cut', stop_after(4))
  found = fit(documents, tmp_path / 'cut', lambda: calls.append(1))
  assert len(calls) == 2  # of 8 labels the first 6 were kept
  assert_same(found, whole)
  assert_same(fit(documents, tmp_path / 'cut', stop_after(0)), whole)


def test_other_settings_or_data_are_trained_anew(documents, tmp_path, caplog):
  rows, gold, n_labels = documents
  fit(documents, tmp_path)
  changes = {'c': 2.0, 'eps': 0.2, 'threshold': 0.0, 'loss': Loss.LOGISTIC}
  for name, value in changes.items():
    with pytest.raises(Stop):
      fit(documents, tmp_path, stop_after(0), **{name: value})
  with pytest.raises(Stop):
    fit((2 * rows, gold, n_labels), tmp_path, stop_after(0))
  with pytest.raises(Stop):
    fit((rows, gold, n_labels - 1), tmp_path, stop_after(0))
  assert 'of other data or settings' in caplog.text


def test_a_damaged_part_is_done_again_and_said(documents, tmp_path, caplog):
  whole = fit(documents, tmp_path)
  path = sorted(tmp_path.glob('*.npz'))[1]
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 255
  path.write_bytes(content)
  calls = []
  assert_same(fit(documents, tmp_path, lambda: calls.append(1)), whole)
  assert len(calls) == 3
  assert f'{path}: damaged' in caplog.text


def test_processes_train_the_same(documents, tmp_path):
  """One of them is killed first; what it left is taken up."""

  def kill():
    multiprocessing.active_children()[0].kill()

  with pytest.raises(UserError, match=r'died \(exit code -9\)'):
    fit(documents, tmp_path / 'two', kill, workers=2, batch_labels=1)
  assert not multiprocessing.active_children()
  found = fit(documents, tmp_path / 'two', workers=2, batch_labels=1)
  assert_same(found, fit(documents, tmp_path / 'one', batch_labels=1))
  names = {path.name for path in (tmp_path / 'two').iterdir()}
  assert names == {path.name for path in (tmp_path / 'one').iterdir()}


def test_labels_that_did_not_converge_are_counted(documents, tmp_path, caplog):
  fit(documents, tmp_path, max_iter=1, eps=1e-9)
  assert '7 labels had not converged' in caplog.text


@pytest.mark.parametrize(
  'change',
  [{'c': 0.0}, {'eps': -1.0}, {'threshold': -0.1}, {'workers': 0}],
)
def test_numbers_out_of_range(documents, tmp_path, change):
  (name,) = change
  with pytest.raises(ConfigError, match=f'{name}='):
    fit(documents, tmp_path, **change)


def test_rows_that_are_not_finite(documents, tmp_path):
  rows = sparse.csr_array(np.array([[np.inf]], np.float32))
  with pytest.raises(DataError, match='finite'):
    fit((rows, Ragged.of([[0]]), 1), tmp_path)
