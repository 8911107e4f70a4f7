"""Trains classifiers of label trees, and one-vs-all classifiers, on CPUs."""

from collections.abc import Callable, Iterator, Sequence
import concurrent.futures
import dataclasses
import threading

import numpy as np
from scipy import sparse

from xjax.core.errors import UserError
from xjax.core.progress import Progress
from xjax.core.types import PAD, Ragged, offsets_of
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree, TreeInputs
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import Classifiers, PartFiles, bias_of_last
from xjax.models.linear.dual import WIDTH, Solver, Workspace, solve_block

# A part has about this many classifiers. A killed run loses at most one part.
_PART = 256
_ROWS = 4096  # rows that are squared at a time

# A function (tree, weights) -> int [N, K], the leaves that a trained tree
# predicts for each training document, or PAD.
Matcher = Callable[[LabelTree, BlockWeights], np.ndarray]


def proposed_clusters(nodes_NK: np.ndarray) -> Matcher:
  """Returns what gives the proposed clusters of LabelTree.of_clusters.

  They are int32, PAD after the last cluster of a document.
  """
  # Node 0 is the root, and the clusters follow in their order.
  nodes = np.where(nodes_NK == PAD, PAD, nodes_NK + 1)
  return lambda tree, weights: nodes


@dataclasses.dataclass(frozen=True)
class _ClassifierGroup:
  """Describes a few classifiers of one block that are trained together."""

  parent: int  # whose children the classifiers distinguish
  first: int  # of these children
  last: int  # one more than the last of these children


def fit_tree(
  data: TreeInputs,  # with sorted indices; may have labels beyond the tree's
  tree: LabelTree,
  solver: Solver,
  parts: PartFiles,
  between: Callable[[], None],  # called after each part; may end training
  matcher: Matcher | None = None,
  above: bool = True,  # whether the nodes above the deepest ones are trained
) -> BlockWeights:
  """Trains a classifier for every node but the root, a block per inner node.

  A document is positive for a node if the document has the node's label, or a
  label below the node. A node's classifier is trained only on the documents
  that are positive for the node's parent (teacher forcing). The score of a node
  without positive documents is less than the scores of all other nodes.

  Args:
    matcher: finds the nodes that the trained part of the tree predicts for each
      document, among the parents of the deepest nodes. The deepest nodes then
      also learn from the documents for which their parent is predicted
      (matcher-aware negatives; Zhang et al. 2021, Section 3.2); None leaves
      these documents out.
  """
  rows, workers = data.rows, data.workers
  documents = _documents(data.gold, tree, rows.shape[0])
  seen_by = documents  # the documents from which a node's children learn
  # Another processor may cluster in another way: parts of other nodes.
  parts.begin(first_child=tree.first_child, label=tree.label)
  local = threading.local()

  def run(task: _ClassifierGroup) -> Classifiers:
    # A workspace is large, so each thread keeps one for all its tasks.
    if not hasattr(local, 'workspace'):
      local.workspace = Workspace(rows.shape[1])
    return _solve(data, documents, seen_by, task, solver, local.workspace)

  names, lowest, n_weights, norm = [], [], 0, _largest_norm(rows)
  deepest = int(tree.levels[-2])
  bar = Progress('training nodes', len(tree) - 1)
  with concurrent.futures.ThreadPoolExecutor(workers) as pool, bar:
    for part in _parts(tree):
      # All nodes above the deepest ones are trained now, so they can be
      # searched.
      if matcher and part[0].first == deepest > 1:
        upper = _tree_above(tree)
        weights = _laid_out(names, parts, upper, lowest, n_weights, documents)
        seen_by = _with_matched(documents, tree, matcher(upper, weights))
      names.append(f'nodes-{part[0].first}-{part[-1].last}')
      arrays = parts.load(names[-1])
      if arrays is None:
        if above or part[0].first >= deepest:
          trained = Classifiers.join(_run_all(pool, run, part, seen_by))
        else:
          size = part[-1].last - part[0].first
          trained = Classifiers.zeros(rows.shape[1], size)
        # Only files are kept, not classifiers: all of them at once would take
        # twice the memory of the finished model.
        parts.save(names[-1], trained.arrays())
        between()
      else:
        trained = Classifiers.of_arrays(arrays)
      # Also of parts from an earlier start, because the lowest score of all
      # nodes decides the bias of nodes without documents.
      lowest.append(trained.lowest_scores(norm))
      n_weights += trained.weights.nnz
      bar.update(trained.n_labels)
  return _laid_out(names, parts, tree, lowest, n_weights, documents)


def _laid_out(
  names: Sequence[str],
  parts: PartFiles,
  tree: LabelTree,
  lowest: Sequence[np.ndarray],  # score of each node but the root, by part
  n_weights: int,  # of all classifiers
  documents: Ragged,  # the positive ones of each node, or of more nodes
) -> BlockWeights:
  """Returns the classifiers of saved parts in the layout of a search."""
  whole = _whole_blocks(names, parts, tree.columns)
  with Progress('laying out weights'):
    weights = BlockWeights.of(whole, tree.columns, n_weights)
  unseen_C = documents.lengths[1 : len(tree)] == 0
  bias_C = bias_of_last(weights.bias, np.concatenate(lowest), unseen_C)
  return dataclasses.replace(weights, bias=bias_C)


def _tree_above(tree: LabelTree) -> LabelTree:
  n = int(tree.levels[-2])
  first_child = np.minimum(tree.first_child[: n + 1], n)
  nodes = np.arange(n, dtype=np.int32)
  label = np.where(np.diff(first_child) == 0, nodes, NO_LABEL)
  return LabelTree(first_child, label.astype(np.int32), n)


def _with_matched(
  documents: Ragged, tree: LabelTree, nodes_NK: np.ndarray
) -> Ragged:
  """Adds documents to the nodes in nodes_NK that are predicted for them.

  Documents of a node ascend, also in the result. Nodes may be PAD.
  """
  document, place = np.nonzero(nodes_NK != PAD)
  n = len(nodes_NK)
  matched = nodes_NK[document, place] * np.int64(n) + document
  # Sorted by node and then by document, each pair once.
  cells = np.unique(np.concatenate([documents.cells(n), matched]))
  return Ragged.of_cells(cells, len(tree), n)


def _whole_blocks(
  names: Sequence[str], parts: PartFiles, columns: np.ndarray
) -> Iterator[Classifiers]:
  """Yields classifiers of complete blocks, joining parts of long blocks."""
  pending, done = [], 0
  for name in names:
    arrays = parts.load(name)
    if arrays is None:
      raise UserError(
        f'{parts.folder}: part {name} was removed or damaged during training; '
        'start the same command again'
      )
    pending.append(Classifiers.of_arrays(arrays))
    done += pending[-1].n_labels
    if done in columns:
      yield Classifiers.join(pending)
      pending = []


def _run_all(
  pool: concurrent.futures.Executor,
  run: Callable[[_ClassifierGroup], Classifiers],
  tasks: Sequence[_ClassifierGroup],
  seen_by: Ragged,
) -> list[Classifiers]:
  """Runs tasks, largest first, and returns results in the order of `tasks`."""
  # Largest first, so that no thread starts a long task when all others are
  # done.
  sizes = [len(seen_by[task.parent]) for task in tasks]
  futures = {
    at: pool.submit(run, tasks[at])
    for at in np.argsort(np.negative(sizes), kind='stable').tolist()
  }
  return [futures[at].result() for at in range(len(tasks))]


def _parts(tree: LabelTree) -> Iterator[list[_ClassifierGroup]]:
  """Yields all tasks, grouped into parts, in the order of nodes.

  A block of at most _PART classifiers is in one part, together with other such
  blocks of the same depth. A longer block is divided among several parts. These
  parts contain no other block.
  """
  long, starts = tree.degree > _PART, set(tree.levels.tolist())
  part: list[_ClassifierGroup] = []
  for task in _tasks(tree):
    if part:
      full = part[-1].last - part[0].first >= _PART
      if task.parent == part[-1].parent:
        cut = full and long[task.parent]
      else:
        cut = full or long[task.parent] or long[part[-1].parent]
      if cut or task.first in starts:
        yield part
        part = []
    part.append(task)
  if part:
    yield part


def _tasks(tree: LabelTree) -> Iterator[_ClassifierGroup]:
  for parent in tree.inner.tolist():
    last = int(tree.first_child[parent + 1])
    for first in range(int(tree.first_child[parent]), last, WIDTH):
      yield _ClassifierGroup(parent, first, min(first + WIDTH, last))


def _documents(gold: Ragged, tree: LabelTree, n: int) -> Ragged:
  labels, nodes = tree.positive()
  ones = np.ones
  # Labels [label, node], so that documents of nodes are a product of two sparse
  # matrices.
  above = sparse.csr_array(
    (ones(len(labels), np.int32), (labels, nodes)),
    (max(tree.n_labels, int(gold.values.max(initial=0)) + 1), len(tree)),
  )
  shape = (n, above.shape[0])
  labels_of_documents = sparse.csr_array(
    (ones(len(gold.values), np.int32), gold.values, gold.indptr), shape
  )
  positive = (labels_of_documents @ above).tocsc()
  positive.sort_indices()
  counts = np.diff(positive.indptr).astype(np.int64)
  counts[0] = n  # all documents are positive for the root
  indices = np.concatenate([np.arange(n), positive.indices])
  return Ragged(offsets_of(counts), indices.astype(np.int32))


def _solve(
  data: TreeInputs,
  documents: Ragged,
  seen_by: Ragged,
  task: _ClassifierGroup,
  solver: Solver,
  workspace: Workspace,
) -> Classifiers:
  of_parent = seen_by[task.parent]
  width = task.last - task.first
  positive = np.zeros((len(of_parent), width), bool)
  for column in range(width):
    of_child = documents[task.first + column]
    # Documents of a child are among those of its parent, and both ascend.
    positive[np.searchsorted(of_parent, of_child), column] = True
  # The seed of a task depends on its node, not on the thread or on what was
  # trained before. So a resumed run gets the same weights.
  seeds = np.random.SeedSequence([data.seed, task.first])
  order = int(seeds.generate_state(1)[0])
  features, weights, bias = solve_block(
    data.rows, of_parent, positive, solver, order, workspace
  )
  # Nodes without documents get their bias when all scores are known.
  weights[:, ~positive.any(axis=0)] = 0
  classifiers = Classifiers.from_dense(weights, bias, solver.threshold)
  return classifiers.renumber_features(features, data.rows.shape[1])


def _largest_norm(rows: sparse.csr_array) -> float:
  largest = 0.0
  for first in range(0, rows.shape[0], _ROWS):
    # In blocks, because a float64 copy of all rows would double the memory.
    part = rows[first : first + _ROWS].astype(np.float64)
    part.data **= 2
    largest = max(largest, float(part.sum(axis=1).max(initial=0)))
  return largest**0.5
