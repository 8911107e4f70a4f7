"""Ranks the labels that several models propose: stacks."""

from collections.abc import Iterator
import dataclasses
import pathlib
import re
from typing import Any

from absl import logging

from xjax.core.config_part import AT_LEAST_1, AT_LEAST_2, RATE, field
from xjax.core.errors import ConfigError, DataError
from xjax.data.documents import Documents, SparseDocuments
from xjax.data.files.faults import plural
from xjax.data.folds import n_distinct
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus
from xjax.data.tokens_config import TokensConfig
from xjax.models.contract import (
  Config,
  Model,
  Run,
  StageToTrain,
  check_one_process,
)
from xjax.models.features import GIVE_ENCODER
from xjax.models.linear.listed import ListedClassifiers, ListedLinear
from xjax.models.scorer import Scorer
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.label_use import LabelUse
from xjax.models.stack.pair_features import PairFeatures
from xjax.models.stack.proposers import (
  ProposerConfig,
  names_proposer,
  neighbours_proposer,
  tree_proposer,
)
from xjax.models.stack.ranker import Ranker
from xjax.models.stack.ranker_training import (
  RankerTraining,
  listed_path,
  proposer_stage,
  train_proposer,
)
from xjax.models.stack.stack_pairs import LISTED, StackMember, StackPairs
from xjax.models.stack.stack_scorer import RunWords, StackScorer
from xjax.models.stage import Stage
from xjax.train.train_config import TrainConfig

_NAME = re.compile(r'[a-z][a-z0-9_]*')
# Names of features without a proposer.
_TAKEN = 'label', 'proposers', 'base', LISTED
_CHOSEN, _LEFT_OUT = 'proposers', 'left out'  # keys of Run.cached_values


@dataclasses.dataclass
class StackTrain(TrainConfig):
  """Configures the training of a stack; proposers have their own settings."""

  workers: int = field(
    2, 'Number of threads of the ranker.', AT_LEAST_1, may_change=True
  )


def _proposers() -> tuple[ProposerConfig, ...]:
  return tree_proposer(), neighbours_proposer(), names_proposer()


@dataclasses.dataclass
class StackModel(Model):
  """Ranks the labels that several models propose (stacked generalisation).

  Each proposer lists labels of a document. The features of a pair of document
  and label are what all proposers say about it, and the ranker computes one
  score from them (Wolpert 1992). Labels that are known by name only are ranked
  too, if a proposer reads names. data.tokens is not used.
  """

  reads = (TokensConfig,)
  trained_by = StackTrain
  reads_facts = True

  proposers: tuple[ProposerConfig, ...] = field(
    _proposers, 'The models that propose labels.'
  )
  features: PairFeatures = field(PairFeatures, 'What the ranker sees.')
  linear: ListedLinear = field(
    ListedLinear, 'Linear classifiers of the listed labels.'
  )
  ranker: Ranker = field(BoostedTrees, 'The model that ranks labels.')
  encoder: str = field(
    '',
    'Folder of a pretrained encoder (as in TextVectorsConfig), for proposers '
    'that need an encoder and name no folder themselves.',
    may_change=True,
  )
  folds: int = field(4, 'Number of folds.', AT_LEAST_2)
  hidden: float = field(
    0.0,
    'Share of the labels that are hidden from the proposers in each fold. The '
    'ranker learns from them how to rank labels that are known by name only. '
    'With 0, this is the share of the labels that have no training documents, '
    'but at least 2 %.',
    RATE,
  )
  documents: int = field(
    100_000,
    'The largest number of documents that the ranker learns from. If there are '
    'more, they are drawn at random.',
    AT_LEAST_1,
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if self.encoder and not any(x.lacks_folder for x in self.proposers):
      yield (
        f'{path}.encoder={self.encoder!r}: is not used, because each proposer '
        'has no encoder or names its folder itself; leave it empty'
      )
    names = [proposer.name for proposer in self.proposers]
    if not names:
      yield f'{path}.proposers=(): there must be at least one proposer'
    for number, name in enumerate(names):
      where = f'{path}.proposers[{number}].name={name!r}'
      if not _NAME.fullmatch(name):
        yield (
          f'{where}: must start with a small letter and have only small '
          'letters, digits and _'
        )
      elif name in _TAKEN or name.startswith('fold_'):
        yield f'{where}: xjax uses this name itself; choose another one'
      elif name in names[:number]:
        yield f'{where}: another proposer has this name'
    readable = [x.name for x in self.proposers if x.model.has_features]
    for name in self.linear.reads:
      if name not in readable:
        yield (
          f'{path}.linear.reads={self.linear.reads}: {name!r} is no proposer '
          f'that reads features; these do: {", ".join(readable) or "none"}'
        )
    if not any(vars(self.features).values()):
      yield f'{path}.features: at least one group must be True'

  def token_faults(self, config: Any) -> Iterator[str]:
    """Yields nothing, because each proposer reads documents in its own way."""
    yield from ()

  def lacks_encoder(self, config: Config) -> bool:
    """Returns whether no folder is named for the encoder of a proposer."""
    lacks = any(proposer.lacks_folder for proposer in self.proposers)
    return lacks and not self.encoder and not config.data.generated

  def reads_names(self, config: Config) -> bool:
    stages = [proposer.run_config(config) for proposer in self.proposers]
    return any(stage.model.reads_names(stage) for stage in stages)

  def check(self, corpus: Corpus, run: Run) -> None:
    check_one_process(run.config)
    self.ranker.check_machine()
    if self.lacks_encoder(run.config):
      raise ConfigError(f"config.model.encoder='': {GIVE_ENCODER}")
    check_train_labels(corpus)
    self._check_folds(corpus)
    # What `fit` trains: the proposers whose checks have passed.
    chosen = run.cached_values[_CHOSEN] = []
    left_out = run.cached_values[_LEFT_OUT] = {}
    for number, proposer in enumerate(self.proposers):
      if proposer.facts and not run.config.data.facts:
        continue
      try:
        proposer_stage(run, number).check(corpus)
      except DataError as error:
        if not proposer.optional:
          raise
        left_out[proposer.name] = error
      else:
        chosen.append(number)
    if not chosen:
      raise ConfigError(
        'config.model.proposers: none of them can be trained on this corpus'
      )
    names = [self.proposers[number].name for number in chosen]
    if self.linear.reads and not {*names} & {*self.linear.reads}:
      raise ConfigError(
        f'config.model.linear.reads={self.linear.reads}: all of these '
        'proposers are left out'
      )
    RankerTraining(run, corpus, tuple(chosen)).check()

  def _check_folds(self, corpus: Corpus) -> None:
    n = n_distinct(corpus.splits[TRAIN])
    # At least 2 folds, of at least 2 texts each.
    if n < 4:
      raise DataError(
        f'the split train has {plural(n, "different text")}; folds need at '
        'least 4'
      )
    if n < 2 * self.folds:
      raise ConfigError(
        f'config.model.folds={self.folds}: must be at most {n // 2}, half the '
        'number of different training texts'
      )

  def fit(self, corpus: Corpus, run: Run) -> None:
    corpus = _remembering(corpus)
    numbers = run.cached_values.get(_CHOSEN, range(len(self.proposers)))
    for name, error in run.cached_values.get(_LEFT_OUT, {}).items():
      logging.info('the proposer %s is left out: %s', name, error)
    members: dict[str, Scorer] = {}
    done: list[Stage] = []
    for number in numbers:
      stage = proposer_stage(run, number)
      # Earlier stages come along, because this one may copy their features.
      members[stage.name] = train_proposer(stage, done, corpus)
      done.append(stage)
    path = _ranker_path(run)
    if path.exists():
      return
    parts = run, corpus, tuple(numbers), members
    RankerTraining(*parts).fit_classifiers()
    write = self.ranker.fit(
      lambda: RankerTraining(*parts).data(),  # holds nothing afterwards
      run.config.seed,
      run.config.train.workers,
      run.preemption.check,
    )
    # The digest is needed: LightGBM trusts its file.
    with run.folder.recording(path):
      write(path)

  def open(self, run: Run) -> StackScorer:
    check_one_process(run.config)
    names = self.open_stages(run)
    members = {name: run.open_stage(name) for name in names}
    proposers = [
      StackMember(
        members[x.name],
        x.depth,
        x.scored,
        x.model.reads_names(x.run_config(run.config)),
        x.name,
        x.model.detail_names if self.features.details else (),
        x.name in self.linear.reads,
        x.model.knows_dates,
      )
      for x in self.proposers
      if x.name in members
    ]
    space = run.label_space()
    linear, use = None, None
    if any(x.is_read for x in proposers):
      linear = run.read(listed_path(run), ListedClassifiers.load)
    if self.features.use:
      use = next((label_use(x.scorer) for x in proposers if x.dated), None)
    pairs = StackPairs.over(proposers, space, self.features, linear, use)
    path = _ranker_path(run)
    run.folder.check(path)  # before LightGBM reads it
    ranker = self.ranker.load(path, pairs.names)
    reader = RunWords(run.config.data)
    block, kind = run.config.eval.batch_size, self.ranker.score_kind
    return StackScorer(pairs, ranker, reader, block, kind)

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    return tuple(
      StageToTrain(x.run_config(config), x.name) for x in self.proposers
    )

  def open_stages(self, run: Run) -> tuple[str, ...]:
    # A stage that is missing must not look like one that was left out.
    return tuple(
      x.name
      for x in self.proposers
      if not x.optional or run.folder.stage(x.name).config.exists()
    )

  def size(self, run: Run) -> int:
    stages = run.folder.stages.rglob('*')
    # The lists of folds are only read in training.
    files = _ranker_path(run), *(path for path in stages if path.is_file())
    if listed_path(run).exists():
      files = *files, listed_path(run)
    return sum(path.stat().st_size for path in files)


def label_use(scorer: Scorer) -> LabelUse:
  """Returns the use of labels in the training documents of a dated proposer."""
  trained = scorer.trained
  return LabelUse.of(trained.days_N, trained.gold, scorer.n_labels)


def _ranker_path(run: Run) -> pathlib.Path:
  return run.folder.model / 'ranker.txt'


def _remembering(corpus: Corpus) -> Corpus:
  split = corpus.splits[TRAIN]
  if isinstance(split.documents, SparseDocuments):
    return corpus
  documents = Documents.of(split.documents).remembering()
  split = dataclasses.replace(split, documents=documents)
  return dataclasses.replace(corpus, splits={**corpus.splits, TRAIN: split})
