"""XR-Transformer's ranker against PECOS, on the same joined features.

The features are the rows of Bibtex, and a dense vector, each of length 1. The
vectors are a random projection of the rows, with noise. Both libraries get the
same clusters of labels.
"""

import os
import pathlib
import subprocess

import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.label_features import pifa
from xjax.data.label_trees.label_tree import TreeInputs
from xjax.models.linear.classifiers import PartFiles
from xjax.models.linear.dual import Loss, Solver
from xjax.models.trees.joined_vectors import join
from xjax.models.trees.training import fit_tree
from xjax.models.trees.tree_search import Link, TreeSearch, matched_leaves

pytestmark = [pytest.mark.peers, pytest.mark.real_data]

HERE = pathlib.Path(__file__).parent
K, BEAM, DIM = 5, 4, 64


def read(path):
  """Rows of length 1, and gold labels."""
  lines = path.read_text().splitlines()[1:]
  gold, rows, columns = [], [], []
  for number, line in enumerate(lines):
    labels, *features = line.split(' ')
    gold.append(sorted(int(x) for x in labels.split(',') if x))
    columns += [int(pair.partition(':')[0]) for pair in features]
    rows += [number] * len(features)
  matrix = sparse.csr_array(
    (np.ones(len(rows), np.float32), (rows, columns)), (len(lines), 1836)
  )
  lengths = np.sqrt(np.maximum(np.diff(matrix.indptr), 1)).astype(np.float32)
  matrix.data /= np.repeat(lengths, np.diff(matrix.indptr))
  return matrix, Ragged.of(gold)


@pytest.fixture(scope='module')
def problem(data_dir):
  """Training and test features, training and test gold, and the tree."""
  rng = np.random.default_rng(0)
  projection = rng.normal(size=(1836, DIM)).astype(np.float32)
  joined, golds = [], []
  for name in ('train', 'test'):
    rows, gold = read(data_dir / 'bibtex' / f'{name}.txt')
    dense = rows @ projection + rng.normal(size=(rows.shape[0], DIM))
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    joined.append(join(rows, dense.astype(np.float32)))
    golds.append(gold)
  config = ClusterTree(arity=16, max_leaf=16)
  tree = config.of_features(pifa(joined[0], golds[0], 159), seed=0)
  return *joined, *golds, tree


@pytest.fixture(scope='module')
def pecos(problem, tmp_path_factory):
  """The labels that PECOS lists, by its way to choose negatives."""
  train, test, gold, _, tree = problem
  folder = tmp_path_factory.mktemp('pecos')
  ones = np.ones(len(gold.values), np.float32)
  labels = sparse.csr_array((ones, gold.values, gold.indptr), (len(gold), 159))
  arrays = {'k': K, 'beam': BEAM, 'parent': np.zeros(159, np.int64)}
  leaves = np.flatnonzero(tree.degree == 0)
  arrays['parent'][tree.label[leaves]] = tree.parent[leaves] - 1
  for name, matrix in (('train', train), ('test', test), ('gold', labels)):
    for part in ('data', 'indices', 'indptr', 'shape'):
      arrays[f'{name}/{part}'] = np.asarray(getattr(matrix, part))
  np.savez(folder / 'in.npz', **arrays)
  python = pathlib.Path(os.environ['XJAX_PEERS_DIR']) / 'bin' / 'python'
  script, paths = (
    HERE / 'ranker_peer.py',
    (folder / 'in.npz', folder / 'out.npz'),
  )
  subprocess.run([python, script, *paths], check=True, timeout=300)
  return np.load(paths[1])


def rp(ids, gold):
  shares = [
    np.isin(best, labels).sum() / min(K, len(labels))
    for best, labels in zip(ids, gold)
    if len(labels)
  ]
  return np.mean(shares)


@pytest.mark.parametrize('scheme', ['tfn', 'tfn+man'])
def test_the_ranker_is_as_good_as_that_of_pecos(
  scheme, problem, pecos, tmp_path
):
  train, test, gold, test_gold, tree = problem

  def matcher(tree, weights):
    search = TreeSearch(tree, weights, Link.L3_HINGE)
    return matched_leaves(train, search, BEAM, 2)

  weights = fit_tree(
    TreeInputs(None, gold, train, workers=2),
    tree,
    Solver(Loss.SQUARED_HINGE, c=1.0, eps=0.1, max_epochs=100),
    PartFiles(tmp_path),
    lambda: None,
    matcher if scheme != 'tfn' else None,
  )
  ids = TreeSearch(tree, weights, Link.L3_HINGE).beam(test, K, BEAM).ids
  ours, theirs = rp(ids, test_gold), rp(pecos[scheme], test_gold)
  print(f'{scheme}: RP@5 {ours:.4f}, PECOS {theirs:.4f}')
  assert ours == pytest.approx(theirs, abs=0.003)
  assert ours > 0.5
