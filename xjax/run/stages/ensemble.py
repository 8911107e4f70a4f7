"""Defines runs that average the lists of other runs: ensembles.

Nothing is trained. The other runs are copied to stages/ of the workdir.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools

import numpy as np

from xjax.config.run import Config
from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Batch, Ragged
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.batches.sparse import SparseDocuments
from xjax.data.schema import Corpus, Document, LabelSpace, Split
from xjax.judge.predictions import list_length
from xjax.run.contract import Fit, Fitted
from xjax.run.evaluate import has_probabilities
from xjax.run.judging import Metrics
from xjax.run.load import load_calibration
from xjax.run.predictor import Predictor
from xjax.run.stages.stage import (
  check_labels,
  check_zones,
  copy_model,
  load_run,
  load_stage,
)
from xjax.score.config import Averaging, EnsembleModel
from xjax.select.ensemble_scorer import EnsembleScorer
from xjax.train.inputs import check_reads_features
from xjax.train.preemption import Preemption
from xjax.train.workdir import Workdir

_STEP = 0  # the only step, because nothing is trained
_FIELD = 'config.model.workdirs'


def _name(number: int) -> str:
  """Returns the name of the stage that is the copy of a run."""
  return f'member_{number}'


@dataclasses.dataclass(frozen=True, eq=False)
class EnsembleInputs:
  """Makes batches that have the batches of each run of an ensemble.

  Attributes:
    config: config of the ensemble.
    members: models of the runs.
  """

  config: Config
  members: tuple[Predictor, ...]

  @property
  def stages(self) -> dict[str, Predictor]:
    """Returns the models of the runs, by the names of their stages."""
    return {_name(i): member for i, member in enumerate(self.members)}

  @property
  def reads_rows(self) -> bool:
    """Returns whether documents must already have sparse features."""
    return self.config.data.sparse

  @property
  def n_features(self) -> int:
    """Returns the number of sparse features that documents must have."""
    return self.members[0].inputs.n_features

  def split_batches(self, split: Split) -> 'EnsembleBatches':
    """Returns batches for judging a split; each document occurs once."""
    return self._batches(split.documents, split.gold, split.features)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> 'EnsembleBatches':
    """Returns batches for predicting labels; each document occurs once.

    Args:
      documents: texts, or documents whose zones are read as in training.
      features: vectors of the documents, if a run reads vectors.

    Raises:
      ConfigError: there are features, but no run reads vectors.
    """
    if features is not None and not any(map(_reads_vectors, self.members)):
      check_reads_features(self.members[0].config)
    return self._batches(documents, Ragged.of([()] * len(documents)), features)

  def warmup(self) -> None:
    """Compiles the programs of all runs."""
    depth = self.config.model.depth
    for member in self.members:
      member.warmup(size=list_length(depth, member.n_labels))

  def _batches(
    self,
    documents: Sequence[str | Document],
    gold: Ragged,
    features: FeatureRows | None,
  ) -> 'EnsembleBatches':
    size = self.config.eval.batch_size
    return EnsembleBatches(self.members, documents, gold, features, size)


@dataclasses.dataclass(frozen=True, eq=False)
class EnsembleBatches:
  """Yields all documents once, in order, for an EnsembleScorer.

  Attributes:
    members: models of the runs.
    documents: N documents.
    gold: the gold labels of the documents.
    features: vectors of the documents, or None.
    size: number of documents of a batch.
  """

  members: tuple[Predictor, ...]
  documents: Sequence[str | Document]
  gold: Ragged
  features: FeatureRows | None
  size: int

  def __len__(self) -> int:
    return -(-len(self.documents) // self.size)

  def __iter__(self) -> Iterator[Batch]:
    for start in range(0, len(self.documents), self.size):
      end = min(start + self.size, len(self.documents))
      yield self._batch(np.arange(start, end, dtype=np.int32))

  def _batch(self, rows: np.ndarray) -> Batch:
    """Makes a batch of some documents."""
    documents, features = self.documents, None
    if isinstance(documents, SparseDocuments):
      documents = documents.select(rows)
    else:
      documents = [documents[row] for row in rows.tolist()]
    if self.features is not None:
      ids = [self.features.ids[row] for row in rows.tolist()]
      features = self.features.select(rows, ids)
    width = max(1, int(self.gold.lengths[rows].max()))
    whole = Batch(
      tokens_BT=None,
      lengths_B=np.zeros(len(rows), np.int32),
      positives_BP=self.gold.padded(rows, width, PAD),
      mask_B=np.ones(len(rows), bool),
      doc_B=rows,
    )
    local = dataclasses.replace(whole, doc_B=np.arange(len(rows)))
    parts = []
    for member in self.members:
      vectors = features if _reads_vectors(member) else None
      own = tuple(member.text_batches(documents, vectors))
      parts.append(dataclasses.replace(local, proposed=own))
    return dataclasses.replace(whole, proposed=tuple(parts))


def _reads_vectors(member: Predictor) -> bool:
  """Returns whether a run, or a run of an ensemble, reads vectors."""
  inner = member.inputs
  if isinstance(inner, EnsembleInputs):
    return any(map(_reads_vectors, inner.members))
  return member.config.data.tokens.dense


def load_ensemble(folder: Workdir, config: Config) -> Predictor:
  """Loads an ensemble; only files of the workdir are read.

  Raises:
    DataError: a file of the workdir is missing or damaged.
    ConfigError: there are several processes.
  """
  _check_one_process()
  numbers = range(len(config.model.workdirs))
  members = [load_stage(folder, _name(number)) for number in numbers]
  model = _predictor(config, folder.label_space(), members, folder)
  method, kind = config.eval.calibration, model.score_kind
  calibration = load_calibration(folder, method, _STEP, kind)
  return dataclasses.replace(model, calibration=calibration)


def _predictor(
  config: Config,
  space: LabelSpace,
  members: Sequence[Predictor],
  folder: Workdir,
) -> Predictor:
  model, inputs = config.model, EnsembleInputs(config, tuple(members))
  rule = model.combine, model.depth, model.weights
  scorer = EnsembleScorer(members, *rule)
  return Predictor(config, space, inputs, scorer, _STEP, folder)


@dataclasses.dataclass(frozen=True)
class EnsembleFit(Fit):
  """Copies finished runs into the workdir of an ensemble."""

  models = (EnsembleModel,)
  load = staticmethod(load_ensemble)

  @functools.cached_property
  def members(self) -> list[Predictor]:
    """Returns the models of the runs, from their copies where there are any.

    Raises:
      ConfigError: a run is missing or not finished.
      DataError: the copy of a run is damaged.
    """
    folder, members = self.workdir, []
    for number, source in enumerate(self.config.model.workdirs):
      if folder.stage(_name(number)).config.exists():
        members.append(load_stage(folder, _name(number)))
      else:
        members.append(load_run(source, _FIELD))
    return members

  def check_start(self) -> None:
    """Loads the models of the runs, and checks that they can be averaged.

    Raises:
      ConfigError: there are several processes, or a run does not fit.
      DataError: the copy of a run is damaged.
    """
    _check_one_process()
    for source, member in zip(self.config.model.workdirs, self.members):
      _check_reading(self.config, source, member)
      if self.config.model.combine is not Averaging.SIGMOID:
        continue
      if not has_probabilities(member):
        raise ConfigError(
          f'{_FIELD}: the scores of {source} are margins without a '
          'calibration, so there are no probabilities to average; set '
          'config.model.combine=RANK, or calibrate the run with xjax evaluate '
          '--split=dev'
        )

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that all runs have the labels of the corpus, in the same order.

    Raises:
      ConfigError: a run has other labels; the message names the first one.
    """
    del prior
    for source, member in zip(self.config.model.workdirs, self.members):
      check_labels(source, member, corpus.label_space, _FIELD)

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Copies the runs that are not copied yet; nothing is trained.

    Raises:
      Preempted: SIGTERM or Ctrl-C came; another call copies the other runs.
    """
    size = 0
    with preemption.deferred():
      for number, member in enumerate(self.members):
        stage = self.workdir.stage(_name(number))
        if not stage.config.exists():
          copy_model(member, self.workdir, _name(number))
        files = (path for path in stage.path.rglob('*') if path.is_file())
        size += sum(path.stat().st_size for path in files)
        preemption.check()
    space = corpus.label_space
    model = _predictor(self.config, space, self.members, self.workdir)
    return Fitted(0, _STEP, model.score_kind, size, lambda: model)


def _check_one_process() -> None:
  if process_count() > 1:
    raise ConfigError(
      'config.model=EnsembleModel(...): can only be used by one process; start '
      'the run on one host'
    )


def _check_reading(config: Config, source: str, member: Predictor) -> None:
  """Checks that the ensemble's documents have what a run reads.

  Raises:
    ConfigError: they lack zones or features.
  """
  ours, theirs = config.data, member.config.data
  if ours.sparse != theirs.sparse or (
    ours.sparse and ours.tokens != theirs.tokens
  ):
    raise ConfigError(
      f'config.data: the run in {source} reads {type(theirs).__name__}(...) '
      f'with tokens={theirs.tokens}; all runs of an ensemble and the ensemble '
      'must read the same features, or all must read texts'
    )
  check_zones(config, source, member.config)
