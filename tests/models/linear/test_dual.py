"""Tests dual coordinate descent on LIBLINEAR's problems, for many labels."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from xjax.models.linear.dual import WIDTH, Loss, Solver, Workspace, solve_block

N, D = 150, 40
WIDTHS = [5, WIDTH]
ALL, NONE = 1, 3  # a label of all documents, one of none


@pytest.fixture(scope='module')
def data():
  """Returns rows with an unused feature and an empty row, and gold labels."""
  rng = np.random.default_rng(0)
  dense_ND = rng.gamma(1, 1, (N, D)) * (rng.random((N, D)) < 0.25)
  gold_NL = rng.random((N, WIDTH)) < rng.uniform(0.02, 0.5, WIDTH)
  dense_ND[:, :WIDTH] += gold_NL * (rng.random(gold_NL.shape) < 0.7)
  dense_ND[:, -3] = 0
  dense_ND[7] = 0
  dense_ND /= np.maximum(np.linalg.norm(dense_ND, axis=1, keepdims=True), 1e-9)
  gold_NL[:, ALL], gold_NL[:, NONE] = True, False
  return sparse.csr_array(dense_ND.astype(np.float32)), gold_NL


def solver(loss, c=1.0, eps=1e-3, max_epochs=2000, positive_weight=1.0):
  return Solver(loss, c, eps, max_epochs, positive_weight)


def solve(data, solver, width=WIDTH, seed=0, workspace=None, documents=None):
  rows, gold_NL = data
  documents = np.arange(N) if documents is None else documents
  return solve_block(
    rows,
    documents,
    gold_NL[documents, :width],
    solver,
    seed,
    workspace or Workspace(D),
  )


def objective(rows, positive_N, weights_D, bias, loss, c, positive_weight):
  sign_N = np.where(positive_N, 1, -1)
  margins_N = sign_N * (rows @ weights_D + bias)
  match loss:
    case Loss.SQUARED_HINGE:
      losses_N = np.maximum(0, 1 - margins_N) ** 2
    case Loss.LOGISTIC:
      losses_N = np.logaddexp(0, -margins_N)
  costs_N = c * np.where(positive_N, positive_weight, 1)
  return (weights_D @ weights_D + bias**2) / 2 + costs_N @ losses_N


def peer(loss, c, positive_weight):
  options = {'C': c, 'tol': 1e-6, 'dual': True, 'max_iter': 10**5}
  options['class_weight'] = {True: positive_weight}
  if loss is Loss.SQUARED_HINGE:
    return LinearSVC(random_state=0, **options)
  return LogisticRegression(solver='liblinear', random_state=0, **options)


@pytest.mark.parametrize('loss', Loss)
@pytest.mark.parametrize('costs', [(0.1, 1.0), (10.0, 1.0), (1.0, 4.0)])
@pytest.mark.parametrize('width', WIDTHS)
def test_the_objective_is_that_of_liblinear(data, loss, costs, width):
  """Checks each label alone; the bias is regularised, as in LIBLINEAR.

  `costs` are c and positive_weight.
  """
  rows, gold_NL = data
  c, positive_weight = costs
  ours = solver(loss, c, positive_weight=positive_weight)
  features, weights_FC, bias_C = solve(data, ours, width)
  assert weights_FC.shape == (len(features), width)
  for label in set(range(width)) - {ALL, NONE}:
    positive_N = gold_NL[:, label]
    model = peer(loss, *costs).fit(rows.astype(np.float64), positive_N)
    weights = model.coef_[0], model.intercept_[0]
    least = objective(rows, positive_N, *weights, loss, *costs)
    weights_D = np.zeros(D)
    weights_D[features] = weights_FC[:, label]
    weights = weights_D, bias_C[label]
    have = objective(rows, positive_N, *weights, loss, *costs)
    assert have == pytest.approx(least, rel=1e-5)


def assert_same(one, other):
  for have, wanted in zip(one, other, strict=True):
    assert have.dtype == wanted.dtype and have.tobytes() == wanted.tobytes()


@pytest.mark.parametrize('loss', Loss)
def test_a_workspace_may_be_used_again(data, loss):
  """Checks that a use with other documents leaves nothing in the workspace."""
  workspace = Workspace(D)
  first = solve(data, solver(loss), 5, workspace=workspace)
  few = np.arange(0, N, 3)
  solve(data, solver(loss), 9, workspace=workspace, documents=few)
  assert not workspace.weights.any() and not workspace.used.any()
  assert_same(solve(data, solver(loss), 5, workspace=workspace), first)
  assert_same(solve(data, solver(loss), 5), first)
