"""Chooses the levels of clusters of labels that a neural model goes down."""

from collections.abc import Iterator
import dataclasses
from typing import Any

from xjax.core.config_part import ConfigPart, field
from xjax.core.errors import ConfigError
from xjax.data.config import TfidfConfig
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.label_tree import TREE_PATH, TreeConfig, TreeData
from xjax.data.label_trees.levels import LabelLevels


@dataclasses.dataclass
class LevelsConfig(ConfigPart):
  """Chooses a label tree, and the depths at which the tree is cut."""

  sizes: tuple[int, ...] = field(
    (64, 512),
    'Largest number of clusters of each level above the labels, ascending. For '
    'each number, the tree is cut at the depth with the most clusters among '
    'the depths with at most this number of clusters.',
  )
  tree: TreeConfig = field(ClusterTree, 'The tree over the labels.')
  tokens: TfidfConfig = field(
    TfidfConfig, 'The features of documents by which labels are clustered.'
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    sizes = self.sizes
    if min(sizes, default=1) < 1 or list(sizes) != sorted(set(sizes)):
      yield (
        f'{path}.sizes={sizes}: must be ascending numbers of clusters, each at '
        'least 1'
      )
    if config.data.sparse or config.data.tokens.dense:
      yield f'{path}: needs texts, whose TF-IDF features group the labels'

  def cut(self, data: TreeData, path: str) -> LabelLevels:
    """Builds the tree over labels and cuts it; a ConfigError has `path`."""
    try:
      tree = self.tree.build(data)
    except ConfigError as error:
      message = str(error).replace(TREE_PATH, f'{path}.tree')
      raise ConfigError(message) from error
    try:
      return LabelLevels.cut(tree, sizes=self.sizes)
    except ConfigError as error:
      raise ConfigError(f'{path}.sizes={self.sizes}: {error}') from error
