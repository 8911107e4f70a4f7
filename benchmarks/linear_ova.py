"""Both one-vs-all solvers against LIBLINEAR: objectives and seconds.

  python benchmarks/linear_ova.py --data=FOLDER [--device=cuda]

FOLDER has bibtex/train.txt and eurlex57k/. Bibtex: all 159 labels of rows of
norm 1. EURLEX57K: 256 seeded labels, documents as TF-IDF of 50,000 words and
pairs of words (scikit-learn, a minute; --cache keeps them). Each loss by
LIBLINEAR in two processes, as scikit-learn ships it, at its own tolerance and
at a tight one; by blocks of labels in two threads, likewise; and by fit_batched
to 0.1 %. Nothing is pruned. CPUs: two cores for all. A quarter of an hour where
nothing else runs. Exits 1 where the sum of the labels' objectives by
fit_batched is more than 0.1 % above that of LIBLINEAR's tight run.
"""

from collections.abc import Callable
import functools
import os
import pathlib
import sys
import tempfile
import time

from absl import app, flags
import jax
import joblib
import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from xjax.core.mesh import MeshConfig, make_mesh
from xjax.core.types import Ragged
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.data.formats.xc_files import read_xc
from xjax.data.load import load_corpus
from xjax.score.linear.batched import OnDevices, fit_batched
from xjax.score.linear.classifiers import Classifiers
from xjax.score.linear.part_files import PartFiles
from xjax.score.linear.problem import Loss, OneVsAllProblem, documents_of_labels
from xjax.score.trees.training import Blocks

LABELS, FEATURES = 256, 50_000
TOLERANCE, BOUND = 1e-3, 1.001
# Of the dual's stopping rule. At the tight ones, another tenth changes no
# objective by 1e-5.
OWN_EPS = 0.1
TIGHT_EPS = {Loss.SQUARED_HINGE: 1e-4, Loss.LOGISTIC: 1e-2}

_DATA = flags.DEFINE_string('data', None, 'Folder of the data.', required=True)
_CACHE = flags.DEFINE_string('cache', None, 'Folder that keeps TF-IDF.')
_DEVICE = flags.DEFINE_enum('device', 'cpu', ['cpu', 'cuda', 'tpu'], 'Of ours.')
_ONLY = flags.DEFINE_enum('only', None, ['bibtex', 'eurlex57k'], 'One alone.')
_CHUNK = flags.DEFINE_integer('chunk', 256, 'Labels at once.', 1)

Problem = tuple[sparse.csr_array, Ragged, int]


def main(argv: list[str]) -> None:
  """Compares on both."""
  del argv
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
  jax.config.update('jax_platforms', _DEVICE.value)
  makers = {'bibtex': bibtex, 'eurlex57k': eurlex57k}
  missed = [
    compare(name, loss, make())
    for name, make in makers.items()
    if _ONLY.value in (None, name)
    for loss in Loss
  ]
  sys.exit(int(any(missed)))


def bibtex() -> Problem:
  """All labels."""
  xc = read_xc(pathlib.Path(_DATA.value, 'bibtex', 'train.txt'))
  return sparse.csr_array(normalize(xc.features)), xc.gold, xc.n_labels


def eurlex57k() -> Problem:
  """LABELS of those that documents have, numbered anew."""
  rows, gold, n_labels = tfidf()
  have = np.bincount(gold.values, minlength=n_labels) > 0
  drawn = np.random.default_rng(0).permutation(np.flatnonzero(have))[:LABELS]
  number = np.full(n_labels, LABELS, np.int32)  # from LABELS on: left out
  number[drawn] = np.arange(LABELS)
  return rows, Ragged(gold.indptr, number[gold.values]), LABELS


def tfidf() -> Problem:
  """Training documents as features."""
  path = _CACHE.value and pathlib.Path(_CACHE.value, 'eurlex57k_tfidf.npz')
  corpus = load_corpus(
    Eurlex57kData(dir=str(pathlib.Path(_DATA.value, 'eurlex57k'))),
    seed=0,
    splits=('train',),
  )
  train = corpus.split('train')
  if path and path.exists():
    rows = sparse.load_npz(path)
  else:
    words = TfidfVectorizer(
      max_features=FEATURES,
      ngram_range=(1, 2),
      sublinear_tf=True,
      dtype=np.float32,
    )
    rows = words.fit_transform(document.text() for document in train.documents)
    if path:
      path.parent.mkdir(parents=True, exist_ok=True)
      sparse.save_npz(path, rows, compressed=False)
  return sparse.csr_array(rows), train.gold, len(corpus.label_space)


def compare(name: str, loss: Loss, problem: Problem) -> bool:
  """Prints a table; returns whether ours misses the bound."""
  mesh = make_mesh(MeshConfig())
  rows, _, n_labels = problem
  print(
    f'{name}, {loss.value}: {rows.shape[0]:,} documents, {rows.shape[1]:,} '
    f'features, {rows.nnz / rows.shape[0]:.0f} a document, {n_labels} labels'
  )

  def batched(parts: PartFiles) -> Classifiers:
    solver = OnDevices(TOLERANCE, max_steps=200, chunk=_CHUNK.value)
    return fit_batched(asked(problem, loss, parts), solver, mesh)

  tight, own = TIGHT_EPS[loss], OWN_EPS
  least_L = None
  for eps in (tight, own):
    for who, solve in (('LIBLINEAR', liblinear), ('blocks', blocks)):
      run = functools.partial(solve, problem, loss, eps)
      of_labels, _ = report(f'{who}, eps {eps}', problem, loss, run, least_L)
      least_L = of_labels if least_L is None else least_L
  found, _ = report(
    f'ours to {TOLERANCE}, {_DEVICE.value}', problem, loss, batched, least_L
  )
  ratio = found.sum() / least_L.sum()
  verdict = 'ok' if ratio <= BOUND else 'MISSED'
  print(f'  ours / least {ratio:.5f} (bound {BOUND}): {verdict}', flush=True)
  return ratio > BOUND


def asked(problem: Problem, loss: Loss, parts: PartFiles) -> OneVsAllProblem:
  """The problem as both solvers take it; C is 1."""
  return OneVsAllProblem(
    *problem,
    loss=loss,
    c=1.0,
    threshold=0.0,
    seed=0,
    mesh=MeshConfig(),
    parts=parts,
    between=lambda: None,
  )


def liblinear(
  problem: Problem, loss: Loss, eps: float, parts: PartFiles
) -> Classifiers:
  """Label by label, in two processes."""
  del parts
  rows, gold, n_labels = problem
  indptr, documents = documents_of_labels(gold, n_labels)
  options = {'tol': eps, 'dual': True, 'max_iter': 10_000, 'random_state': 0}

  def fit(rows: sparse.csr_array, own: np.ndarray) -> Classifiers:
    if loss is Loss.SQUARED_HINGE:
      model = LinearSVC(**options)
    else:
      model = LogisticRegression(solver='liblinear', **options)
    has_N = np.zeros(rows.shape[0], bool)
    has_N[own] = True
    model.fit(rows, has_N)
    return Classifiers.from_dense(model.coef_.T, model.intercept_, 0.0)

  rows = rows.astype(np.float64)
  of_labels = np.split(documents, indptr[1:-1])
  each = joblib.Parallel(2)(joblib.delayed(fit)(rows, x) for x in of_labels)
  return Classifiers.join(each)


def blocks(
  problem: Problem, loss: Loss, eps: float, parts: PartFiles
) -> Classifiers:
  """Sixteen labels at a time, in two threads."""
  solver = Blocks(eps, max_epochs=10_000, workers=2)
  found = solver.fit(asked(problem, loss, parts))
  features = np.repeat(found.features, np.diff(found.entries))
  cells = found.values, (features, found.places.astype(np.int32))
  weights = sparse.csc_array(cells, (found.n_features, problem[2]))
  return Classifiers(weights, found.bias)


def report(
  name: str,
  problem: Problem,
  loss: Loss,
  run: Callable[[PartFiles], Classifiers],
  least_L: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
  """Prints how one side did: the labels' objectives, and seconds."""
  with tempfile.TemporaryDirectory() as folder:
    start = time.perf_counter()
    found = run(PartFiles(pathlib.Path(folder)))
    spent = time.perf_counter() - start
  of_labels = objectives(problem, loss, found)
  if least_L is None:
    least_L = of_labels
  print(
    f'  {name:24} {spent:7.1f} s, objective {of_labels.sum():.3f}, '
    f'{of_labels.sum() / least_L.sum() - 1:+.6f}, of one label at most '
    f'{(of_labels / least_L).max() - 1:+.6f}',
    flush=True,
  )
  return of_labels, spent


def objectives(problem: Problem, loss: Loss, found: Classifiers) -> np.ndarray:
  """float64 [L], with C = 1."""
  rows, gold, n_labels = problem
  indptr, documents = documents_of_labels(gold, n_labels)
  weights = found.weights.astype(np.float64)
  of_labels = np.zeros(n_labels)
  for label in range(n_labels):
    sign_N = np.full(len(gold), -1.0)
    sign_N[documents[indptr[label] : indptr[label + 1]]] = 1
    weights_D = weights[:, [label]].toarray()[:, 0]
    bias = np.float64(found.bias[label])
    margin_N = sign_N * (rows @ weights_D + bias)
    match loss:
      case Loss.SQUARED_HINGE:
        losses_N = np.maximum(0, 1 - margin_N) ** 2
      case Loss.LOGISTIC:
        losses_N = np.logaddexp(0, -margin_N)
    of_labels[label] = (weights_D @ weights_D + bias**2) / 2 + losses_N.sum()
  return of_labels


if __name__ == '__main__':
  app.run(main)
