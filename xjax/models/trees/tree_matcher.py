"""Finds the nodes that a trained part of a label tree predicts."""

import concurrent.futures
import dataclasses

from jaxtyping import Int32
import numpy as np
from scipy import sparse

from xjax.core.progress import Progress
from xjax.data.label_trees.label_tree import LabelTree
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.trees.tree_search import Link, TreeSearch

_DOCUMENTS = 4096  # documents that are searched at a time


@dataclasses.dataclass(frozen=True)
class TreeMatcher:
  """Finds the leaves that a tree predicts for training documents."""

  k: int  # leaves of a document, and the width of the beam
  link: Link

  def __call__(
    self,
    rows: sparse.csr_array,
    tree: LabelTree,
    weights: BlockWeights,
    workers: int,  # does not change the result
  ) -> Int32[np.ndarray, 'N K']:
    """Returns the labels of the k best leaves of each document, and PAD."""
    search = TreeSearch(tree, weights, self.link)
    n = rows.shape[0]

    def matched(start: int) -> np.ndarray:
      part = rows[start : start + _DOCUMENTS]
      return search.beam(part, self.k, self.k).ids

    bar = Progress('matching documents', n)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool, bar:
      parts = []
      for ids in pool.map(matched, range(0, n, _DOCUMENTS)):
        parts.append(ids)
        bar.update(len(ids))
    return np.concatenate(parts)
