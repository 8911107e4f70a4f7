"""A label tree and its classifiers in a file."""

import os

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.score.linear.block_weights import BlockWeights
from xjax.score.trees.label_tree import LabelTree

_TREE, _WEIGHTS = 'tree', 'weights'


def save_tree(
  path: str | os.PathLike, tree: LabelTree, weights: BlockWeights
) -> None:
  """Writes a packed .npz file that load_tree reads as the same.

  Raises:
    WriteError: it cannot be written.
  """
  parts = {_TREE: tree.arrays(), _WEIGHTS: weights.arrays()}
  arrays = {
    f'{part}/{name}': array
    for part, given in parts.items()
    for name, array in given.items()
  }
  write_npz(path, arrays, packed=True)


def load_tree(path: str | os.PathLike) -> tuple[LabelTree, BlockWeights]:
  """Reads what save_tree wrote.

  Raises:
    DataError: the file is absent or damaged.
  """
  arrays = Arrays.read(path)
  tree = LabelTree.take(arrays, _TREE)
  weights = BlockWeights.take(arrays, _WEIGHTS, tree.columns)
  arrays.finish()
  return tree, weights
