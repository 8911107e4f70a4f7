"""Random trees with classifiers, and what they say by the definitions."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import sparse

from xjax.score.linear.block_weights import BlockWeights
from xjax.score.linear.classifiers import Classifiers
from xjax.score.trees.label_tree import NO_LABEL, LabelTree
from xjax.score.trees.links import Link

N_FEATURES = 30


@dataclasses.dataclass(frozen=True)
class Model:
  """A tree, its weights, and the same weights dense.

  Attributes:
    tree: over labels.
    weights: of its blocks.
    weights_DV: of each node but the root.
    bias_V: likewise.
  """

  tree: LabelTree
  weights: BlockWeights
  weights_DV: np.ndarray
  bias_V: np.ndarray

  def scores(self, row_D, link, squash=None):
    """(label, its score, squashed or not), of one document."""
    node_V = (row_D @ self.weights_DV + self.bias_V).tolist()
    score_V = [0.0]
    for node, above in enumerate(self.tree.parent[1:].tolist(), 1):
      score_V.append(score_V[above] + linked(node_V[node - 1], link))
    for node, label in enumerate(self.tree.label.tolist()):
      if label != NO_LABEL and node:
        score = score_V[node]
        if squash:
          shown = linked(squash.a * score + squash.b, Link.SIGMOID)
        yield label, score, shown if squash else score

  def best(self, row_D, link, k, log_weights_L=None, squash=None):
    """(ids, keys, scores) of the k best labels of a document."""
    if log_weights_L is None:
      log_weights_L = np.zeros(self.tree.n_labels)
    found = [
      (-float(log_weights_L[label] + shown), label, score)
      for label, score, shown in self.scores(row_D, link, squash)
      if log_weights_L[label] > -np.inf
    ]
    keys, ids, scores = zip(*sorted(found)[:k]) if found else ((), (), ())
    return list(ids), [-key for key in keys], list(scores)


def linked(z, link):
  match link:
    case Link.NONE:
      return z
    case Link.SIGMOID if z >= 0:
      return -math.log1p(math.exp(-z))
    case Link.SIGMOID:
      return z - math.log1p(math.exp(z))
    case Link.L3_HINGE:
      return -(max(0.0, 1 - z) ** 3)


def a_tree(rng, n_nodes):
  """Of any shape; nodes within may have labels, and some labels no node."""
  bend = rng.choice([0.3, 1.0, 3.0])  # from chains to stars
  above = [-1] + [int(i * rng.random() ** bend) for i in range(1, n_nodes)]
  has = (rng.random(n_nodes) < 0.3) | (
    np.bincount(above[1:], None, n_nodes) == 0
  )
  has[0] = False
  n_labels = has.sum() + rng.integers(3)
  label = np.full(n_nodes, NO_LABEL)
  label[has] = rng.permutation(n_labels)[: has.sum()]
  order = rng.permutation(n_nodes)  # node order[i] is given as node i
  number = np.append(np.argsort(order), -1)
  return LabelTree.of(number[np.asarray(above)[order]], label[order], n_labels)


def classified(rng, tree):
  """Weights of few bits: sums are not rounded, and ties are frequent."""
  shape = N_FEATURES, len(tree) - 1
  weights_DV = rng.integers(-8, 9, shape) / 8 * (rng.random(shape) < 0.2)
  bias_V = rng.integers(-4, 5, shape[1]) / 2
  made = Classifiers.pruned(weights_DV, bias_V, 0)
  weights = BlockWeights.of([made], tree.columns, made.weights.nnz)
  return Model(tree, weights, weights_DV, bias_V)


def some_rows(rng, n):
  dense_ND = rng.integers(1, 5, (n, N_FEATURES)) / 2
  dense_ND *= rng.random(dense_ND.shape) < 0.3
  return sparse.csr_array(dense_ND.astype(np.float32))


@pytest.fixture(scope='session')
def make_tree():
  """(rng, nodes) -> LabelTree."""
  return a_tree


@pytest.fixture(scope='session')
def make_model():
  """(rng, tree) -> Model."""
  return classified


@pytest.fixture(scope='session')
def make_rows():
  """(rng, documents) -> float32 [N, D]."""
  return some_rows
