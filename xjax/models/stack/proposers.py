"""Defines the models that propose labels for a stack."""

from collections.abc import Iterator
import dataclasses
from typing import Any

from xjax.core.config_part import AT_LEAST_1, field
from xjax.data.formats.data_config import DataConfig
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.tokens_config import (
  Analyzer,
  TextVectorsConfig,
  TfidfConfig,
  TokensConfig,
  WordsConfig,
)
from xjax.models.contract import Config, Model
from xjax.models.lookup.names import NamesModel, Units
from xjax.models.lookup.neighbours_model import NeighboursModel
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.models.lookup.values import ValuesModel
from xjax.models.stage import StageConfig
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.train.train_config import NoTrain, TrainConfig

_ALL_WORDS = 1_000_000  # more words than any document has
# Words of letters that are no months.
_NO_NUMBERS = (
  '(?!(?:january|february|march|april|may|june|july|august|september|october|'
  r'november|december)\b)\b[^\W\d_]{2,}'
)
_VALUES = r'[^\s;|](?:[^\n;|]*[^\s;|])?'  # what lines, ; and | separate
_ACTS = '[0-9]+/[0-9]+'  # numbers of acts, such as 1408/71


@dataclasses.dataclass
class ProposerConfig(StageConfig):
  """Configures a stage, a model that proposes labels for a stack."""

  name: str = field('', 'Name of the proposer, in small letters.')
  depth: int = field(
    20, 'Number of labels that the model proposes for a document.', AT_LEAST_1
  )
  scored: int = field(
    200,
    'Number of labels whose scores are known to the ranker, at least depth.',
    AT_LEAST_1,
  )
  optional: bool = field(
    False,
    'Whether the proposer is left out if the corpus does not have what it '
    'needs, such as names of labels.',
  )

  facts: bool = field(False, 'Whether the proposer reads data.facts.')

  def run_config(self, config: Config) -> Config:
    """Returns the config of its run; the stack may name the encoder."""
    own, folder = super().run_config(config), config.model.encoder
    data, model = own.data, own.model
    if self.lacks_folder and isinstance(data.tokens, TextVectorsConfig):
      tokens = dataclasses.replace(data.tokens, folder=folder)
      data = dataclasses.replace(data, tokens=tokens)
    elif self.lacks_folder:
      encoder = dataclasses.replace(model.encoder, folder=folder)
      model = dataclasses.replace(model, encoder=encoder)
    return dataclasses.replace(own, data=data, model=model)

  def zones_of(self, data: DataConfig) -> tuple[str, ...]:
    facts = data.facts if self.facts else ()
    return self.zones or facts or super().zones_of(data)

  @property
  def lacks_folder(self) -> bool:
    """Returns whether the proposer has an encoder, but names no folder."""
    if isinstance(self.tokens, TextVectorsConfig):
      return not self.tokens.folder
    encoder = getattr(self.model, 'encoder', None)
    return self.tokens.pretrained and getattr(encoder, 'folder', None) == ''

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if self.scored < self.depth:
      yield (
        f'{path}.scored={self.scored}: must be at least '
        f'{path}.depth={self.depth}'
      )


def tree_proposer(
  name: str = 'tree',
  zones: tuple[str, ...] = (),
  depth: int = 40,
  n_trees: int = 1,
) -> ProposerConfig:
  """Returns label trees over TF-IDF features, as own_linear trains them."""
  tree = ClusterTree(arity=100, max_leaf=100)
  model = TreeModel(tree=tree, n_trees=n_trees)
  train = TreeTrain(threshold=0.01)
  return _sparse(TfidfConfig(), zones, model, train, name, depth)


def neighbours_proposer(
  name: str = 'neighbours',
  zones: tuple[str, ...] = (),
  depth: int = 20,
  dated: bool = False,
  pattern: str = '',
) -> ProposerConfig:
  """Returns the nearest training documents by TF-IDF features.

  With a pattern, the features are its matches, not words.
  """
  model, tokens = NeighboursModel(dated=dated), TfidfConfig(pattern=pattern)
  return _sparse(tokens, zones, model, NoTrain(), name, depth)


def names_proposer(
  name: str = 'names',
  zones: tuple[str, ...] = (),
  depth: int = 20,
  language: str = 'english',
  optional: bool = False,
  units: Units = Units.STEMS,
) -> ProposerConfig:
  """Returns label names that are found in texts, or parts of names."""
  words = WordsConfig(max_tokens=_ALL_WORDS, buckets=(_ALL_WORDS,))
  model = NamesModel(units=units, language=language)
  proposer = _sparse(words, zones, model, NoTrain(), name, depth)
  return dataclasses.replace(proposer, optional=optional)


def prototypes_proposer(
  name: str,
  model: PrototypesModel,
  zones: tuple[str, ...] = (),
  optional: bool = False,
) -> ProposerConfig:
  """Returns prototypes of single words; those of word pairs would be large."""
  tokens = TfidfConfig(max_ngram=1)
  proposer = _sparse(tokens, zones, model, NoTrain(), name, 20)
  return dataclasses.replace(proposer, optional=optional)


def facts_proposer(
  name: str = 'facts', zones: tuple[str, ...] = (), pattern: str = _VALUES
) -> ProposerConfig:
  """Returns labels of documents with the same facts, by default data.facts.

  A value is a match of the pattern.
  """
  tokens = TfidfConfig(max_ngram=1, pattern=pattern)
  proposer = _sparse(tokens, zones, ValuesModel(), NoTrain(), name, 5)
  return dataclasses.replace(proposer, optional=not zones, facts=not zones)


def name_parts_proposer(
  name: str = 'name_parts', zones: tuple[str, ...] = ()
) -> ProposerConfig:
  """Returns labels whose names share runs of four characters with the text.

  So names are found in other forms, in compounds and in related languages.
  """
  runs = Units.CHARACTERS
  return names_proposer(name, zones, 15, optional=True, units=runs)


def vector_proposers(
  zones: tuple[str, ...] = (), max_tokens: int = 128
) -> tuple[ProposerConfig, ...]:
  """Returns proposers that compare vectors of texts of a pretrained encoder.

  They are the nearest training documents, the names of labels, and the
  centroids of labels. `max_tokens` pieces are read from the start of a text.
  """
  tokens = TextVectorsConfig(max_tokens=max_tokens)
  names = PrototypesModel(centroids=False)
  centroids = PrototypesModel(names=False)
  models = {
    'vector_neighbours': NeighboursModel(),
    'name_vectors': names,
    'centroid_vectors': centroids,
  }
  return tuple(
    _sparse(tokens, zones, model, NoTrain(), name, 15)
    for name, model in models.items()
  )


def _sparse(
  tokens: TokensConfig,
  zones: tuple[str, ...],
  model: Model,
  train: TrainConfig,
  name: str,
  depth: int,
) -> ProposerConfig:
  return ProposerConfig(
    tokens, zones, model, train, batch_size=512, name=name, depth=depth
  )


def text_proposers(tokens: TfidfConfig) -> tuple[ProposerConfig, ...]:
  """Returns the proposers of own_best.

  They are a tree, neighbours and centroids over texts and, where labels have
  them, names, parts of names and descriptions.
  """
  words = tokens.analyzer is Analyzer.WORDS
  most = tokens.min_ngram if words else tokens.max_ngram
  single = dataclasses.replace(tokens, max_ngram=most)
  model = PrototypesModel(descriptions=True, centroids=False)
  described = prototypes_proposer('descriptions', model, optional=True)
  centroids = prototypes_proposer('centroids', PrototypesModel(names=False))
  replace = dataclasses.replace
  return (
    replace(tree_proposer(), tokens=tokens),
    replace(neighbours_proposer(depth=25), tokens=tokens),
    replace(centroids, tokens=single),
    names_proposer(depth=25, optional=True),
    replace(described, tokens=single),
    name_parts_proposer(),
    facts_proposer(),
  )


def text_and_title_proposers(
  text: tuple[str, ...], title: tuple[str, ...]
) -> tuple[ProposerConfig, ...]:
  """Returns trees, neighbours and names, each by zones of text and of title.

  Titles are short, so three trees over them take less time than one over texts.
  A zone of the title may also be one of the text.
  """
  return (
    tree_proposer('tree', text),
    tree_proposer('title_tree', title, depth=20, n_trees=3),
    neighbours_proposer('neighbours', text, depth=25),
    neighbours_proposer('title_neighbours', title, depth=15),
    names_proposer('names', text, depth=25),
    names_proposer('title_names', title, depth=15),
  )


def dated_act_proposers(
  text: tuple[str, ...], title: tuple[str, ...]
) -> tuple[ProposerConfig, ...]:
  """Returns the proposers of text_and_title_proposers for laws.

  Votes of neighbours fade with the time between two laws. Titles are compared
  without numbers and dates. The laws that cite the same laws are neighbours
  too.
  """
  plain = text_and_title_proposers(text, title)
  near = {
    'neighbours': neighbours_proposer('neighbours', text, 25, dated=True),
    'title_neighbours': neighbours_proposer(
      'title_neighbours', title, 15, dated=True, pattern=_NO_NUMBERS
    ),
  }
  cited = neighbours_proposer(
    'cited', (*title, *text), 15, dated=True, pattern=_ACTS
  )
  cited = dataclasses.replace(cited, optional=True)  # not all texts cite acts
  return (*(near.get(x.name, x) for x in plain), cited)
