"""Joins the vectors of an encoder to the TF-IDF features of documents.

This is the input of XR-Transformer's ranker (Zhang et al. 2021, Section 3.3):
[TF-IDF ; vector], where both parts have length 1.
"""

from collections.abc import Sequence
import dataclasses
import functools

from jaxtyping import Float32
import numpy as np
from scipy import sparse

from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.schema import Corpus, Document
from xjax.data.sparse_documents import Features
from xjax.models.config import Config
from xjax.models.config_json import load_config
from xjax.models.fit_contract import Fit
from xjax.models.model_configs import RunVectors, is_neural
from xjax.models.predictor import Predictor
from xjax.models.sparse_inputs import TextInputs
from xjax.models.staged.level_stages import (
  RunLevels,
  level_corpus,
  level_run,
  train_level,
)
from xjax.models.staged.stage import (
  Stage,
  check_run,
  check_zones,
  copy_run,
  load_stage,
)
from xjax.models.staged.stages_config import StageVectors
from xjax.models.workdir import Workdir
from xjax.run.judging import prior_metrics
from xjax.train.preemption import Preemption

ENCODER = 'encoder'  # the stage whose vectors are joined to sparse features
_FIELD = 'config.model.vectors.workdir'
_STAGE = 'config.model.vectors.stage'


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentVectors:
  """Computes the vectors of documents with the encoder of a neural run.

  Attributes:
    predictor: the neural run.
    weight: length of each vector.
    dim: int, size D of a vector.
  """

  predictor: Predictor
  weight: float
  dim: int

  @classmethod
  def of(cls, predictor: Predictor, weight: float) -> 'DocumentVectors':
    """Makes the vectors of a neural run.

    Args:
      predictor: the neural run, whose scorer is a ModelScorer.
      weight: length of each vector.
    """
    return cls(predictor, weight, predictor.scorer.vector_dim)

  def __call__(
    self, documents: Sequence[str | Document]
  ) -> Float32[np.ndarray, 'N D']:
    """Returns the vectors of N documents, all of the length `weight`.

    Args:
      documents: texts, or documents that have the zones that the encoder reads.
    """
    vectors_ND = encoded(self.predictor, documents)
    norm_N = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return vectors_ND * (self.weight / np.maximum(norm_N, 1e-12))

  def joined_to(self, inputs: TextInputs) -> 'JoinedInputs':
    """Returns inputs whose features also have the vectors of documents.

    Args:
      inputs: computes the TF-IDF features of documents.
    """
    return JoinedInputs(inputs.config, inputs.featurise, self)

  def warmup(self) -> None:
    """Compiles the programs for all shapes of batches."""
    for batch in self.predictor.inputs.example_batches():
      self.predictor.scorer.vectors(batch)


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedInputs(TextInputs):
  """Computes TF-IDF features, and joins a vector of an encoder to them.

  The columns of the vector come after the columns of the TF-IDF features. Words
  explain only the TF-IDF features.

  Attributes:
    vectors: computes the vectors of documents.
  """

  vectors: DocumentVectors

  @property
  def n_features(self) -> int:
    """Returns the number of TF-IDF features plus the size of a vector."""
    return super().n_features + self.vectors.dim

  def features(self, documents: Sequence[str | Document]) -> Features:
    """Returns a function that computes features of some of the documents."""
    tfidf = super().features(documents)

    def joined(rows: np.ndarray) -> sparse.csr_array:
      vectors = self.vectors([documents[row] for row in rows.tolist()])
      return join(tfidf(rows), vectors)

    return joined

  @property
  def stages(self) -> dict[str, Predictor]:
    """Returns the model whose encoder computes the vectors."""
    return {ENCODER: self.vectors.predictor}

  def warmup(self) -> None:
    """Compiles the programs of the encoder."""
    self.vectors.warmup()


def encoded(
  predictor: Predictor, documents: Sequence[str | Document]
) -> Float32[np.ndarray, 'N D']:
  """Returns the vectors that a neural model computes for N documents.

  Args:
    predictor: a neural run.
    documents: texts, or documents that have the zones that the run reads.
  """
  scorer, batches = predictor.scorer, predictor.inputs.token_batches(documents)
  vectors_ND = np.zeros((len(documents), scorer.vector_dim), np.float32)
  for batch in batches:
    real_B = batch.doc_B != PAD
    vectors_ND[batch.doc_B[real_B]] = scorer.vectors(batch)[real_B]
  return vectors_ND


def join(
  rows: sparse.csr_array, vectors_ND: Float32[np.ndarray, 'N D']
) -> sparse.csr_array:
  """Returns sparse rows with a dense vector at the end of each row.

  Args:
    rows: float32 [N, F] with sorted columns.
    vectors_ND: the vectors of the same N documents.

  Returns:
    float32 [N, F + D] with sorted int32 columns.
  """
  joined = sparse.hstack([rows, sparse.csr_array(vectors_ND)], format='csr')
  joined.sort_indices()
  return sparse.csr_array(
    (joined.data, joined.indices.astype(np.int32), joined.indptr), joined.shape
  )


@dataclasses.dataclass(eq=False)
class ClustersStage(Stage):
  """Trains an encoder that learns clusters of labels, and not the labels."""

  @functools.cached_property
  def _trained(self) -> Config:
    """The config of the level of labels, which is not trained."""
    return self.stage.run_config(self.config)

  @functools.cached_property
  def _levels(self) -> RunLevels:
    """The levels of clusters, whose file is in the folder of the run."""
    levels = self._trained.model.shortlist.levels
    path = 'config.model.shortlist.levels'
    return RunLevels(levels, self._trained, self.folder, path)

  @functools.cached_property
  def run(self) -> Fit:
    """Returns the run of the level above the labels."""
    return level_run(self._trained, self.folder, self.name)

  def check_corpus(self, corpus: Corpus) -> None:
    """Checks that the levels can be built and trained; see Stage."""
    cut = self.corpus(corpus)
    with self.paths():
      levels = self._levels.of(cut)
      clusters, _ = level_corpus(cut, levels)
      run = level_run(self._trained, self.folder, self.name, levels)
      run.check_corpus(clusters, prior_metrics(clusters, run.config.eval))

  def train(self, corpus: Corpus, preemption: Preemption) -> Predictor:
    """Trains the levels of clusters; see Stage."""
    cut = self.corpus(corpus)
    parts = self._trained, self.folder, self.name, cut
    with self.paths():
      return train_level(*parts, self._levels.keep(cut), preemption)


@dataclasses.dataclass(eq=False)
class NewVectors:
  """Checks, trains or copies the encoder of a new or resumed run.

  Attributes:
    config: config of the run.
    folder: workdir of the run.
  """

  config: Config
  folder: Workdir

  @functools.cached_property
  def _stage(self) -> Stage | None:
    """The stage that trains the encoder; None if it is another run's."""
    vectors = self.config.model.vectors
    if not isinstance(vectors, StageVectors):
      return None
    kind = Stage if vectors.labels else ClustersStage
    return kind(vectors.stage, self.config, self.folder, ENCODER, _STAGE)

  def check_start(self) -> None:
    """Checks that the encoder's stage can start, or that its run exists.

    A run that was copied is not needed any more.

    Raises:
      ConfigError: the stage cannot start, or there is no run.
    """
    vectors = self.config.model.vectors
    copied = self.folder.stage(ENCODER).config.exists()
    if self._stage:
      self._stage.check_start()
    elif isinstance(vectors, RunVectors) and not copied:
      source, _ = check_run(vectors.workdir, _FIELD)
      theirs = load_config(Workdir.at(source).config)
      _check_encoder(theirs, source)
      check_zones(self.config, source, theirs)

  def check_corpus(self, corpus: Corpus) -> None:
    """Checks that the encoder's stage can be trained.

    Args:
      corpus: corpus of the run.

    Raises:
      ConfigError, DataError: the stage cannot be trained.
    """
    if self._stage:
      self._stage.check_corpus(corpus)

  def fitted(self, corpus: Corpus, preemption: Preemption) -> DocumentVectors:
    """Returns the vectors that the run joins to sparse features.

    The stage of the encoder is trained or copied first, if this was not done.

    Args:
      corpus: corpus of the run.
      preemption: notices SIGTERM and Ctrl-C; its context has been entered.

    Raises:
      As train_stage and copy_run.
    """
    vectors = self.config.model.vectors
    if self._stage:
      model = self._stage.train(corpus, preemption)
    else:
      model = copy_run(vectors.workdir, self.folder, ENCODER, _FIELD)
    return DocumentVectors.of(model, vectors.weight)


def _check_encoder(config: Config, workdir: str) -> None:
  """Checks that a run has an encoder.

  Raises:
    ConfigError: the model of the run is not neural.
  """
  if not is_neural(config.model):
    raise ConfigError(
      f'{_FIELD}={workdir}: is a {type(config.model).__name__}, which has no '
      'encoder; give the workdir of a neural model'
    )


def saved_vectors(config: Config, folder: Workdir) -> DocumentVectors:
  """Returns the vectors of a run whose stage of the encoder is complete.

  Args:
    config: config of the run.
    folder: workdir of the run.

  Raises:
    DataError: a file of the stage is missing or damaged.
  """
  model = load_stage(folder, ENCODER)
  return DocumentVectors.of(model, config.model.vectors.weight)
