"""All labels at once come to LIBLINEAR's minimum, on any devices."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from tests.fixtures.collectives import compiled_collectives, lowered_collectives
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.models.linear import batched
from xjax.models.linear.batched import OnDevices, fit_batched
from xjax.models.linear.classifiers import Classifiers, PartFiles
from xjax.models.linear.descent import Objective
from xjax.models.linear.problem import Loss, OneVsAllProblem

SETTINGS = {
  'loss': Loss.SQUARED_HINGE,
  'c': 1.0,
  'tolerance': 1e-3,
  'max_steps': 100,
  'threshold': 0.01,
  'chunk': 3,
}
ALL, NONE = 3, 4  # labels of all documents, of none


def one_device():
  return make_mesh(MeshConfig(), count=1)


def fit(documents, folder, between=lambda: None, mesh=None, **changes):
  settings = {**SETTINGS, **changes}
  own = {name: settings.pop(name) for name in ('loss', 'c', 'threshold')}
  problem = OneVsAllProblem(
    *documents,
    **own,
    seed=0,
    mesh=MeshConfig(),
    parts=PartFiles(folder),
    between=between,
  )
  return fit_batched(problem, OnDevices(**settings), mesh or one_device())


def objectives(documents, model, loss, c):
  """float64 [L], labels without documents left out."""
  rows, gold, n_labels = documents
  sign_NL = np.full((len(gold), n_labels), -1.0)
  for row in range(len(gold)):
    sign_NL[row, [x for x in gold[row] if x < n_labels]] = 1
  weights_DL = model.weights.toarray().astype(np.float64)
  margin_NL = sign_NL * (rows @ weights_DL + model.bias)
  losses = {
    Loss.SQUARED_HINGE: lambda m: np.maximum(0, 1 - m) ** 2,
    Loss.LOGISTIC: lambda m: np.logaddexp(0, -m),
  }
  of_labels = c * losses[loss](margin_NL).sum(axis=0)
  of_labels += ((weights_DL**2).sum(axis=0) + model.bias**2) / 2
  return np.delete(of_labels, NONE)


def liblinear(documents, loss, c):
  """Classifiers that scikit-learn finds."""
  rows, gold, n_labels = documents
  options = {'C': c, 'tol': 1e-6, 'dual': True, 'max_iter': 100_000}
  if loss is Loss.SQUARED_HINGE:
    model = LinearSVC(random_state=0, **options)
  else:
    model = LogisticRegression(solver='liblinear', random_state=0, **options)
  # An empty row without a label, which does not count, beside labels that all
  # documents have.
  rows = sparse.vstack([rows.astype(np.float64), 0 * rows[[0]]]).tocsr()
  weights_N = np.append(np.ones(len(gold)), 0)
  weights_DL = np.zeros((rows.shape[1], n_labels))
  bias_L = np.zeros(n_labels)
  for label in set(range(n_labels)) - {NONE}:
    has_N = [*(label in gold[row] for row in range(len(gold))), False]
    model.fit(rows, has_N, sample_weight=weights_N)
    weights_DL[:, label], bias_L[label] = model.coef_[0], model.intercept_[0]
  return Classifiers.from_dense(weights_DL, bias_L, 0.0)


@pytest.mark.parametrize(
  ('loss', 'c'), [(Loss.SQUARED_HINGE, 0.1), (Loss.LOGISTIC, 10.0)]
)
def test_the_objective_is_that_of_liblinear(documents, tmp_path, loss, c):
  shared = {'loss': loss, 'c': c, 'threshold': 0.0}
  exact = liblinear(documents, loss, c)
  least = objectives(documents, exact, loss, c)
  model = fit(documents, tmp_path, **shared, chunk=8, tolerance=1e-4)
  ratio = objectives(documents, model, loss, c) / least
  assert ratio.min() > 1 - 1e-5
  assert ratio.max() < 1 + 1e-4
  np.testing.assert_allclose(model.bias[:NONE], exact.bias[:NONE], atol=0.02)


def test_weights_are_pruned_and_labels_keep_their_places(documents, tmp_path):
  whole = fit(documents, tmp_path / 'whole', threshold=0.0, chunk=8)
  pruned = fit(documents, tmp_path / 'pruned', chunk=8)
  weights_DL = whole.weights.toarray()
  weights_DL[np.abs(weights_DL) < 0.01] = 0
  np.testing.assert_array_equal(pruned.weights.toarray(), weights_DL)
  scores_NL = documents[0] @ weights_DL + pruned.bias
  assert (scores_NL.argmin(axis=1) == NONE).all()
  assert scores_NL[:, ALL].min() > 0
  chunks = fit(documents, tmp_path / 'chunks')
  np.testing.assert_allclose(chunks.weights.toarray(), weights_DL, atol=1e-4)


@pytest.fixture(scope='module')
def n_devices():
  return 8


@pytest.fixture
def halved(monkeypatch):
  """Chunks halve down to one label; the widths of a device that were."""
  widths = []
  halve = batched.halve

  def noted(state):
    widths.append(len(state.label_C))
    return halve(state)

  monkeypatch.setattr(batched, '_NARROWEST', 1)
  monkeypatch.setattr(batched, 'halve', noted)
  batched._programs.cache_clear()
  yield widths
  batched._programs.cache_clear()


def test_eight_devices_train_the_same(documents, tmp_path):
  """So many steps; with more, one may find a label done a step earlier."""
  options = {'threshold': 0.0, 'tolerance': 1e-9, 'max_steps': 4, 'chunk': 12}
  one = fit(documents, tmp_path / 'one', **options)
  mesh = make_mesh(MeshConfig(2, 4))
  assert mesh.devices.size == 8
  eight = fit(documents, tmp_path / 'eight', mesh=mesh, **options)
  np.testing.assert_allclose(
    eight.weights.toarray(), one.weights.toarray(), atol=1e-5
  )
  np.testing.assert_allclose(eight.bias, one.bias, atol=1e-5)


def test_devices_halve_their_labels_together(documents, tmp_path, halved):
  """Two devices, some labels' minimum far away."""
  mesh = make_mesh(MeshConfig(), count=2)
  two = fit(documents, tmp_path / 'two', threshold=0.0, chunk=8, mesh=mesh)
  assert halved[0] == 4  # of a device
  whole = fit(documents, tmp_path / 'one', threshold=0.0, chunk=8)
  loss = SETTINGS['loss']
  np.testing.assert_allclose(
    objectives(documents, two, loss, 1.0),
    objectives(documents, whole, loss, 1.0),
    rtol=1e-3,
  )


class Stop(Exception):
  pass


def test_a_stopped_run_goes_on_and_ends_the_same(documents, tmp_path, caplog):
  """Then a part is damaged: it is done again, and said."""
  calls = []
  whole = fit(documents, tmp_path / 'whole', lambda: calls.append(1))
  names = {path.name for path in (tmp_path / 'whole').iterdir()}
  assert len(names) == 3

  def between():
    parts = list((tmp_path / 'cut').glob('*.npz'))
    if len(parts) == 2:
      raise Stop

  with pytest.raises(Stop):
    fit(documents, tmp_path / 'cut', between)
  again = []
  assert_same(fit(documents, tmp_path / 'cut', lambda: again.append(1)), whole)
  assert 0 < len(again) < len(calls) / 2
  path = tmp_path / 'cut' / 'chunk_000001.part.npz'
  path.write_bytes(path.read_bytes()[:-9])
  assert_same(fit(documents, tmp_path / 'cut'), whole)
  assert f'{path}: is damaged' in caplog.text


def assert_same(one, other):
  for name, array in one.arrays().items():
    assert array.tobytes() == other.arrays()[name].tobytes(), name


def test_no_device_waits_for_another():
  """But for the count of labels that are left: steps have no collectives."""
  mesh = make_mesh(MeshConfig())
  programs = batched._programs(mesh, 5)
  goal = Objective(Loss.LOGISTIC, np.float32(1))
  documents = batched._place_documents(
    sparse.csr_array(np.eye(4, dtype='f')), mesh
  )
  positive_NC = np.zeros((4, 16), bool)
  state = programs.start(positive_NC, np.arange(16, dtype=np.int32), goal)
  steps = programs.step.lower(documents, state, goal, 1e-3)
  assert compiled_collectives(steps.compile().as_text()) == []
  left = programs.count_unfinished.lower(state.done_C)
  assert len(lowered_collectives(left)) == 2
