"""What a kind of label tree is: a config that builds the tree."""

import abc
from collections.abc import Callable, Sequence
import dataclasses

from scipy import sparse

from xjax.core.config_part import ConfigPart
from xjax.core.types import Ragged
from xjax.data.schema import Document, LabelSpace
from xjax.score.trees.label_tree import LabelTree


@dataclasses.dataclass(frozen=True, eq=False)
class TreeData:
  """What a tree is built from.

  Attributes:
    space: the labels; the tree is over the trained ones.
    gold: N rows of trained labels, of the documents of train.
    rows: float32 [N, D], features of these documents.
    documents: N of them.
    featurise: makes features of texts, [texts, D]; None: there are no texts.
    seed: decides what is drawn.
    workers: threads; they decide nothing.
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
  """Which tree there is over the labels."""

  def check_labels(self, space: LabelSpace) -> None:
    """Refuses labels that make no such tree, before anything is trained.

    Raises:
      ConfigError, DataError: that is so.
    """

  @abc.abstractmethod
  def build(self, data: TreeData) -> LabelTree:
    """The tree over the trained labels.

    Raises:
      ConfigError, DataError: as check_labels.
    """
