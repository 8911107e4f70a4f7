"""Joins the vectors of an encoder to the TF-IDF features of documents.

This is the input of XR-Transformer's ranker (Zhang et al. 2021, Section 3.3):
[TF-IDF ; vector], where both parts have length 1.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any, ClassVar

from jaxtyping import Float32
import numpy as np
from scipy import sparse

from xjax.core.config_part import POSITIVE, ConfigPart, field, kinds_that
from xjax.core.errors import ConfigError
from xjax.data.documents import Documents
from xjax.data.schema import Corpus
from xjax.models.contract import Config, Model, Run, Scorer, StageToTrain
from xjax.models.features import Featuriser, TextFeaturiser
from xjax.models.stage import FinishedRun, Stage, StageConfig

ENCODER = 'encoder'  # the stage whose vectors are joined to sparse features
_FIELD = 'config.model.vectors.workdir'
_STAGE = 'config.model.vectors.stage'


@dataclasses.dataclass
class VectorsConfig(ConfigPart, abstract=True):
  """Chooses the vectors that are joined to the sparse features of documents."""

  stages: ClassVar[tuple[str, ...]] = (ENCODER,)  # that compute the vectors

  weight: float = field(
    1.0,
    'Length to which the vector of a document is scaled. The TF-IDF features '
    'of a document have length 1.',
    POSITIVE,
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if config.data.sparse:
      yield (
        f'{path}={type(self).__name__}(...): needs texts, which an encoder can '
        f'read; config.data={type(config.data).__name__}(...) has none'
      )

  def check(self, corpus: Corpus, run: Run) -> None:
    """Raises a ConfigError or DataError if the encoder cannot be made."""

  def fitted(self, corpus: Corpus, run: Run) -> Scorer | None:
    """Returns the neural model of the vectors, if any, trained if absent."""

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    del config
    return ()

  def joined(self, texts: Featuriser, encoder: Scorer | None) -> Featuriser:
    """Returns features that also have the vectors of documents, if any."""
    if encoder is None:
      return texts
    return JoinedFeaturiser(texts.data, texts.featurise, encoder, self.weight)


@dataclasses.dataclass
class NoVectors(VectorsConfig):
  """Joins no vector: the features of a document are only its TF-IDF."""

  stages = ()
  weight = 1.0

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from ()


@dataclasses.dataclass
class RunVectors(VectorsConfig):
  """Joins the vectors of the encoder of a finished run.

  A document's vector is what the run's pooling computes, or the mean over the
  document's tokens if the run has no pooling. The files that the encoder needs
  are copied into the workdir.
  """

  workdir: str = field(
    '', 'WORKDIR[@step] of a finished run of a neural model.'
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if not self.workdir:
      yield (
        f"{path}.workdir='': set it to the workdir of the run whose encoder "
        'computes the vectors'
      )

  def check(self, corpus: Corpus, run: Run) -> None:
    other, _ = self._source(run).open()
    model = other.config.model
    if not model.has_steps:
      raise ConfigError(
        f'{_FIELD}={self.workdir}: is a {type(model).__name__}, which has no '
        'encoder; give the workdir of a neural model'
      )

  def fitted(self, corpus: Corpus, run: Run) -> Scorer:
    self._source(run).copy()
    return run.open_stage(ENCODER)

  def _source(self, run: Run) -> FinishedRun:
    return FinishedRun(self.workdir, run, ENCODER, _FIELD)


@dataclasses.dataclass
class StageVectors(VectorsConfig):
  """Joins the vectors of an encoder that is trained as a stage of this run."""

  stage: StageConfig = field(StageConfig, 'The stage that trains the encoder.')
  labels: bool = field(
    True,
    'Whether the encoder learns the labels. Otherwise it learns the levels of '
    'clusters of stage.model.shortlist=LevelShortlist(...), and not the labels '
    'below them: for corpora with so many labels that only linear classifiers '
    'can rank them. stage.train.steps is not used then.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if config.data.sparse:
      return
    yield from encoder_faults(self.stage, f'{path}.stage')
    if not self.labels and not _levels_of(self.stage.model):
      yield (
        f'{path}.labels=False: needs {path}.stage.model.shortlist='
        'LevelShortlist(...) with at least one level of clusters'
      )

  def check(self, corpus: Corpus, run: Run) -> None:
    self._stage(run).check(corpus)

  def fitted(self, corpus: Corpus, run: Run) -> Scorer:
    return self._stage(run).train(corpus)

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    own = self.stage.run_config(config)
    stage = StageToTrain(own, ENCODER)
    if not self.labels:  # only the levels above the labels are trained
      (stage,) = own.model.trained_stages(own)
    return (stage._replace(name=ENCODER),)

  def _stage(self, run: Run) -> Stage:
    kind = Stage
    if not self.labels:
      # This needs JAX, which trees without vectors do not need.
      from xjax.models.neural.level_stages import ClustersStage as kind
    return kind(self.stage, run, ENCODER, _STAGE)


def encoder_faults(stage: StageConfig, path: str) -> Iterator[str]:
  """Yields a fault if the model of a stage has no encoder."""
  if not stage.model.has_steps:
    yield (
      f'{path}.model={type(stage.model).__name__}(...): must be '
      f'{kinds_that("has_steps", Model)}, which has an encoder'
    )


def _levels_of(model: Model) -> tuple[int, ...]:
  """Returns the sizes of the levels that a model is trained by, or ()."""
  levels = getattr(getattr(model, 'shortlist', None), 'levels', None)
  return levels.sizes if levels else ()


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedFeaturiser(TextFeaturiser):
  """Computes TF-IDF features, and joins a vector of an encoder to them.

  The columns of the vector come after the columns of the TF-IDF features. Words
  explain only the TF-IDF features.
  """

  encoder: Scorer  # a neural model
  weight: float  # length of each vector

  @property
  def n_features(self) -> int:
    return super().n_features + self.encoder.vector_dim

  @property
  def stages(self) -> dict[str, Scorer]:
    return {ENCODER: self.encoder}

  def __call__(self, documents: Documents) -> sparse.csr_array:
    rows = super().__call__(documents)  # refuses documents that are no texts
    vectors_ND = self.encoder.vectors(documents)
    norm_N = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    # A vector of zeros stays one.
    vectors_ND = vectors_ND * (self.weight / np.maximum(norm_N, 1e-12))
    return join(rows, vectors_ND)

  def warmup(self) -> None:
    super().warmup()
    self.encoder.warmup_vectors()


def join(
  rows: sparse.csr_array, vectors_ND: Float32[np.ndarray, 'N D']
) -> sparse.csr_array:
  """Returns sparse rows with a dense vector at the end of each row.

  Columns are int32, and must be and stay sorted.
  """
  # A sparse copy of the vectors, which leaves out zeros.
  joined = sparse.hstack([rows, sparse.csr_array(vectors_ND)], format='csr')
  joined.sort_indices()
  return sparse.csr_array(
    (joined.data, joined.indices.astype(np.int32), joined.indptr), joined.shape
  )
