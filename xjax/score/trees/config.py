"""How label trees are made."""

from collections.abc import Iterator
import dataclasses
import enum
from typing import Any

from xjax.core.config_part import (
  AT_LEAST_0,
  AT_LEAST_1,
  AT_LEAST_2,
  ConfigPart,
  field,
)


class LabelFeatures(enum.Enum):
  """What labels are clustered by.

  PIFA: the sum of their documents' features, of length 1. PIFA_BY_LENGTH: each
  document's features divided by its number of words, and the sum as it is.
  NAMES: the features of their names; it needs TF-IDF.
  """

  PIFA = 'pifa'
  PIFA_BY_LENGTH = 'pifa_by_length'
  NAMES = 'names'


class Clusters(enum.Enum):
  """How labels are parted.

  K_MEANS: into as many clusters as there are to be, at once. TWO_MEANS: into
  two, and these again, until there are as many.
  """

  K_MEANS = 'k_means'
  TWO_MEANS = 'two_means'


@dataclasses.dataclass
class TreeConfig(ConfigPart, abstract=True):
  """Which tree there is over the labels."""


@dataclasses.dataclass
class ClusterTree(TreeConfig):
  """Of clusters of labels, balanced, from the root down."""

  arity: int = field(
    16,
    'Children of a node that has no labels below it, at most; with TWO_MEANS '
    'a power of 2.',
    AT_LEAST_2,
    tiny=2,
  )
  max_leaf: int = field(
    80,
    'Labels of a cluster, at most; 16 are trained at once.',
    AT_LEAST_1,
    tiny=4,
  )
  clusters: Clusters = field(Clusters.K_MEANS, 'How they are found.')
  features: LabelFeatures = field(
    LabelFeatures.PIFA, 'What labels are clustered by.'
  )
  max_features: int = field(
    1000, 'Of a label, the largest ones that count; 0: all.', AT_LEAST_0
  )
  spherical: bool = field(
    True, 'Whether the cosine tells who is close, or else the distance.'
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    if self.clusters is Clusters.TWO_MEANS and self.arity & (self.arity - 1):
      yield (
        f'{path}.arity={self.arity}: must be a power of 2 with '
        f'{path}.clusters=Clusters.TWO_MEANS'
      )
    where = f'{path}.features={self.features}'
    if self.features is not LabelFeatures.PIFA and config.data.sparse:
      yield (
        f'{where}: needs texts, config.data.tokens=TfidfConfig(...); '
        'LabelFeatures.PIFA needs none'
      )
    if self.features is LabelFeatures.PIFA_BY_LENGTH and self.spherical:
      yield (
        f'{where}: needs {path}.spherical=False; the cosine sees no frequencies'
      )


@dataclasses.dataclass
class CompleteTree(TreeConfig):
  """Of labels in their order."""

  arity: int = field(2, 'Children of a node.', AT_LEAST_2, tiny=2)


@dataclasses.dataclass
class HuffmanTree(TreeConfig):
  """In which frequent labels are near the root (Huffman 1952)."""

  arity: int = field(2, 'Children of a node.', AT_LEAST_2, tiny=2)


@dataclasses.dataclass
class TaxonomyTree(TreeConfig):
  """Of labels below their parents.

  Where a label's documents all have its parent too, the parent is predicted
  where the tree says so; else it has a leaf of its own below itself.
  """

  file: str = field(
    '',
    'Lines `parent<TAB>child<TAB>child...` from Root down, of label ids and '
    'perhaps others; empty: the parents that labels have.',
    tiny='',
  )
