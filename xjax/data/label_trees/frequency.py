"""Divides labels into parts by their frequency (APLC, Ye et al. 2020)."""

from collections.abc import Iterator, Sequence
import dataclasses
from typing import Any

import numpy as np

from xjax.core.config_part import field
from xjax.core.errors import ConfigError
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree
from xjax.data.label_trees.tree_config import TREE_PATH, TreeConfig, TreeData
from xjax.data.schema import LabelSpace


@dataclasses.dataclass
class FrequencyTree(TreeConfig):
  """Builds a tree whose inner nodes are parts of equally frequent labels."""

  cutoffs: tuple[int, ...] = field(
    (),
    'Labels are sorted by falling training frequency, and are cut after each '
    'of these numbers of labels. If empty, labels are cut into halves.',
    tiny=(),
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from cutoff_faults(self.cutoffs, path)

  def check_labels(self, space: LabelSpace) -> None:
    part_starts(self.cutoffs, space.n_trained, TREE_PATH)

  def build(self, data: TreeData) -> LabelTree:
    self.check_labels(data.space)
    n_labels = data.space.n_trained
    starts = part_starts(self.cutoffs, n_labels, TREE_PATH)
    labels = by_frequency(data.space.train_counts[:n_labels])
    part = np.searchsorted(starts, np.arange(n_labels), side='right')
    parent = [-1, *[0] * len(starts), *part]
    label = [*[NO_LABEL] * (1 + len(starts)), *labels]
    return LabelTree.of(parent, label, n_labels)


def by_frequency(counts_L: np.ndarray) -> np.ndarray:
  """Returns the labels by falling frequency, int64 [L]; ties by index."""
  return np.argsort(-np.asarray(counts_L, np.int64), kind='stable')


def cutoff_faults(cutoffs: Sequence[int], path: str) -> Iterator[str]:
  """Yields a fault unless cutoffs ascend; `path` is that of their config."""
  if any(a >= b for a, b in zip((0, *cutoffs), cutoffs)):
    yield f'{path}.cutoffs={cutoffs}: must ascend, from at least 1'


def part_starts(
  cutoffs: Sequence[int], n_labels: int, path: str
) -> tuple[int, ...]:
  """Returns the number of labels before each part; the first number is 0.

  Without cutoffs, labels are cut into halves. If no labels are after the last
  cutoff, a ConfigError is raised.
  """
  if cutoffs and cutoffs[-1] >= n_labels:
    raise ConfigError(
      f'{path}.cutoffs={cutoffs}: each number must be less than the number of '
      f'labels, {n_labels}; leave cutoffs empty to cut the labels into halves'
    )
  half = () if n_labels < 2 else (-(-n_labels // 2),)
  return (0, *(cutoffs or half))
