"""Compares our one-vs-all solver with LIBLINEAR: objectives and seconds.

  python benchmarks/linear_ova.py --data=FOLDER

FOLDER has bibtex/train.txt and eurlex57k/. Bibtex: all 159 labels, with rows of
unit length. EURLEX57K: 256 labels drawn by a seed, with documents as TF-IDF of
50,000 words and pairs of words (scikit-learn, a minute; --cache keeps them).
Each loss is minimised by LIBLINEAR (from scikit-learn) in two processes, at its
usual tolerance and at a tight one, and by our blocks of labels in two threads,
at the same tolerances. No weights are pruned. Every solver has two cores. The
benchmark takes a quarter of an hour if nothing else runs. It exits with 1 if
the sum of the labels' objectives from our tight run is more than 0.1 % above
that of LIBLINEAR's tight run.
"""

from collections.abc import Callable
import functools
import pathlib
import sys
import tempfile
import time

from absl import app, flags
import joblib
from measurement import use_cores
import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from xjax.core.types import Ragged
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.formats.xc_files import read_xc
from xjax.data.label_trees.label_tree import TreeInputs, complete_tree
from xjax.data.load import load_corpus
from xjax.models.linear.classifiers import Classifiers, PartFiles
from xjax.models.linear.dual import Loss, Solver
from xjax.models.trees.training import fit_tree

LABELS, FEATURES = 256, 50_000
BOUND = 1.001
# Tolerances of the dual's stopping rule. With a tenth of a tight tolerance, no
# objective changes by 1e-5.
USUAL_EPS = 0.1
TIGHT_EPS = {Loss.SQUARED_HINGE: 1e-4, Loss.LOGISTIC: 1e-2}

_DATA = flags.DEFINE_string('data', None, 'Folder of the data.', required=True)
_CACHE = flags.DEFINE_string('cache', None, 'Folder that keeps TF-IDF.')
_ONLY = flags.DEFINE_enum(
  'only', None, ['bibtex', 'eurlex57k'], 'Run only this dataset.'
)
Problem = tuple[sparse.csr_array, Ragged, int]


def main(argv: list[str]) -> None:
  """Compares the solvers on both datasets."""
  del argv
  use_cores(2)
  makers = {'bibtex': bibtex, 'eurlex57k': eurlex57k}
  missed = [
    compare(name, loss, make())
    for name, make in makers.items()
    if _ONLY.value in (None, name)
    for loss in Loss
  ]
  sys.exit(int(any(missed)))


def bibtex() -> Problem:
  """Returns Bibtex with all labels."""
  xc = read_xc(pathlib.Path(_DATA.value, 'bibtex', 'train.txt'))
  return sparse.csr_array(normalize(xc.matrix())), xc.labels, xc.n_labels


def eurlex57k() -> Problem:
  """Returns EURLEX57K with LABELS labels that occur, numbered from 0."""
  rows, gold, n_labels = tfidf()
  occurring = np.flatnonzero(np.bincount(gold.values, minlength=n_labels))
  drawn = np.random.default_rng(0).permutation(occurring)[:LABELS]
  number = np.full(n_labels, LABELS, np.int32)  # LABELS: left out
  number[drawn] = np.arange(LABELS)
  return rows, Ragged(gold.indptr, number[gold.values]), LABELS


def tfidf() -> Problem:
  """Returns the TF-IDF features of the training documents."""
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
  rows, _, n_labels = problem
  print(
    f'{name}, {loss.value}: {rows.shape[0]:,} documents, {rows.shape[1]:,} '
    f'features, {rows.nnz / rows.shape[0]:.0f} per document, {n_labels} labels'
  )

  least_L, totals = None, []
  for eps in (TIGHT_EPS[loss], USUAL_EPS):
    for solver, solve in (('LIBLINEAR', liblinear), ('blocks', blocks)):
      run = functools.partial(solve, problem, loss, eps)
      of_labels, _ = report(f'{solver}, eps {eps}', problem, loss, run, least_L)
      least_L = of_labels if least_L is None else least_L
      totals.append(of_labels.sum())
  ratio = totals[1] / totals[0]
  verdict = 'ok' if ratio <= BOUND else 'MISSED'
  print(f'  ours / least {ratio:.5f} (bound {BOUND}): {verdict}', flush=True)
  return ratio > BOUND


def liblinear(
  problem: Problem, loss: Loss, eps: float, parts: PartFiles
) -> Classifiers:
  """Trains label by label with LIBLINEAR, in two processes."""
  del parts
  rows, _, _ = problem
  options = {'tol': eps, 'dual': True, 'max_iter': 10_000, 'random_state': 0}

  def fit(rows: sparse.csr_array, own_documents: np.ndarray) -> Classifiers:
    if loss is Loss.SQUARED_HINGE:
      model = LinearSVC(**options)
    else:
      model = LogisticRegression(solver='liblinear', **options)
    has_N = np.zeros(rows.shape[0], bool)
    has_N[own_documents] = True
    model.fit(rows, has_N)
    return Classifiers.from_dense(model.coef_.T, model.intercept_, 0.0)

  rows, of_labels = rows.astype(np.float64), documents_of(problem)
  parts = joblib.Parallel(2)(joblib.delayed(fit)(rows, x) for x in of_labels)
  return Classifiers.join(parts)


def documents_of(problem: Problem) -> list[np.ndarray]:
  """Returns the documents of each label, ascending."""
  rows, gold, n_labels = problem
  ones = np.ones(len(gold.values), bool)
  shape = rows.shape[0], int(gold.values.max()) + 1
  matrix = sparse.csr_array((ones, gold.values, gold.indptr), shape).tocsc()
  return np.split(matrix.indices, matrix.indptr[1:-1])[:n_labels]


def blocks(
  problem: Problem, loss: Loss, eps: float, parts: PartFiles
) -> Classifiers:
  """Trains sixteen labels at a time, in two threads."""
  rows, gold, n_labels = problem
  fitted = fit_tree(
    TreeInputs(None, gold, rows, workers=2),
    complete_tree(n_labels, n_labels),
    Solver(loss, c=1.0, eps=eps, max_epochs=10_000),
    parts,
    lambda: None,
  )
  features = np.repeat(fitted.features, np.diff(fitted.entries))
  cells = fitted.values, (features, fitted.places.astype(np.int32))
  weights = sparse.csc_array(cells, (fitted.n_features, problem[2]))
  return Classifiers(weights, fitted.bias)


def report(
  name: str,
  problem: Problem,
  loss: Loss,
  run: Callable[[PartFiles], Classifiers],
  least_L: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
  """Runs a solver; prints and returns the labels' objectives and seconds."""
  with tempfile.TemporaryDirectory() as folder:
    start = time.perf_counter()
    classifiers = run(PartFiles(pathlib.Path(folder)))
    seconds = time.perf_counter() - start
  of_labels = objectives(problem, loss, classifiers)
  if least_L is None:
    least_L = of_labels
  print(
    f'  {name:24} {seconds:7.1f} s, objective {of_labels.sum():.3f}, '
    f'{of_labels.sum() / least_L.sum() - 1:+.6f}, for the worst label '
    f'{(of_labels / least_L).max() - 1:+.6f}',
    flush=True,
  )
  return of_labels, seconds


def objectives(
  problem: Problem, loss: Loss, classifiers: Classifiers
) -> np.ndarray:
  """Returns the objective of each label, float64 [L], with C = 1."""
  rows, gold, n_labels = problem
  weights = classifiers.weights.astype(np.float64)
  of_labels = np.zeros(n_labels)
  for label, documents in enumerate(documents_of(problem)):
    sign_N = np.full(len(gold), -1.0)
    sign_N[documents] = 1
    weights_D = weights[:, [label]].toarray()[:, 0]
    bias = np.float64(classifiers.bias[label])
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
