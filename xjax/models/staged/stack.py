"""Defines runs in which models propose labels and a ranker judges them."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import pathlib

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.data.files.faults import plural
from xjax.data.folds import n_distinct
from xjax.data.formats.draft import TRAIN
from xjax.data.new_labels import add_new_labels
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, Document, Label, LabelSpace
from xjax.data.shared_documents import SharedDocuments
from xjax.data.sparse_documents import SparseDocuments
from xjax.models.config import Config
from xjax.models.explanations import LabelExplanations
from xjax.models.fit_contract import Fit, Fitted, check_one_process
from xjax.models.load import DEV, calibrated
from xjax.models.predictor import (
  Predictor,
  check_describes,
  describes,
  explains,
)
from xjax.models.sparse_inputs import GIVE_ENCODER
from xjax.models.staged.folds import Lessons, proposer_stage, train_proposer
from xjax.models.staged.members import MemberInputs
from xjax.models.staged.rankers.pair_features import LabelFacts, feature_names
from xjax.models.staged.rankers.ranker import PairRanker
from xjax.models.staged.stack_config import Lesson, StackModel
from xjax.models.staged.stack_explanations import (
  StackWords,
  feature_shares,
)
from xjax.models.staged.stack_scorer import Proposer, StackPairs, StackScorer
from xjax.models.staged.stage import Stage, load_stage
from xjax.models.workdir import Workdir
from xjax.run.judging import Metrics
from xjax.train.preemption import Preemption

_STEP = 0  # the only step of models without optimizer steps


class StackPredictor(Predictor):
  """Predicts labels with a stack."""

  def with_labels(self, labels: Sequence[Label]) -> 'StackPredictor':
    """Returns a predictor with more labels, as Predictor.with_labels does.

    The proposers that read names know the new labels. The calibration stays the
    same.
    """
    check_describes(self.config)
    members = {
      name: member.with_labels(labels) if describes(member.config) else member
      for name, member in self.stages.items()
    }
    space = add_new_labels(self.space, labels)
    predictor = stack_predictor(
      self.config, space, members, self.scorer.ranker, self.workdir
    )
    return dataclasses.replace(predictor, calibration=self.calibration)

  def explanations(
    self,
    documents: Sequence[str | Document],
    ids_NK: np.ndarray,
    words: int,
    n_first: int = 0,
  ) -> LabelExplanations:
    """Computes which proposers, features and words explain labels.

    The arguments are those of Predictor.explanations. The words of a label are
    those of the proposer that adds most to its score and reads words.
    """
    names = feature_names(self.config.model.features, tuple(self.stages))
    batches = self.text_batches(documents)
    shares = feature_shares(self.scorer, batches, ids_NK, names)
    places = [
      {(word.zone, word.start): at for at, word in enumerate(words_of)}
      for words_of in map(self.inputs.words, documents)
    ]
    readers = {x: y for x, y in self.stages.items() if explains(y.config)}
    by_words = StackWords(readers, shares)
    return by_words.explanations(documents, places, ids_NK, words, n_first)


def stack_predictor(
  config: Config,
  space: LabelSpace,
  members: Mapping[str, Predictor],
  ranker: PairRanker,
  folder: Workdir,
) -> StackPredictor:
  """Returns the model of a stack.

  Args:
    config: config of the run.
    space: labels of the run.
    members: the proposers, by name, in the order of the config.
    ranker: the ranker.
    folder: workdir of the run.
  """
  model = config.model
  n_labels = max(member.n_labels for member in members.values())
  chosen = [x for x in model.proposers if x.name in members]
  proposers = [
    Proposer(
      members[x.name], x.depth, x.scored, describes(members[x.name].config)
    )
    for x in chosen
  ]
  pairs = StackPairs(proposers, LabelFacts.of(space, n_labels), model.features)
  inputs = MemberInputs(config, members, max(x.scored for x in chosen))
  scorer = StackScorer(pairs, ranker)
  return StackPredictor(config, space, inputs, scorer, _STEP, folder)


def load_stack(folder: Workdir, config: Config) -> StackPredictor:
  """Loads a stack; only files of the workdir are read.

  Raises:
    DataError: a file of the workdir is missing or damaged.
    ConfigError: there are several processes.
  """
  check_one_process(config)
  members = {
    x.name: load_stage(folder, x.name)
    for x in config.model.proposers
    if not x.optional or folder.stage(x.name).config.exists()
  }
  ranker = _load_ranker(folder, config, tuple(members))
  model = stack_predictor(config, folder.label_space(), members, ranker, folder)
  return calibrated(model)


def _ranker_path(folder: Workdir) -> pathlib.Path:
  return folder.model / 'ranker.txt'


def _load_ranker(
  folder: Workdir, config: Config, proposers: Sequence[str]
) -> PairRanker:
  """Reads the ranker of a stack with these proposers."""
  path = _ranker_path(folder)
  folder.check(path)
  names = feature_names(config.model.features, proposers)
  return config.model.ranker.load(path, names)


@dataclasses.dataclass(frozen=True)
class StackFit(Fit):
  """Trains the proposers and the ranker of a stack in the workdir of a run."""

  models = (StackModel,)
  load = staticmethod(load_stack)

  @functools.cached_property
  def stages(self) -> dict[int, Stage]:
    """Returns the stages of the proposers, by number.

    check_corpus removes those that are left out.
    """
    return {
      number: proposer_stage(self.config, self.workdir, number)
      for number in range(len(self.config.model.proposers))
    }

  def check_start(self) -> None:
    """Checks the number of processes and the stages.

    Raises:
      ConfigError: there are several processes, or a stage cannot start.
    """
    check_one_process(self.config)
    if self.config.model.lacks_encoder(self.config):
      raise ConfigError(f"config.model.encoder='': {GIVE_ENCODER}")
    for stage in self.stages.values():
      stage.check_start()

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that the proposers can be trained, and the ranker has documents.

    Raises:
      ConfigError, DataError: a proposer cannot be trained, or there are not
        enough documents.
    """
    del prior
    check_train_labels(corpus)
    model, n = self.config.model, n_distinct(corpus.splits[TRAIN])
    if model.lesson is Lesson.DEV and DEV not in corpus.splits:
      raise ConfigError(
        'config.model.lesson=DEV: the corpus has no split dev; use FOLDS'
      )
    if model.lesson is Lesson.FOLDS and n < 4:
      raise DataError(
        f'the split train has {plural(n, "different text")}; folds need at '
        'least 4'
      )
    if model.lesson is Lesson.FOLDS and n < 2 * model.folds:
      raise ConfigError(
        f'config.model.folds={model.folds}: must be at most {n // 2}, half the '
        'number of different training texts'
      )
    for number, stage in list(self.stages.items()):
      try:
        stage.check_corpus(corpus)
      except DataError as error:
        if not model.proposers[number].optional:
          raise
        logging.info('the proposer %s is left out: %s', stage.name, error)
        del self.stages[number]
    if not self.stages:
      raise ConfigError(
        'config.model.proposers: none of them can be trained on this corpus'
      )

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Trains the proposers and the ranker that are not trained yet."""
    corpus = _shared(corpus)
    members: dict[str, Predictor] = {}
    done: list[Stage] = []
    for stage in self.stages.values():
      members[stage.name] = train_proposer(stage, done, corpus, preemption)
      done.append(stage)
    path = _ranker_path(self.workdir)
    if not path.exists():
      self._train_ranker(path, corpus, members, preemption)
    ranker = _load_ranker(self.workdir, self.config, tuple(members))
    parts = self.config, corpus.label_space, members, ranker, self.workdir
    model = stack_predictor(*parts)
    size = sum(
      file.stat().st_size
      for member in members.values()
      for file in member.workdir.path.rglob('*')
      if file.is_file()
    )
    size += path.stat().st_size
    return Fitted(0, _STEP, model.score_kind, size, lambda: model)

  def _train_ranker(
    self,
    path: pathlib.Path,
    corpus: Corpus,
    members: dict[str, Predictor],
    preemption: Preemption,
  ) -> None:
    lessons = Lessons(self.config, self.workdir, corpus, tuple(self.stages))
    data = lessons.data(members, preemption)
    ranker = self.config.model.ranker.fit(
      data, self.config.seed, self.config.train.workers, preemption.check
    )
    with self.workdir.recording(path):
      ranker.save(path)


def _shared(corpus: Corpus) -> Corpus:
  """Returns a corpus whose training documents share their features."""
  split = corpus.splits[TRAIN]
  if isinstance(split.documents, SparseDocuments):
    return corpus
  shared = dataclasses.replace(
    split, documents=SharedDocuments(split.documents)
  )
  return dataclasses.replace(corpus, splits={**corpus.splits, TRAIN: shared})
