"""Defines the stack: models propose labels, and a ranker judges them."""

from collections.abc import Iterator
import dataclasses
import enum
import re
from typing import Any

from xjax.config.stages import StageConfig
from xjax.config.train import NoTrain, TrainConfig
from xjax.core.config_part import (
  AT_LEAST_1,
  AT_LEAST_2,
  RATE,
  at_most,
  field,
)
from xjax.data.config import TfidfConfig, TokensConfig
from xjax.score.config import ModelConfig
from xjax.score.rankers.boosted import BoostedTrees
from xjax.score.rankers.contract import RankerConfig
from xjax.score.rankers.pair_features import PairFeatures

_NAME = re.compile(r'[a-z][a-z0-9_]*')


@dataclasses.dataclass
class ProposerConfig(StageConfig):
  """Configures a model that proposes labels for a stack.

  The model is a stage of the run.
  """

  name: str = field('', 'Name of the proposer, in small letters.')
  depth: int = field(
    20,
    'Number of labels that the model proposes for a document.',
    AT_LEAST_1,
    tiny=at_most(4),
  )
  scored: int = field(
    200,
    'Number of labels whose scores are known to the ranker, at least depth.',
    AT_LEAST_1,
    tiny=at_most(8),
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    if self.scored < self.depth:
      yield (
        f'{path}.scored={self.scored}: must be at least '
        f'{path}.depth={self.depth}'
      )


class Lesson(enum.Enum):
  """Says from which documents the ranker of a stack learns.

  Attributes:
    FOLDS: training documents. They are divided into folds, and each proposer is
      trained once without each fold. So the ranker sees documents that its
      proposers have not seen.
    DEV: the documents of dev. Proposers are trained once. Metrics on dev are
      then too high, and labels known by name only are rare in the lesson.
  """

  FOLDS = 'folds'
  DEV = 'dev'


def _proposers() -> tuple[ProposerConfig, ...]:
  from xjax.config.train import TreeTrain
  from xjax.data.config import WordsConfig
  from xjax.score.config import NamesModel, NeighboursModel, TreeModel

  words = WordsConfig(max_tokens=100_000, buckets=(100_000,))
  return (
    ProposerConfig(
      TfidfConfig(), (), TreeModel(), TreeTrain(), 512, name='tree', depth=40
    ),
    ProposerConfig(
      TfidfConfig(), (), NeighboursModel(), NoTrain(), 512, name='neighbours'
    ),
    ProposerConfig(words, (), NamesModel(), NoTrain(), 512, name='names'),
  )


@dataclasses.dataclass
class StackModel(ModelConfig):
  """Ranks the labels that several models propose (stacked generalisation).

  Each proposer lists labels of a document. The features of a pair of document
  and label are what all proposers say about it, and the ranker computes one
  score from them (Wolpert 1992). Labels that are known by name only are ranked
  too, if a proposer reads names. data.tokens is not used.
  """

  reads = (TokensConfig,)
  neural = False

  proposers: tuple[ProposerConfig, ...] = field(
    _proposers, 'The models that propose labels.'
  )
  features: PairFeatures = field(PairFeatures, 'What the ranker sees.')
  ranker: RankerConfig = field(BoostedTrees, 'The model that ranks labels.')
  lesson: Lesson = field(
    Lesson.FOLDS, 'From which documents the ranker learns.'
  )
  folds: int = field(4, 'Number of folds.', AT_LEAST_2, tiny=2)
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

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
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
      elif name in names[:number]:
        yield f'{where}: another proposer has this name'
    if not any(vars(self.features).values()):
      yield f'{path}.features: at least one group must be True'

  def check_tokens(self, config: Any) -> Iterator[str]:
    """Yields nothing, because each proposer reads documents in its own way."""
    yield from ()


@dataclasses.dataclass
class StackTrain(TrainConfig):
  """Configures the training of a stack; proposers have their own settings."""

  trains = (StackModel,)
  processes = False

  workers: int = field(
    2, 'Number of threads of the ranker.', AT_LEAST_1, may_change=True
  )
