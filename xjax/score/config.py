"""The kinds of models, but for neural ones (text_model.py)."""

from collections.abc import Iterator
import dataclasses
from typing import Any, ClassVar

from xjax.core.config_part import (
  AT_LEAST_1,
  ConfigPart,
  field,
  kinds_that,
)
from xjax.data.config import (
  GivenFeaturesConfig,
  TfidfConfig,
  TokensConfig,
  WordsConfig,
)
from xjax.data.formats.contract import DataConfig
from xjax.score.trees.clusters import ClusterTree
from xjax.score.trees.contract import TreeConfig


@dataclasses.dataclass
class ModelConfig(ConfigPart, abstract=True):
  """What ranks labels.

  Attributes:
    reads: the kinds of data.tokens that it reads.
  """

  reads: ClassVar[tuple[type[TokensConfig], ...]] = ()

  def check(self, config: Any, path: str) -> Iterator[str]:
    tokens, data = config.data.tokens, config.data
    where = f'config.data.tokens={type(tokens).__name__}(...)'
    if tokens.sparse != data.sparse:
      formats = kinds_that('sparse', DataConfig)
      yield (
        f'{where}: {kinds_that("sparse", TokensConfig)} goes with '
        f'config.data={formats}, and each with nothing else'
      )
    elif not isinstance(tokens, self.reads):
      yield (
        f'{where}: {type(self).__name__}(...) reads '
        + ' or '.join(f'{kind.__name__}(...)' for kind in self.reads)
      )
    else:
      yield from self.check_tokens(config)

  def check_tokens(self, config: Any) -> Iterator[str]:
    """Yields what is wrong with tokens of a kind that it reads."""
    if config.data.tokens.by_zone:
      yield (
        'config.data.tokens.by_zone=True: this model reads zones as one text'
      )


@dataclasses.dataclass
class ExactMatchModel(ModelConfig):
  """Labels whose names are found in the document; nothing is learnt.

  It reads the first data.tokens.max_tokens words.
  """

  reads = (WordsConfig,)

  alt: bool = field(
    False, 'Whether a label is found by its alternative names as well.'
  )


@dataclasses.dataclass
class SparseModel(ModelConfig, abstract=True):
  """Linear classifiers over sparse features of documents, searched as a tree.

  Attributes:
    beam: nodes of a depth that are opened for a document, unless exact.
    exact: whether every node is opened that may have one of the best labels.
    chained: whether a label's score is of all classifiers above it.
    n_trees: trees of an ensemble, a file each.
  """

  reads = (TfidfConfig, GivenFeaturesConfig)
  beam = 1
  exact = True
  chained: ClassVar[bool] = True
  n_trees = 1


@dataclasses.dataclass
class LinearModel(SparseModel):
  """One weight vector per label: all labels lie below the root of a tree."""

  chained = False


@dataclasses.dataclass
class TreeModel(SparseModel):
  """Linear classifiers at the nodes of a label tree.

  With the logistic loss a probabilistic label tree (Jasinska et al. 2016), with
  the squared hinge XR-Linear (Yu et al. 2022, "PECOS").
  """

  earlier_kind = 'label_tree'

  tree: TreeConfig = field(ClusterTree, 'Over the labels.')
  n_trees: int = field(
    1, 'Of an ensemble; each has a seed of its own.', AT_LEAST_1
  )
  beam: int = field(
    10,
    'Nodes of a depth that are opened for a document, unless exact.',
    AT_LEAST_1,
    may_change=True,
  )
  exact: bool = field(
    False,
    'Whether instead every node is opened that may have one of the best '
    'labels below it; of ensembles, one of the best of each tree.',
    may_change=True,
  )
