"""Turns a corpus into one whose labels are clusters of the labels."""

import dataclasses

import numpy as np

from xjax.core.types import PAD, Ragged
from xjax.data.formats.draft import TRAIN
from xjax.data.schema import Corpus, Label, Labels, LabelSpace
from xjax.score.trees.levels import LabelLevels


def level_corpus(
  corpus: Corpus, levels: LabelLevels, costs: Ragged | None = None
) -> tuple[Corpus, Ragged]:
  """Returns the corpus of the level above the labels.

  A document has a cluster if it has a label of the cluster.

  Args:
    corpus: a corpus.
    levels: at least two levels. The last level has the labels of the corpus.
    costs: how much each gold label of the split train counts. None stands for
      1.

  Returns:
    The same documents with clusters as labels, and how much each gold cluster
    of the split train counts, which is the sum over its gold labels.
  """
  parent_L, size = levels.parents[-1], levels.sizes[-2]
  splits, sums = {}, None
  for name, split in corpus.splits.items():
    own = costs if name == TRAIN else None
    gold, counts = _above(split.gold, parent_L, own)
    splits[name] = dataclasses.replace(split, gold=gold)
    if name == TRAIN:
      sums = counts
  train = splits[TRAIN].gold
  counts = np.bincount(train.values, minlength=size).astype(np.int32)
  names = (f'level {len(levels) - 2}, cluster {i}' for i in range(size))
  labels = Labels.of(Label(name, name) for name in names)
  space = LabelSpace(labels, counts, len(train), size)
  changed = dataclasses.replace(corpus, label_space=space, splits=splits)
  return changed, sums


def _above(
  gold: Ragged, parent_L: np.ndarray, costs: Ragged | None
) -> tuple[Ragged, Ragged]:
  """Returns the clusters of gold labels, and the sums of the labels' costs.

  Labels that are not in a cluster are left out.
  """
  document = np.repeat(np.arange(len(gold)), gold.lengths)
  inside = gold.values < len(parent_L)
  cluster = np.where(inside, parent_L[np.where(inside, gold.values, 0)], PAD)
  cost = np.ones(len(cluster)) if costs is None else costs.values
  real = cluster != PAD
  size = np.int64(max(1, parent_L.max(initial=0) + 1))
  keys, which = np.unique(
    document[real] * size + cluster[real], return_inverse=True
  )
  document, cluster = np.divmod(keys, size)
  indptr = np.searchsorted(document, np.arange(len(gold) + 1))
  sums = np.bincount(which, cost[real], len(keys)).astype(np.int32)
  starts = indptr.astype(np.int64)
  return Ragged(starts, cluster.astype(np.int32)), Ragged(starts, sums)
