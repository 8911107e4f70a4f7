"""Chooses which labels of a document a neural model scores."""

import abc
from collections.abc import Iterator
import dataclasses
from typing import Any, ClassVar

import numpy as np

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_1,
  ConfigPart,
  field,
  kind_named,
)
from xjax.core.types import PAD
from xjax.data.label_trees.levels import LabelLevels, LevelsConfig
from xjax.data.schema import Corpus
from xjax.data.tokens_config import TfidfConfig
from xjax.models.contract import Config, Model, Run, StageToTrain
from xjax.models.neural.level_stages import (
  COSTS,
  LEVEL,
  RunLevels,
  level_config,
  saved_levels,
  train_level,
)
from xjax.models.neural.proposer import ClusterMap, Combination, Proposer
from xjax.models.scorer import Scorer
from xjax.models.stage import FinishedRun, Stage, StageConfig
from xjax.networks.heads.head import HeadConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.storage import Storage
from xjax.train.batches.candidates import Candidates, TrainShortlists
from xjax.train.train_config import TrainConfig

FIELD = 'config.model.shortlist'
PROPOSER = 'proposer'  # the stage whose labels are ranked again
_NO_NODES = np.zeros((0, 0), np.int32)


@dataclasses.dataclass
class ShortlistConfig(ConfigPart, abstract=True):
  """Chooses the labels of a document that are scored.

  With `starts`, parameters start from those of the proposing model.
  """

  proposes: ClassVar[bool] = True  # whether a document has a shortlist
  room: ClassVar[str] = ''  # the field with the number of nodes kept
  stages: ClassVar[tuple[str, ...]] = ()  # names of those that it opens
  starts: ClassVar[bool] = False
  matched = True  # whether training uses what the proposing model lists
  bootstrap = False  # whether first label rows are fitted to its vectors

  def width(self, n_labels: int) -> int:
    """Returns about how many labels of the model are on a shortlist."""
    return n_labels

  @property
  def lists_in_training(self) -> bool:
    return self.proposes

  @property
  def combination(self) -> tuple[Combination, float]:
    """Returns how scores are combined with priors, and the priors' weight."""
    return Combination.SUM, 0.0

  def check(self, corpus: Corpus, run: Run) -> None:
    """Checks that what proposes labels fits a corpus; writes nothing."""

  def fit(self, corpus: Corpus, run: Run) -> Proposer | None:
    """Trains or copies the model that proposes labels, if there is one."""
    del corpus, run

  def open(self, run: Run) -> Proposer | None:
    """Opens the model that proposes labels, if there is one."""
    del run

  def train_lists(self, corpus: Corpus, run: Run) -> TrainShortlists | None:
    """Returns shortlists without proposed nodes; None for all labels."""
    del corpus, run

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    del config
    return ()

  def faults(self, config: Any, path: str) -> Iterator[str]:
    tokens = config.data.tokens
    if tokens.dense:
      yield (
        f'{path}={type(self).__name__}(...): needs texts, which the model that '
        f'proposes labels can read; config.data.tokens={type(tokens).__name__}'
        '(...) has vectors'
      )


@dataclasses.dataclass
class AllLabels(ShortlistConfig):
  """Scores all labels."""

  proposes = False

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from ()


@dataclasses.dataclass
class RankedShortlist(ShortlistConfig, abstract=True):
  """Scores the best labels of another model, and so ranks them again."""

  room = 'size'
  stages = (PROPOSER,)

  size: int = field(
    50,
    'Number A of labels of a document that the other model proposes. In '
    'training, the gold labels are always among them.',
    AT_LEAST_1,
  )
  prior: float = field(
    1.0,
    "Weight of the other model's log score, which is added to the score of a "
    'label when labels are ranked. 0 ranks by this model alone.',
    AMOUNT,
    may_change=True,
  )
  in_training: bool = field(
    True,
    'Whether training, too, scores only the labels on shortlists. If False, '
    'training scores all labels, and only prediction uses shortlists. That '
    'ranks better, but a step takes longer. The other model has seen the '
    'training documents, so it lists almost no wrong rare labels for them, but '
    'many for new documents. A ranker that is trained on such lists never '
    'learns to reject these labels.',
  )

  @property
  def lists_in_training(self) -> bool:
    return self.in_training

  @property
  def combination(self) -> tuple[Combination, float]:
    return Combination.SUM, self.prior

  def width(self, n_labels: int) -> int:
    return min(self.size, n_labels) if self.in_training else n_labels

  def fit(self, corpus: Corpus, run: Run) -> Proposer:
    return Proposer(self.fit_scorer(corpus, run), self.size)

  @abc.abstractmethod
  def fit_scorer(self, corpus: Corpus, run: Run) -> Scorer:
    """Trains or copies the model whose labels are ranked again."""

  def open(self, run: Run) -> Proposer:
    return Proposer(run.open_stage(PROPOSER), self.size)

  def train_lists(self, corpus: Corpus, run: Run) -> TrainShortlists | None:
    del corpus, run
    return TrainShortlists(_NO_NODES, self.size) if self.in_training else None


@dataclasses.dataclass
class RunShortlist(RankedShortlist):
  """Ranks the labels that a finished run lists.

  The other run can be of any kind that reads the same documents. The files that
  it needs are copied into the workdir.
  """

  workdir: str = field(
    '', 'WORKDIR[@step] of the finished run that proposes labels.'
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if not self.workdir:
      yield (
        f"{path}.workdir='': set it to the workdir of the run that proposes "
        'labels'
      )

  def check(self, corpus: Corpus, run: Run) -> None:
    source = self._source(run)
    other, scorer = source.open()
    source.check_labels(other, scorer.n_labels, corpus.label_space)

  def fit_scorer(self, corpus: Corpus, run: Run) -> Scorer:
    del corpus
    self._source(run).copy()
    return run.open_stage(PROPOSER)

  def _source(self, run: Run) -> FinishedRun:
    return FinishedRun(self.workdir, run, PROPOSER, f'{FIELD}.workdir')


def _tree_stage() -> StageConfig:
  model = kind_named('TreeModel', Model)()
  train = kind_named('TreeTrain', TrainConfig)()
  return StageConfig(TfidfConfig(), (), model, train)


@dataclasses.dataclass
class StageShortlist(RankedShortlist):
  """Ranks the labels that a model lists, which is trained as a stage first."""

  stage: StageConfig = field(
    _tree_stage, 'The stage that trains the model that proposes labels.'
  )

  def check(self, corpus: Corpus, run: Run) -> None:
    self._stage(run).check(corpus)

  def fit_scorer(self, corpus: Corpus, run: Run) -> Scorer:
    return self._stage(run).train(corpus)

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    own = self.stage.run_config(config)
    return (StageToTrain(own, PROPOSER),)

  def _stage(self, run: Run) -> Stage:
    return Stage(self.stage, run, PROPOSER, f'{FIELD}.stage')


@dataclasses.dataclass
class LevelShortlist(ShortlistConfig):
  """Trains the model level by level, from coarse clusters down to the labels.

  The model of a level scores the children of the clusters that the model of the
  level above proposes. It starts from the parameters of that model, but its
  label rows are fresh (AttentionXML, You et al. 2019, Section 3.2;
  XR-Transformer, Zhang et al. 2021, Section 3.1). The model of each level above
  the labels is a stage of the run.
  """

  room = 'kept'
  starts = True

  levels: LevelsConfig = field(LevelsConfig, 'The levels of clusters.')
  steps: tuple[int, ...] = field(
    (600, 800), 'Number of training steps of each level above the labels.'
  )
  kept: int = field(
    20,
    'Number of clusters of a document whose children are scored. In training, '
    '`candidates` says how clusters of gold labels are added.',
    AT_LEAST_1,
  )
  matched: bool = field(
    True,
    'Whether training also scores the children of clusters that the model of '
    'the level above proposes. Otherwise, only the children of clusters with '
    'gold labels are scored.',
  )
  candidates: Candidates = field(
    Candidates.GOLD_FIRST,
    'Which clusters have their children scored in training. GOLD_FIRST: the '
    'clusters with gold labels, then the best proposed clusters, `kept` '
    'clusters in all. GOLD_FIRST_RANDOM: the same, or more clusters if more '
    'have gold labels; places that small clusters leave empty are filled with '
    'random labels (AttentionXML). '
    'UNION: the `kept` best proposed clusters, and in addition all clusters '
    'with gold labels (XR-Transformer).',
  )
  counted: bool = field(
    False,
    'Whether a cluster with several gold labels of a document counts several '
    'times in the loss (the costs of XR-Transformer).',
  )
  bootstrap: bool = field(
    False,
    'Whether the first label rows of a level are linear classifiers, which are '
    'fitted to the vectors of the level above (XR-Transformer). Otherwise they '
    'are random.',
  )
  chained: bool = field(
    True,
    'Whether the score of a label is the product of the scores on its path. '
    'Otherwise, the score of the last level alone ranks the labels.',
  )

  @property
  def stages(self) -> tuple[str, ...]:
    return (LEVEL,) if self.levels.sizes else ()

  @property
  def combination(self) -> tuple[Combination, float]:
    if self.chained:
      return Combination.PRODUCT, 1.0
    return Combination.SUM, 0.0

  def check(self, corpus: Corpus, run: Run) -> None:
    self._levels(run).of(corpus)

  def fit(self, corpus: Corpus, run: Run) -> Proposer | None:
    levels = self._levels(run).keep(corpus)
    if len(levels) == 1:
      return None
    costs = run.given.get(COSTS)
    scorer = train_level(run, LEVEL, corpus, levels, costs)
    return self._proposer(scorer, levels)

  def open(self, run: Run) -> Proposer | None:
    levels = saved_levels(run)
    if len(levels) == 1:
      return None
    return self._proposer(run.open_stage(LEVEL), levels)

  def _proposer(self, scorer: Scorer, levels: LabelLevels) -> Proposer:
    # The first level gives margins, and each further level gives the log score
    # of a path.
    first = len(levels) == 2 or not self.chained
    clusters = ClusterMap.above_labels(levels)
    return Proposer(scorer, self.kept, clusters, hinged=first)

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    # The last size, or 0 if there is none.
    *_, size = 0, *self.levels.sizes
    if not size:
      return ()
    return (StageToTrain(level_config(config), LEVEL, size),)

  def _levels(self, run: Run) -> RunLevels:
    return RunLevels(self.levels, run, f'{FIELD}.levels')

  def train_lists(self, corpus: Corpus, run: Run) -> TrainShortlists:
    levels = self._levels(run).of(corpus)
    costs = run.given.get(COSTS) if self.counted else None
    if len(levels) == 1:  # all labels are the children of the root
      # Level 0 has PAD as parents. Here, its nodes are children of cluster 0.
      parent_L = np.where(levels.above[-1] == PAD, PAD, 0).astype(np.int32)
      nodes = levels.children[-1], parent_L
      return TrainShortlists(_NO_NODES, 1, *nodes, costs)
    nodes = levels.children[-1], levels.parents[-1]
    return TrainShortlists(_NO_NODES, self.kept, *nodes, costs, self.candidates)

  def width(self, n_labels: int) -> int:
    sizes = self.levels.sizes
    if not sizes:  # the coarsest level, which scores all its clusters
      return n_labels
    # Clusters have about equal sizes.
    return min(n_labels, self.kept * -(-n_labels // sizes[-1]))

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    sizes = self.levels.sizes
    if not sizes:
      yield (
        f'{path}.levels.sizes=(): must have at least one number of clusters'
      )
    if len(self.steps) != len(sizes):
      yield (
        f'{path}.steps={self.steps}: must have a number for each of '
        f'{path}.levels.sizes={sizes}'
      )
    elif self.steps and min(self.steps) < 1:
      yield f'{path}.steps={self.steps}: each number must be at least 1'
    yield from self._level_faults(config, path)
    if self.bootstrap and not _has_plain_rows(config.model.head):
      yield (
        f'{path}.bootstrap=True: needs config.model.head=OneVsAllConfig(...) '
        'with bottleneck=0 and storage=Storage.FLOAT32'
      )
    if config.model.head.describes:
      yield (
        f'{path}=LevelShortlist(...): needs a head without label names, '
        'because clusters have no names'
      )

  def _level_faults(self, config: Any, path: str) -> Iterator[str]:
    """Yields faults of averaging the weights of the levels above the labels."""
    average = getattr(config.train, 'average', None)
    for steps in sorted(set(self.steps)) if average else ():
      train = dataclasses.replace(config.train, steps=steps)
      above = dataclasses.replace(config, train=train)
      for fault in average.faults(above, 'config.train.average'):
        # The fault names the number of steps of the last level.
        level = fault.replace('config.train.steps', 'the steps of a level')
        yield f'{path}.steps={self.steps}: {level}'


def _has_plain_rows(head: HeadConfig) -> bool:
  """Returns whether a label's score is the product of its row and a vector."""
  return (
    isinstance(head, OneVsAllConfig)
    and not head.bottleneck
    and head.storage is Storage.FLOAT32
  )
