"""Fits the first label rows of a level to the vectors of the level above.

This is the bootstrapping of XR-Transformer (Zhang et al. 2021, Section 3.3),
which makes few training steps enough.
"""

import pathlib
import tempfile

from jaxtyping import Float32
import numpy as np
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.dual import Solver
from xjax.models.linear.part_files import PartFiles
from xjax.models.linear.problem import Loss
from xjax.models.trees.training import ProposedClusters, fit_tree
from xjax.train.batches.candidates import TrainShortlists

# The public code of XR-Transformer has C = 100. With dense vectors, dual
# coordinate descent is then far from its end after 100 epochs.
_SOLVER = Solver(Loss.SQUARED_HINGE, c=1.0, eps=0.1, max_epochs=100)
_UNSEEN = -1.0  # the bias of labels without training documents


def fitted_rows(
  vectors_ND: Float32[np.ndarray, 'N D'],
  gold: Ragged,
  lists: TrainShortlists,  # of the documents, with clusters
  seed: int,
  workers: int,  # does not change the result
) -> tuple[Float32[np.ndarray, 'L D'], Float32[np.ndarray, ' L']]:
  """Returns label rows and biases of linear classifiers with the squared hinge.

  The classifier of a label learns from the documents that have a label of the
  same cluster, and from the documents for which this cluster is proposed. A
  label without documents has a row of zeros and the bias -1.
  """
  tree = LabelTree.of_clusters(lists.parent_L, len(lists.children))
  with tempfile.TemporaryDirectory(prefix='xjax_') as folder:
    weights = fit_tree(
      sparse.csr_array(vectors_ND),
      gold,
      tree,
      _SOLVER,
      seed=seed,
      threshold=0.0,
      workers=workers,
      parts=PartFiles(pathlib.Path(folder)),
      between=lambda: None,
      matcher=ProposedClusters(lists.nodes_NK) if lists.nodes_NK.size else None,
      above=False,
    )
  n_labels = len(lists.parent_L)
  counts_L = np.bincount(gold.values, minlength=n_labels)[:n_labels]
  kernel_LD = np.zeros((n_labels, vectors_ND.shape[1]), np.float32)
  bias_L = np.full(n_labels, _UNSEEN, np.float32)
  label_of = tree.label[1:]  # classifier c is that of node c + 1
  dense = _dense(weights)
  (used,) = np.nonzero((label_of != NO_LABEL) & (counts_L[label_of] > 0))
  kernel_LD[label_of[used]] = dense[used]
  bias_L[label_of[used]] = weights.bias[used]
  return kernel_LD, bias_L


def _dense(weights: BlockWeights) -> Float32[np.ndarray, 'classifiers D']:
  counts = np.diff(weights.entries)
  block = np.searchsorted(
    weights.rows, np.arange(len(weights.features)), side='right'
  )
  first = weights.columns[block - 1]
  dense = np.zeros((len(weights.bias), weights.n_features), np.float32)
  classifier = np.repeat(first, counts) + weights.places
  dense[classifier, np.repeat(weights.features, counts)] = weights.values
  return dense
