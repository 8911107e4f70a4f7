"""Defines the stack: models propose labels, and a ranker judges them."""

from collections.abc import Iterator
import dataclasses
import enum
import re
from typing import Any

from xjax.core.config_part import (
  AT_LEAST_1,
  AT_LEAST_2,
  RATE,
  at_most,
  field,
)
from xjax.data.config import (
  TextVectorsConfig,
  TfidfConfig,
  TokensConfig,
  WordsConfig,
)
from xjax.models.config import Config
from xjax.models.model_configs import (
  ModelConfig,
  NamesModel,
  NeighboursModel,
  PrototypesModel,
  TreeModel,
)
from xjax.models.staged.rankers.boosted import BoostedTrees
from xjax.models.staged.rankers.pair_features import PairFeatures
from xjax.models.staged.rankers.ranker import RankerConfig
from xjax.models.staged.stage_config import StageConfig
from xjax.models.train_configs import NoTrain, TrainConfig, TreeTrain

_NAME = re.compile(r'[a-z][a-z0-9_]*')
_TAKEN = 'label', 'proposers', 'base'  # names of features without proposer
_ALL_WORDS = 1_000_000  # more words than any document has


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
  optional: bool = field(
    False,
    'Whether the proposer is left out if the corpus does not have what it '
    'needs, such as names of labels.',
  )

  def run_config(self, config: Config) -> Config:
    """Returns the config of the proposer's own run.

    An encoder without a folder gets the folder that the stack names.

    Args:
      config: config of the run that the stack belongs to.
    """
    own, folder = super().run_config(config), config.model.encoder
    data, model = own.data, own.model
    if self.lacks_folder and isinstance(data.tokens, TextVectorsConfig):
      tokens = dataclasses.replace(data.tokens, folder=folder)
      data = dataclasses.replace(data, tokens=tokens)
    elif self.lacks_folder:
      encoder = dataclasses.replace(model.encoder, folder=folder)
      model = dataclasses.replace(model, encoder=encoder)
    return dataclasses.replace(own, data=data, model=model)

  @property
  def lacks_folder(self) -> bool:
    """Returns whether the proposer has an encoder, but names no folder."""
    if isinstance(self.tokens, TextVectorsConfig):
      return not self.tokens.folder
    encoder = getattr(self.model, 'encoder', None)
    return self.tokens.pretrained and getattr(encoder, 'folder', None) == ''

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


def tree_proposer(
  name: str = 'tree',
  zones: tuple[str, ...] = (),
  depth: int = 40,
  n_trees: int = 1,
) -> ProposerConfig:
  """Returns label trees over TF-IDF features, as own_linear trains them."""
  from xjax.data.label_trees.clusters import ClusterTree

  tree = ClusterTree(arity=100, max_leaf=100)
  model = TreeModel(tree=tree, n_trees=n_trees)
  train = TreeTrain(threshold=0.01)
  return _sparse(TfidfConfig(), zones, model, train, name, depth)


def neighbours_proposer(
  name: str = 'neighbours', zones: tuple[str, ...] = (), depth: int = 20
) -> ProposerConfig:
  """Returns the nearest training documents by TF-IDF features."""
  model = NeighboursModel()
  return _sparse(TfidfConfig(), zones, model, NoTrain(), name, depth)


def names_proposer(
  name: str = 'names',
  zones: tuple[str, ...] = (),
  depth: int = 20,
  language: str = 'english',
  optional: bool = False,
) -> ProposerConfig:
  """Returns label names that are found in texts."""
  words = WordsConfig(max_tokens=_ALL_WORDS, buckets=(_ALL_WORDS,))
  model = NamesModel(language=language)
  proposer = _sparse(words, zones, model, NoTrain(), name, depth)
  return dataclasses.replace(proposer, optional=optional)


def vector_proposers(
  zones: tuple[str, ...] = (), max_tokens: int = 128
) -> tuple[ProposerConfig, ...]:
  """Returns proposers that compare vectors of texts of a pretrained encoder.

  They are the nearest training documents, the names of labels, and the
  centroids of labels.

  Args:
    zones: zones of the text.
    max_tokens: number of pieces that are read from the start of a text.
  """
  tokens = TextVectorsConfig(max_tokens=max_tokens)
  names = PrototypesModel(centroids=False)
  centroids = PrototypesModel(names=False)
  models = {
    'vector_neighbours': NeighboursModel(),
    'name_vectors': names,
    'centroids': centroids,
  }
  return tuple(
    _sparse(tokens, zones, model, NoTrain(), name, 15)
    for name, model in models.items()
  )


def _sparse(
  tokens: TokensConfig,
  zones: tuple[str, ...],
  model: ModelConfig,
  train: TrainConfig,
  name: str,
  depth: int,
) -> ProposerConfig:
  return ProposerConfig(
    tokens, zones, model, train, batch_size=512, name=name, depth=depth
  )


def text_proposers() -> tuple[ProposerConfig, ...]:
  """Returns a tree, neighbours and, if labels have names, names over texts."""
  return (
    tree_proposer(),
    neighbours_proposer(depth=25),
    names_proposer(depth=25, optional=True),
  )


def text_and_title_proposers(
  text: tuple[str, ...], title: tuple[str, ...]
) -> tuple[ProposerConfig, ...]:
  """Returns trees, neighbours and names, each by text and by title.

  Titles are short, so three trees over them take less time than one over texts.

  Args:
    text: zones of the text.
    title: zones of the title, which may be zones of the text too.
  """
  return (
    tree_proposer('tree', text),
    tree_proposer('title_tree', title, depth=20, n_trees=3),
    neighbours_proposer('neighbours', text, depth=25),
    neighbours_proposer('title_neighbours', title, depth=15),
    names_proposer('names', text, depth=25),
    names_proposer('title_names', title, depth=15),
  )


def _proposers() -> tuple[ProposerConfig, ...]:
  return tree_proposer(), neighbours_proposer(), names_proposer()


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
  encoder: str = field(
    '',
    'Folder of a pretrained encoder (as in TextVectorsConfig), for proposers '
    'that need an encoder and name no folder themselves.',
    may_change=True,
    tiny='',
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
    if not any(vars(self.features).values()):
      yield f'{path}.features: at least one group must be True'

  def lacks_encoder(self, config: Config) -> bool:
    """Returns whether no folder is named for the encoder of a proposer."""
    lacks = any(proposer.lacks_folder for proposer in self.proposers)
    return lacks and not self.encoder and not config.data.generated

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
