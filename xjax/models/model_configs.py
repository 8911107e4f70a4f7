"""Defines the configs of all models except neural models (text_model.py)."""

from collections.abc import Iterator
import dataclasses
import enum
import math
from typing import Any, ClassVar

from xjax.core.config_part import (
  AMOUNT,
  AT_LEAST_1,
  POSITIVE,
  ConfigPart,
  at_most,
  field,
  kinds_that,
)
from xjax.data.config import (
  GivenFeaturesConfig,
  Norm,
  TextVectorsConfig,
  TfidfConfig,
  TokensConfig,
  WordsConfig,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.tree_config import TreeConfig


@dataclasses.dataclass
class ModelConfig(ConfigPart, abstract=True):
  """Chooses the model, which ranks the labels of a document.

  Attributes:
    reads: the classes of data.tokens that the model can use.
    neural: whether the model needs JAX and is trained by optimizer steps.
  """

  reads: ClassVar[tuple[type[TokensConfig], ...]] = ()
  neural: ClassVar[bool] = True

  def check(self, config: Any, path: str) -> Iterator[str]:
    tokens, data = config.data.tokens, config.data
    where = f'config.data.tokens={type(tokens).__name__}(...)'
    if tokens.sparse != data.sparse:
      data_kinds = f'config.data={kinds_that("sparse", DataConfig)}'
      tokens_kinds = kinds_that('sparse', TokensConfig)
      if tokens.sparse:
        yield f'{where}: needs {data_kinds}'
      else:
        yield f'{where}: {data_kinds} needs config.data.tokens={tokens_kinds}'
    elif not isinstance(tokens, self.reads):
      yield (
        f'{where}: {type(self).__name__}(...) reads only '
        + ' or '.join(f'{kind.__name__}(...)' for kind in self.reads)
      )
    else:
      yield from self.check_tokens(config)

  def check_tokens(self, config: Any) -> Iterator[str]:
    """Yields one error for each setting of data.tokens that the model rejects.

    Args:
      config: the whole config of the run.
    """
    if config.data.tokens.by_zone:
      yield (
        'config.data.tokens.by_zone=True: this model reads zones as one text; '
        'set by_zone=False'
      )


@dataclasses.dataclass
class AutoModel(ModelConfig):
  """Stands for the model that xjax.run.auto chooses when a run starts.

  The choice is saved in the workdir in place of this part.
  """

  reads = (TokensConfig,)

  encoder: str = field(
    '',
    'The folder of a pretrained encoder. It is used only if an accelerator is '
    'there.',
    tiny='',
  )


@dataclasses.dataclass
class UntrainedModel(ModelConfig, abstract=True):
  """Scores labels without trained parameters."""

  neural = False


@dataclasses.dataclass
class ExactMatchModel(UntrainedModel):
  """Assigns the labels whose names are in the document, without training.

  The model reads the first data.tokens.max_tokens words of a document.
  """

  reads = (WordsConfig,)

  alt: bool = field(
    False, 'Whether to search for the alternative names of labels as well.'
  )


class Units(enum.Enum):
  """Says which parts of names and texts are compared.

  Attributes:
    STEMS: words without their endings. They need a language.
    CHARACTERS: runs of four characters inside words, for languages without a
      stemmer and for compound words.
  """

  STEMS = 'stems'
  CHARACTERS = 'characters'


@dataclasses.dataclass
class NamesModel(UntrainedModel):
  """Scores labels by how much of their names is in the document.

  A stem counts more if few training documents have it, and if it occurs several
  times. A name that is in the document as a phrase counts more than its stems
  alone. The model reads the first data.tokens.max_tokens words of a document.
  """

  reads = (WordsConfig,)

  alt: bool = field(
    True, 'Whether to search for the alternative names of labels as well.'
  )
  units: Units = field(Units.STEMS, 'The parts of names that are compared.')
  language: str = field(
    'english',
    'The language of the stems, such as english, german or french. It is not '
    'used with units=CHARACTERS.',
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    if self.units is not Units.STEMS:
      return
    # The stemmers are imported only where they are needed.
    import snowballstemmer

    languages = snowballstemmer.algorithms()
    if self.language not in languages:
      yield (
        f'{path}.language={self.language!r}: must be one of '
        f'{", ".join(languages)}; for other languages, set '
        f'{path}.units=CHARACTERS'
      )


@dataclasses.dataclass
class NeighboursModel(UntrainedModel):
  """Scores labels by the votes of the most similar training documents (kNN).

  The similarity is the cosine of features: TF-IDF, features from files, or
  vectors of a pretrained encoder. A neighbour votes for all its
  labels. The score of a label is the sum of its votes over the sum of all
  votes of one label, which is from 0 to 1.
  """

  reads = (TfidfConfig, GivenFeaturesConfig, TextVectorsConfig)

  neighbours: int = field(
    30, 'Number of training documents that vote.', AT_LEAST_1, tiny=at_most(4)
  )
  power: float = field(
    3.0,
    'A vote counts as the similarity to this power. With 0, all neighbours '
    'count equally.',
    AMOUNT,
  )


@dataclasses.dataclass
class PrototypesModel(UntrainedModel):
  """Scores labels by the cosine of the document and a prototype of the label.

  The features of a text have length 1. The parts of a prototype are the
  features of the label's name, and the mean features of its training documents
  (its centroid). Each part is scaled to length 1, and so is their sum. A label
  that lacks a part has the other part as its prototype.
  """

  reads = (TfidfConfig, TextVectorsConfig, GivenFeaturesConfig)

  names: bool = field(
    True,
    'Whether names are parts of prototypes. The names of new labels are then '
    'their prototypes.',
    tiny=True,
  )
  centroids: bool = field(
    True, 'Whether centroids are parts of prototypes.', tiny=True
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    tokens = config.data.tokens
    if isinstance(tokens, GivenFeaturesConfig) and tokens.norm is not Norm.L2:
      yield (
        f'config.data.tokens.norm={tokens.norm.name}: prototypes are compared '
        'with rows of length 1; set config.data.tokens.norm=L2'
      )
    if not self.names and not self.centroids:
      yield f'{path}: names or centroids must be True'
    if self.names and config.data.sparse:
      yield (
        f'{path}.names=True: config.data={type(config.data).__name__}(...) has '
        'features of documents, but none of names; set names=False'
      )


class Averaging(enum.Enum):
  """Says what is averaged over the runs of an ensemble.

  A label that is not on a run's list counts 0.

  Attributes:
    SIGMOID: the probabilities of labels.
    SOFTMAX: the softmax over the scores of a run's list.
    RANK: 1 / rank, where the best label of a list has the rank 1.
  """

  SIGMOID = 'sigmoid'
  SOFTMAX = 'softmax'
  RANK = 'rank'


@dataclasses.dataclass
class EnsembleModel(UntrainedModel):
  """Averages the lists of finished runs, without training.

  The runs may read documents in different ways. What loading their models needs
  is copied into the workdir. data.tokens is not used.
  """

  reads = (TokensConfig,)

  workdirs: tuple[str, ...] = field(
    (), 'The finished runs, each as WORKDIR[@step].'
  )
  combine: Averaging = field(Averaging.RANK, 'What is averaged over the runs.')
  depth: int = field(
    50,
    'Number of labels that each run lists for a document.',
    AT_LEAST_1,
    tiny=at_most(16),
  )
  weights: tuple[float, ...] = field(
    (), 'The weight of each run in the average. If empty, all are equal.'
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    if not all(self.workdirs) or not self.workdirs:
      yield (
        f'{path}.workdirs={self.workdirs}: set it to the workdirs of finished '
        f'runs, as in --{path}.workdirs=runs/a,runs/b'
      )
    if self.weights and len(self.weights) != len(self.workdirs):
      yield (
        f'{path}.weights={self.weights}: must be empty, or have a weight for '
        f'each of {path}.workdirs={self.workdirs}'
      )
    if not all(0 < weight < math.inf for weight in self.weights):
      yield f'{path}.weights={self.weights}: all weights must be above 0'

  def check_tokens(self, config: Any) -> Iterator[str]:
    """Yields nothing, because each run reads documents in its own way."""
    yield from ()


@dataclasses.dataclass
class SparseModel(ModelConfig, abstract=True):
  """Scores labels by linear classifiers over sparse features of documents.

  The classifiers are the nodes of a tree, which is searched for the best
  labels.

  Attributes:
    beam: number of nodes that are opened for a document at each depth. The beam
      is ignored if exact is True.
    exact: whether the search opens every node that could have one of the best
      labels below it. If so, the search misses none of the best labels.
    chained: whether a label's score combines its own classifier with the
      classifiers of the nodes above it.
    n_trees: number of trees of the ensemble; each tree has a file of its own.
  """

  reads = (TfidfConfig, GivenFeaturesConfig, TextVectorsConfig)
  neural = False
  beam = 1
  exact = True
  chained: ClassVar[bool] = True
  n_trees = 1


def is_neural(model: ModelConfig) -> bool:
  """Returns whether a model is neural, so that it needs JAX and has steps."""
  return model.neural


@dataclasses.dataclass
class LinearModel(SparseModel):
  """Trains one linear classifier for each label.

  All classifiers are directly below the root of a tree.
  """

  chained = False


@dataclasses.dataclass
class VectorsConfig(ConfigPart, abstract=True):
  """Chooses the vectors that are joined to the sparse features of documents.

  Attributes:
    joins: whether the features of a document get a vector.
    weight: length of the vector of a document. The TF-IDF features have
      length 1.
  """

  joins: ClassVar[bool] = True

  weight: float = field(
    1.0,
    'Length to which the vector of a document is scaled. The TF-IDF features '
    'of a document have length 1.',
    POSITIVE,
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    if config.data.sparse:
      yield (
        f'{path}={type(self).__name__}(...): needs texts, which an encoder can '
        f'read; config.data={type(config.data).__name__}(...) has none'
      )


@dataclasses.dataclass
class NoVectors(VectorsConfig):
  """Joins no vector: the features of a document are only its TF-IDF."""

  joins = False
  weight = 1.0

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from ()


@dataclasses.dataclass
class RunVectors(VectorsConfig):
  """Joins the vectors of the encoder of a finished run.

  A document's vector is what the run's pooling computes, or the mean over the
  document's tokens if the run has no pooling. The files that the encoder needs
  are copied into the workdir.
  """

  workdir: str = field(
    '', 'WORKDIR[@step] of a finished run of a neural model.', tiny=''
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    yield from super().check(config, path)
    if not self.workdir:
      yield (
        f"{path}.workdir='': set it to the workdir of the run whose encoder "
        'computes the vectors'
      )


@dataclasses.dataclass
class NodesModel(SparseModel, abstract=True):
  """Trains linear classifiers at the nodes of a label tree."""


@dataclasses.dataclass
class TreeModel(NodesModel):
  """Trains linear classifiers at the nodes of a label tree.

  With the logistic loss the model is a probabilistic label tree (Jasinska et
  al. 2016); with the squared hinge loss it is XR-Linear (Yu et al. 2022,
  "PECOS").
  """

  earlier_kind = 'label_tree'

  tree: TreeConfig = field(ClusterTree, 'The tree over the labels.')
  n_trees: int = field(
    1,
    'Number of trees of the ensemble; each tree has a seed of its own.',
    AT_LEAST_1,
  )
  beam: int = field(
    10,
    'Number of nodes that are opened for a document at each depth. The beam is '
    'ignored if exact=True.',
    AT_LEAST_1,
    may_change=True,
  )
  exact: bool = field(
    False,
    'Whether the search opens every node that could have one of the best '
    'labels below it. If so, the search misses none of the best labels of a '
    'tree. In an ensemble, only the labels that the trees find are combined.',
    may_change=True,
  )
  vectors: VectorsConfig = field(
    NoVectors,
    'The vectors of an encoder that are joined to the sparse features of '
    'documents (the ranker of XR-Transformer).',
  )
