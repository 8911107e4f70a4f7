"""How label trees are made."""

import dataclasses
import enum


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
class TreeConfig:
  """Which tree there is over the labels."""


@dataclasses.dataclass
class ClusterTree(TreeConfig):
  """Of clusters of labels, balanced, from the root down.

  Attributes:
    arity: children of a node that has no labels below it, at most; with
      TWO_MEANS a power of 2.
    max_leaf: labels of a cluster, at most; 16 are trained at once.
    clusters: how they are found.
    features: what labels are clustered by.
    max_features: of a label, the largest ones that count; 0: all.
    spherical: whether the cosine tells who is close, or else the distance.
  """

  arity: int = 16
  max_leaf: int = 80
  clusters: Clusters = Clusters.K_MEANS
  features: LabelFeatures = LabelFeatures.PIFA
  max_features: int = 1000
  spherical: bool = True


@dataclasses.dataclass
class CompleteTree(TreeConfig):
  """Of labels in their order.

  Attributes:
    arity: children of a node.
  """

  arity: int = 2


@dataclasses.dataclass
class HuffmanTree(TreeConfig):
  """In which frequent labels are near the root (Huffman 1952).

  Attributes:
    arity: children of a node.
  """

  arity: int = 2


@dataclasses.dataclass
class TaxonomyTree(TreeConfig):
  """Of labels below their parents.

  Where a label's documents all have its parent too, the parent is predicted
  where the tree says so; else it has a leaf of its own below itself.

  Attributes:
    file: lines `parent<TAB>child<TAB>child...` from Root down, of label ids and
      perhaps others; empty: the parents that labels have.
  """

  file: str = ''
