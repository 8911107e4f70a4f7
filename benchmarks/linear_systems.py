"""The systems that linear_peer.py runs, by their defaults, two threads each.

In the peers' environment. A system is imported where it is used: none should be
held while another one is measured.
"""

from collections.abc import Callable, Iterator
import pathlib
import sys

import numpy as np
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

THREADS = 2
DEEPER = 5  # times the beam, for lists as deep
BLOCK = 256  # documents scored at once where that takes dense rows
# (documents, labels of each) -> float [N, L], or rows of (label, score).
Predict = Callable[[sparse.csr_matrix, int], sparse.csr_matrix | list]


class System:
  """What all of them do; one that needs more says so.

  Attributes:
    folder: for its files; what is in folder/model is the model.
    beam: nodes of a level that a search keeps.
  """

  def __init__(self, folder: pathlib.Path, beam: int):
    self.folder, self.beam = folder, beam
    self.kept = folder / 'model'
    self.kept.mkdir()

  def prepare(self, x: sparse.csr_matrix, y: sparse.csr_matrix) -> None:
    """Brings rows and gold into the form that it takes; is not timed."""
    self.x, self.y = x, y

  def train(self) -> None:
    """Makes the model."""
    raise NotImplementedError

  def keep(self) -> None:
    """Writes the model, where training has not."""

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields (way of predicting, function), that of the figures first."""
    raise NotImplementedError

  def beams(self) -> tuple[int, int]:
    """The usual beam, and one that leaves enough labels for deep lists."""
    return self.beam, DEEPER * self.beam


class Pecos(System):
  """XR-Linear, under a tree of labels."""

  tree = True

  def prepare(self, x: sparse.csr_matrix, y: sparse.csr_matrix) -> None:
    """It takes gold by column."""
    self.x, self.y = x, y.tocsc()

  def train(self) -> None:
    """The 16-way tree of k-means on PIFA vectors, then a level at a time."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    chain = None
    if self.tree:
      vectors = LabelEmbeddingFactory.create(self.y, self.x, method='pifa')
      chain = Indexer.gen(
        vectors, nr_splits=16, max_leaf_size=100, seed=0, threads=THREADS
      )
    self.model = XLinearModel.train(self.x, self.y, C=chain, threads=THREADS)

  def keep(self) -> None:
    """Its own format."""
    self.model.save(str(self.kept))
    del self.model

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Its model for prediction alone, which is its fastest."""
    from pecos.xmc.xlinear.model import XLinearModel

    model = XLinearModel.load(str(self.kept), is_predict_only=True)
    for beam in self.beams() if self.tree else (self.beam,):

      def predict(
        x: sparse.csr_matrix, k: int, beam: int = beam
      ) -> sparse.csr_matrix:
        return model.predict(x, beam_size=beam, only_topk=k, threads=THREADS)

      yield f'beam {beam}' if self.tree else 'flat', predict


class PecosFlat(Pecos):
  """XR-Linear without a tree: one-vs-all."""

  tree = False


class NapkinXC(System):
  """A probabilistic label tree; training writes the model."""

  def build(self, **options: object) -> object:
    """Its classifier, of the model's folder."""
    from napkinxc.models import PLT

    return PLT(str(self.kept), threads=THREADS, seed=0, **options)

  def train(self) -> None:
    """Binary balanced 2-means, logistic loss, C 10; weights from 0.1 on."""
    self.build().fit(self.x, self.y)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Exact search, then its fastest, by a beam and with sparse weights."""
    yield 'exact', self.loaded()
    yield (
      f'beam {self.beam}',
      self.loaded(
        tree_search_type='beam', beam_search_width=self.beam, load_as='sparse'
      ),
    )

  def loaded(self, **options: object) -> Predict:
    """Predicts with the model as these options load it."""
    model = self.build(**options)
    model.load()

    def predict(x: sparse.csr_matrix, k: int) -> list:
      # Of more than there are, binary relevance gives label 0 again and again.
      return model.predict_proba(x, top_k=min(k, self.y.shape[1]))

    return predict


class NapkinXCFlat(NapkinXC):
  """Binary relevance."""

  def build(self, **options: object) -> object:
    """As NapkinXC.build."""
    from napkinxc.models import BR

    return BR(str(self.kept), threads=THREADS, seed=0, **options)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """There is one."""
    yield 'flat', self.loaded()


class Omikuji(System):
  """Parabel, three trees."""

  def prepare(self, x: sparse.csr_matrix, y: sparse.csr_matrix) -> None:
    """It reads a file of the Extreme Classification Repository's format."""
    from omikuji import _ThreadPoolHandle
    from omikuji._libomikuji import ffi, lib

    path = self.folder / 'train.txt'
    with path.open('wb') as file:
      file.write(f'{x.shape[0]} {x.shape[1]} {y.shape[1]}\n'.encode())
      dump_svmlight_file(x, y, file, multilabel=True)
    self.pool = _ThreadPoolHandle(THREADS, initialize=True)
    name = ffi.new('char[]', str(path).encode())
    rows = lib.load_omikuji_data_set(name, self.pool.ptr)
    if rows == ffi.NULL:
      sys.exit(f'omikuji: cannot read {path}')
    self.rows = ffi.gc(rows, lib.free_omikuji_data_set)
    path.unlink()

  def train(self) -> None:
    """As Model.train_on_data, which reads the file as well."""
    import omikuji
    from omikuji._libomikuji import ffi, lib

    found = lib.train_omikuji_model(
      self.rows, omikuji.Model.default_hyper_param(), self.pool.ptr
    )
    if found == ffi.NULL:
      sys.exit('omikuji: cannot train')
    self.model = omikuji.Model(found, self.pool)

  def keep(self) -> None:
    """Its own format; the training rows go."""
    self.model.save(str(self.kept))
    del self.rows

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """A document at a time: there is no call for more."""

    def predicting(beam: int) -> Predict:
      def predict(x: sparse.csr_matrix, k: int) -> list:
        rows = (pairs_of(x[i]) for i in range(x.shape[0]))
        return [self.model.predict(row, beam, k) for row in rows]

      return predict

    beam, deep = self.beams()
    yield f'beam {beam}', predicting(beam)
    self.model.densify_weights(n_threads=THREADS)
    yield f'beam {beam}, densified', predicting(beam)
    yield f'beam {deep}, densified', predicting(deep)


class LibMultiLabel(System):
  """A tree of degree 100, unpruned."""

  def train(self) -> None:
    """It has as many threads as there are cores."""
    from libmultilabel import linear

    np.random.seed(0)  # its k-means draws from there
    self.model = linear.train_tree(self.y, self.x, verbose=False)

  def keep(self) -> None:
    """A pickle, as its command line writes."""
    from libmultilabel import linear

    linear.save_pipeline(str(self.kept), None, self.model)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Labels that the search has not reached have score 0."""
    for beam in self.beams():

      def predict(
        x: sparse.csr_matrix, k: int, beam: int = beam
      ) -> sparse.csr_matrix:
        rows = blocks(x, lambda part: self.model.predict_values(part, beam))
        return sparse.vstack(
          [best_of(scores, k, scores > 0) for scores in rows], 'csr'
        )

      yield f'beam {beam}', predict


class LibMultiLabelFlat(LibMultiLabel):
  """One-vs-rest."""

  def train(self) -> None:
    """As LibMultiLabel.train."""
    from libmultilabel import linear

    self.model = linear.train_1vsrest(self.y, self.x, verbose=False)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """There is one."""

    def predict(x: sparse.csr_matrix, k: int) -> sparse.csr_matrix:
      rows = blocks(x, self.model.predict_values)
      return sparse.vstack([best_of(scores, k) for scores in rows], 'csr')

    yield 'flat', predict


class Svm(System):
  """scikit-learn's LinearSVC, one-vs-rest."""

  def build(self) -> object:
    """The classifier of a label."""
    from sklearn.svm import LinearSVC

    return LinearSVC()

  def train(self) -> None:
    """Two labels at a time."""
    from sklearn.multiclass import OneVsRestClassifier

    self.model = OneVsRestClassifier(self.build(), n_jobs=THREADS)
    self.model.fit(self.x, self.y)

  def keep(self) -> None:
    """What it has learnt."""
    parts = [(each.coef_, each.intercept_) for each in self.model.estimators_]
    np.savez(
      self.kept / 'weights.npz',
      weights=np.concatenate([weights for weights, _ in parts]),
      bias=np.concatenate([bias for _, bias in parts]),
    )

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """There is one."""

    def predict(x: sparse.csr_matrix, k: int) -> sparse.csr_matrix:
      rows = blocks(x, self.model.decision_function)
      return sparse.vstack([best_of(scores, k) for scores in rows], 'csr')

    yield 'flat', predict


class LogisticRegression(Svm):
  """scikit-learn's LogisticRegression, one-vs-rest."""

  def build(self) -> object:
    """The classifier of a label."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(solver='liblinear')


SYSTEMS = {
  'pecos': Pecos,
  'pecos_flat': PecosFlat,
  'napkinxc': NapkinXC,
  'napkinxc_flat': NapkinXCFlat,
  'omikuji': Omikuji,
  'libmultilabel': LibMultiLabel,
  'libmultilabel_flat': LibMultiLabelFlat,
  'svm': Svm,
  'lr': LogisticRegression,
}


def blocks(
  x: sparse.csr_matrix, score: Callable[[sparse.csr_matrix], np.ndarray]
) -> Iterator[np.ndarray]:
  """Yields the scores of some documents after the other, dense."""
  for start in range(0, x.shape[0], BLOCK):
    yield score(x[start : start + BLOCK])


def best_of(
  scores: np.ndarray, k: int, scored: np.ndarray | None = None
) -> sparse.csr_matrix:
  """The k best of dense rows, or of those entries where scored is True."""
  if scored is not None:
    scores = np.where(scored, scores, -np.inf)
  k = min(k, scores.shape[1])
  best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
  values = np.take_along_axis(scores, best, axis=1)
  kept = values > -np.inf
  indptr = np.concatenate([[0], np.cumsum(kept.sum(1))])
  return sparse.csr_matrix((values[kept], best[kept], indptr), scores.shape)


def pairs_of(row: sparse.csr_matrix) -> list[tuple[int, float]]:
  """A row as pairs of feature and value."""
  return list(zip(row.indices.tolist(), row.data.tolist()))
