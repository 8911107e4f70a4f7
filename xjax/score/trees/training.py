"""The classifiers of a label tree, trained block by block; one-vs-all too."""

from collections.abc import Callable, Iterator, Sequence
import concurrent.futures
import dataclasses
import threading
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.config_part import AT_LEAST_1, POSITIVE, field
from xjax.core.errors import UserError
from xjax.core.progress import Progress
from xjax.core.types import Ragged
from xjax.score.linear.block_weights import BlockWeights
from xjax.score.linear.classifiers import Classifiers, bias_of_last
from xjax.score.linear.dual import WIDTH, Solver, Workspace, solve_block
from xjax.score.linear.part_files import PartFiles
from xjax.score.linear.problem import (
  OneVsAllProblem,
  SolverConfig,
  largest_norm,
)
from xjax.score.trees.complete import complete_tree
from xjax.score.trees.label_tree import LabelTree

_PART = 256  # classifiers of a part, about: what a killed run loses


_LIBLINEAR_ALONE = ('max_iter', 'batch_labels')


@dataclasses.dataclass
class Blocks(SolverConfig):
  """LIBLINEAR's method, for sixteen labels at once, on CPUs (dual.py)."""

  earlier_kind = 'liblinear'  # a solver that earlier runs could have

  eps: float = field(0.1, "LIBLINEAR's tolerance.", POSITIVE)
  max_epochs: int = field(100, 'Visits of every document, at most.', AT_LEAST_1)
  workers: int = field(2, 'Threads.', AT_LEAST_1, may_change=True)

  @classmethod
  def from_earlier(cls, fields: dict[str, Any]) -> dict[str, Any]:
    """Leaves out the settings that only LIBLINEAR itself had."""
    return {k: v for k, v in fields.items() if k not in _LIBLINEAR_ALONE}

  def fit(self, problem: OneVsAllProblem) -> BlockWeights:
    """As SolverConfig; all labels are children of one root."""
    n_labels = problem.n_labels
    return fit_tree(
      problem.rows,
      problem.gold,
      complete_tree(n_labels, max(2, n_labels)),
      Solver(problem.loss, problem.c, self.eps, self.max_epochs),
      seed=problem.seed,
      threshold=problem.threshold,
      workers=self.workers,
      parts=problem.parts,
      between=problem.between,
    )


@dataclasses.dataclass(frozen=True)
class _Task:
  """Some classifiers of one block.

  Attributes:
    parent: the node whose children they tell apart.
    first, last: the children.
  """

  parent: int
  first: int
  last: int


def fit_tree(
  rows: sparse.csr_array,
  gold: Ragged,
  tree: LabelTree,
  solver: Solver,
  *,
  seed: int,
  threshold: float,
  workers: int,
  parts: PartFiles,
  between: Callable[[], None],
) -> BlockWeights:
  """Trains a classifier of every node but the root.

  A node's classifier learns from the documents that are positive for its
  parent (of the root's children: all documents): its own are positive, those
  of its siblings alone are negative (teacher forcing). A node without documents
  scores less than all others do (Classifiers.with_last).

  Args:
    rows: float32 [N, D] with sorted indices.
    gold: N rows of labels; those that the tree lacks are left out.
    tree: over labels.
    solver: how.
    seed: of the order of documents; classifiers do not depend on workers.
    threshold: weights of a smaller size become 0.
    workers: threads.
    parts: where finished parts are kept, and taken from; their key need not
      tell of any of these arguments.
    between: called after each part; may raise.
  """
  parts = parts.of(rows, gold, tree, solver, seed, threshold)
  documents = _documents(gold, tree, rows.shape[0])
  local = threading.local()

  def run(task: _Task) -> Classifiers:
    if not hasattr(local, 'workspace'):
      local.workspace = Workspace(rows.shape[1])
    return _solve(
      rows, documents, task, solver, seed, threshold, local.workspace
    )

  names, lowest, n_weights, norm = [], [], 0, largest_norm(rows)
  shown = Progress('training nodes', len(tree) - 1)
  with concurrent.futures.ThreadPoolExecutor(workers) as pool, shown:
    for part in _parts(tree):
      names.append(f'nodes-{part[0].first}-{part[-1].last}')
      arrays = parts.load(names[-1])
      if arrays is None:
        made = Classifiers.join(_run_all(pool, run, part, documents))
        parts.save(names[-1], made.arrays())
        between()
      else:
        made = Classifiers.of_arrays(arrays)
      lowest.append(made.lowest_scores(norm))
      n_weights += made.weights.nnz
      shown.update(made.n_labels)
  whole = _whole_blocks(names, parts, tree.columns)
  with Progress('laying weights out'):
    weights = BlockWeights.of(whole, tree.columns, n_weights)
  unseen_C = documents.lengths[1:] == 0
  bias_C = bias_of_last(weights.bias, np.concatenate(lowest), unseen_C)
  return dataclasses.replace(weights, bias=bias_C)


def _whole_blocks(
  names: Sequence[str], parts: PartFiles, columns: np.ndarray
) -> Iterator[Classifiers]:
  """Yields saved parts, those of a block that is cut joined.

  Raises:
    UserError: a part has gone or was damaged since it was saved.
  """
  held, done = [], 0
  for name in names:
    arrays = parts.load(name)
    if arrays is None:
      raise UserError(f'{parts.folder}: {name} is gone or damaged; start again')
    held.append(Classifiers.of_arrays(arrays))
    done += held[-1].n_labels
    if done in columns:
      yield Classifiers.join(held)
      held = []


def _run_all(
  pool: concurrent.futures.Executor,
  run: Callable[[_Task], Classifiers],
  tasks: Sequence[_Task],
  documents: Ragged,
) -> list[Classifiers]:
  """In the order of tasks; those that take longest begin first."""
  sizes = [len(documents[task.parent]) for task in tasks]
  futures = {
    at: pool.submit(run, tasks[at])
    for at in np.argsort(np.negative(sizes), kind='stable').tolist()
  }
  return [futures[at].result() for at in range(len(tasks))]


def _parts(tree: LabelTree) -> Iterator[list[_Task]]:
  """All tasks in the order of nodes, in parts that end with a depth.

  A part has whole blocks, or some of a block that is longer than a part.
  """
  long, starts = tree.degree > _PART, set(tree.levels.tolist())
  part: list[_Task] = []
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


def _tasks(tree: LabelTree) -> Iterator[_Task]:
  for parent in tree.inner.tolist():
    last = int(tree.first_child[parent + 1])
    for first in range(int(tree.first_child[parent]), last, WIDTH):
      yield _Task(parent, first, min(first + WIDTH, last))


def _documents(gold: Ragged, tree: LabelTree, n: int) -> Ragged:
  """For each node the documents that are positive for it; the root has all."""
  labels, nodes = tree.positive()
  ones = np.ones
  above = sparse.csr_array(
    (ones(len(labels), np.int32), (labels, nodes)),
    (max(tree.n_labels, int(gold.values.max(initial=0)) + 1), len(tree)),
  )
  shape = (n, above.shape[0])
  given = (ones(len(gold.values), np.int32), gold.values, gold.indptr)
  positive = (sparse.csr_array(given, shape) @ above).tocsc()
  positive.sort_indices()
  counts = np.diff(positive.indptr).astype(np.int64)
  counts[0] = n
  indices = np.concatenate([np.arange(n), positive.indices])
  indptr = np.append(np.int64(0), np.cumsum(counts))
  return Ragged(indptr, indices.astype(np.int32))


def _solve(
  rows: sparse.csr_array,
  documents: Ragged,
  task: _Task,
  solver: Solver,
  seed: int,
  threshold: float,
  workspace: Workspace,
) -> Classifiers:
  learnt_from = documents[task.parent]
  width = task.last - task.first
  positive = np.zeros((len(learnt_from), width), bool)
  for column in range(width):
    own = documents[task.first + column]
    positive[np.searchsorted(learnt_from, own), column] = True
  order = np.random.SeedSequence([seed, task.first]).generate_state(1)[0]
  features, weights, bias = solve_block(
    rows, learnt_from, positive, solver, int(order), workspace
  )
  weights[:, ~positive.any(axis=0)] = 0
  made = Classifiers.from_dense(weights, bias, threshold)
  return made.renumber_features(features, rows.shape[1])
