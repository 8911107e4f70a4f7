"""Defines the peers that linear_peer.py runs: default settings, two threads.

This runs in the peers' environment. A library is imported where it is used, so
that its memory does not count for another system.
"""

from collections.abc import Callable, Iterator
import pathlib
import sys

import numpy as np
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

THREADS = 2
DEEPER = 5  # factor of the wide beam, for deep lists
BLOCK = 256  # documents scored at once if scores are dense
# (documents, labels per document) -> float [N, L], or rows of (label, score).
Predict = Callable[[sparse.csr_matrix, int], sparse.csr_matrix | list]


class System:
  """The base class of all peers.

  Attributes:
    folder: folder for the files of the peer; the model is in folder/model.
    beam: nodes per level that a search keeps.
  """

  def __init__(self, folder: pathlib.Path, beam: int):
    self.folder, self.beam = folder, beam
    self.kept = folder / 'model'
    self.kept.mkdir()

  def prepare(self, x: sparse.csr_matrix, y: sparse.csr_matrix) -> None:
    """Converts rows and gold to the peer's format; this is not timed."""
    self.x, self.y = x, y

  def train(self) -> None:
    """Trains the model."""
    raise NotImplementedError

  def keep(self) -> None:
    """Saves the model, if training has not saved it."""

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields (way of predicting, function), first the way that is compared."""
    raise NotImplementedError

  def beams(self) -> tuple[int, int]:
    """Returns the usual beam, and a wider beam for deep lists."""
    return self.beam, DEEPER * self.beam


class Pecos(System):
  """PECOS: XR-Linear with a label tree."""

  tree = True

  def prepare(self, x: sparse.csr_matrix, y: sparse.csr_matrix) -> None:
    """Keeps rows and stores gold by column."""
    self.x, self.y = x, y.tocsc()

  def train(self) -> None:
    """Builds a 16-way tree by k-means on PIFA vectors, then trains it."""
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
    """Saves the model in PECOS's format."""
    self.model.save(str(self.kept))
    del self.model

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields two beams, by the model for prediction only, which is fastest."""
    from pecos.xmc.xlinear.model import XLinearModel

    model = XLinearModel.load(str(self.kept), is_predict_only=True)
    for beam in self.beams() if self.tree else (self.beam,):

      def predict(
        x: sparse.csr_matrix, k: int, beam: int = beam
      ) -> sparse.csr_matrix:
        return model.predict(x, beam_size=beam, only_topk=k, threads=THREADS)

      yield f'beam {beam}' if self.tree else 'flat', predict


class PecosFlat(Pecos):
  """PECOS: XR-Linear without a tree, which is one-vs-all."""

  tree = False


class NapkinXC(System):
  """napkinXC: a probabilistic label tree; training saves the model."""

  def build(self, **options: object) -> object:
    """Returns the classifier of the model's folder."""
    from napkinxc.models import PLT

    return PLT(str(self.kept), threads=THREADS, seed=0, **options)

  def train(self) -> None:
    """Trains with balanced 2-means, logistic loss, C 10, weights >= 0.1."""
    self.build().fit(self.x, self.y)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields exact search, then the fastest: a beam and sparse weights."""
    yield 'exact', self.load()
    yield (
      f'beam {self.beam}',
      self.load(
        tree_search_type='beam', beam_search_width=self.beam, load_as='sparse'
      ),
    )

  def load(self, **options: object) -> Predict:
    """Loads the model with options; returns the function that predicts."""
    model = self.build(**options)
    model.load()

    def predict(x: sparse.csr_matrix, k: int) -> list:
      # With more than L labels, binary relevance returns label 0 repeatedly.
      return model.predict_proba(x, top_k=min(k, self.y.shape[1]))

    return predict


class NapkinXCFlat(NapkinXC):
  """napkinXC: binary relevance."""

  def build(self, **options: object) -> object:
    """Returns the classifier of the model's folder."""
    from napkinxc.models import BR

    return BR(str(self.kept), threads=THREADS, seed=0, **options)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields the only way."""
    yield 'flat', self.load()


class Omikuji(System):
  """omikuji: Parabel with three trees."""

  def prepare(self, x: sparse.csr_matrix, y: sparse.csr_matrix) -> None:
    """Writes and loads a file in the format of the XC Repository."""
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
    """Trains like Model.train_on_data, but without reading the file."""
    import omikuji
    from omikuji._libomikuji import ffi, lib

    pointer = lib.train_omikuji_model(
      self.rows, omikuji.Model.default_hyper_param(), self.pool.ptr
    )
    if pointer == ffi.NULL:
      sys.exit('omikuji: cannot train')
    self.model = omikuji.Model(pointer, self.pool)

  def keep(self) -> None:
    """Saves the model in omikuji's format; frees the training rows."""
    self.model.save(str(self.kept))
    del self.rows

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields beams; each call predicts one document, as the library does."""

    def with_beam(beam: int) -> Predict:
      def predict(x: sparse.csr_matrix, k: int) -> list:
        rows = (pairs_of(x[i]) for i in range(x.shape[0]))
        return [self.model.predict(row, beam, k) for row in rows]

      return predict

    beam, deep = self.beams()
    yield f'beam {beam}', with_beam(beam)
    self.model.densify_weights(n_threads=THREADS)
    yield f'beam {beam}, densified', with_beam(beam)
    yield f'beam {deep}, densified', with_beam(deep)


class LibMultiLabel(System):
  """LibMultiLabel: a tree of degree 100, without pruning."""

  def train(self) -> None:
    """Trains with as many threads as there are cores."""
    from libmultilabel import linear

    np.random.seed(0)  # its k-means uses NumPy's global generator
    self.model = linear.train_tree(self.y, self.x, verbose=False)

  def keep(self) -> None:
    """Saves a pickle, as its command line does."""
    from libmultilabel import linear

    linear.save_pipeline(str(self.kept), None, self.model)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields two beams; labels that a search does not reach have score 0."""
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
  """LibMultiLabel: one-vs-rest."""

  def train(self) -> None:
    """Trains with as many threads as there are cores."""
    from libmultilabel import linear

    self.model = linear.train_1vsrest(self.y, self.x, verbose=False)

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields the only way."""

    def predict(x: sparse.csr_matrix, k: int) -> sparse.csr_matrix:
      rows = blocks(x, self.model.predict_values)
      return sparse.vstack([best_of(scores, k) for scores in rows], 'csr')

    yield 'flat', predict


class Svm(System):
  """scikit-learn's LinearSVC, one-vs-rest."""

  def build(self) -> object:
    """Returns the classifier of one label."""
    from sklearn.svm import LinearSVC

    return LinearSVC()

  def train(self) -> None:
    """Trains two labels at a time."""
    from sklearn.multiclass import OneVsRestClassifier

    self.model = OneVsRestClassifier(self.build(), n_jobs=THREADS)
    self.model.fit(self.x, self.y)

  def keep(self) -> None:
    """Saves weights and biases."""
    parts = [
      (label.coef_, label.intercept_) for label in self.model.estimators_
    ]
    np.savez(
      self.kept / 'weights.npz',
      weights=np.concatenate([weights for weights, _ in parts]),
      bias=np.concatenate([bias for _, bias in parts]),
    )

  def ways(self) -> Iterator[tuple[str, Predict]]:
    """Yields the only way."""

    def predict(x: sparse.csr_matrix, k: int) -> sparse.csr_matrix:
      rows = blocks(x, self.model.decision_function)
      return sparse.vstack([best_of(scores, k) for scores in rows], 'csr')

    yield 'flat', predict


class LogisticRegression(Svm):
  """scikit-learn's LogisticRegression, one-vs-rest."""

  def build(self) -> object:
    """Returns the classifier of one label."""
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
  """Yields dense scores of BLOCK documents at a time."""
  for start in range(0, x.shape[0], BLOCK):
    yield score(x[start : start + BLOCK])


def best_of(
  scores: np.ndarray, k: int, scored: np.ndarray | None = None
) -> sparse.csr_matrix:
  """Returns the k best of dense rows, only where `scored` is True if given."""
  if scored is not None:
    scores = np.where(scored, scores, -np.inf)
  k = min(k, scores.shape[1])
  best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
  values = np.take_along_axis(scores, best, axis=1)
  kept = values > -np.inf
  indptr = np.concatenate([[0], np.cumsum(kept.sum(1))])
  return sparse.csr_matrix((values[kept], best[kept], indptr), scores.shape)


def pairs_of(row: sparse.csr_matrix) -> list[tuple[int, float]]:
  """Returns a row as pairs of feature and value."""
  return list(zip(row.indices.tolist(), row.data.tolist()))
