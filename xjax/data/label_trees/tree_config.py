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
  """Holds the data that a tree over the trained labels is built from.

  Attributes:
    gold: N rows of trained labels, one row per training document.
    featurise: turns texts into features [texts, D], or is None if the data has
      no texts.
  """

  space: LabelSpace
  gold: Ragged
  rows: sparse.csr_array | None = None  # float32 [N, D], features of documents
  documents: Sequence[Document] = ()
  featurise: Callable[[Sequence[str]], sparse.csr_array] | None = None
  seed: int = 0
  workers: int = 1  # threads; the tree does not depend on them


@dataclasses.dataclass
class TreeConfig(ConfigPart, abstract=True):
  """Chooses how a tree over labels is built."""

  def check_labels(self, space: LabelSpace) -> None:
    """Checks before training that labels can form a tree of this kind.

    Raises:
      ConfigError: the config does not suit these labels.
      DataError: the labels do not form a tree.
    """

  @abc.abstractmethod
  def build(self, data: TreeData) -> LabelTree:
    """Builds the tree over the trained labels; raises as check_labels does."""
