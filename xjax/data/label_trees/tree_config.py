"""Defines the base class of configs that build label trees."""

import abc
from collections.abc import Callable, Sequence
import dataclasses

from scipy import sparse

from xjax.core.config_part import ConfigPart
from xjax.core.types import Ragged
from xjax.data.label_trees.label_tree import LabelTree
from xjax.data.schema import Document, LabelSpace

# Messages name a tree by this path. A run whose tree is elsewhere in its config
# replaces it.
TREE_PATH = 'config.model.tree'


@dataclasses.dataclass(frozen=True, eq=False)
class TreeData:
  """Holds the data that a tree is built from.

  Attributes:
    space: the labels. The tree has only the trained labels.
    gold: N rows of trained labels, one row per training document.
    rows: float32 [N, D], the features of the documents, or None.
    documents: the N documents.
    featurise: turns texts into features [texts, D], or is None if the data has
      no texts.
    seed: the seed of all random choices.
    workers: number of threads. The tree does not depend on this number.
  """

  space: LabelSpace
  gold: Ragged
  rows: sparse.csr_array | None = None
  documents: Sequence[Document] = ()
  featurise: Callable[[Sequence[str]], sparse.csr_array] | None = None
  seed: int = 0
  workers: int = 1


@dataclasses.dataclass
class TreeConfig(ConfigPart, abstract=True):
  """Chooses how a tree over labels is built."""

  def check_labels(self, space: LabelSpace) -> None:
    """Checks before training that labels can form a tree of this kind.

    Args:
      space: the labels.

    Raises:
      ConfigError: the config does not suit these labels.
      DataError: the labels do not form a tree.
    """

  @abc.abstractmethod
  def build(self, data: TreeData) -> LabelTree:
    """Builds the tree over the trained labels.

    Raises:
      ConfigError: the config does not suit the labels (see check_labels).
      DataError: the labels do not form a tree.
    """
