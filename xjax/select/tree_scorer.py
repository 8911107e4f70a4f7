"""Label trees as the scorer that evaluation and prediction know."""

from collections.abc import Sequence
import concurrent.futures
import dataclasses
from typing import Self

import numpy as np
from scipy import sparse

from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind
from xjax.data.batches.sparse import batch_rows
from xjax.select.tree_search import Found, Link, Squash, TreeSearch

_DEEPER = 4  # times k, what each tree of an ensemble lists


class TreeScorer:
  """Top-k of label trees over sparse features (a core.types.Scorer).

  The score of several trees is the mean of the exponentials of their scores
  (combined).

  Attributes:
    score_kind: LOGIT of probabilistic trees and of logistic one-vs-all, else
      MARGIN.
    n_labels: labels of the trees.
    assigned_above: of margins, the score of a label whose own classifier says
      0, below nodes that are sure; else None.
    selected_by: as of core.types.Scorer.
  """

  def __init__(
    self,
    searches: Sequence[TreeSearch],
    kind: ScoreKind,
    *,
    beam: int,
    exact: bool,
    workers: int,
  ):
    """Prepares nothing.

    Args:
      searches: of one tree or more, of the same link.
      kind: of scores.
      beam: nodes of a depth that are opened, unless exact.
      exact: whether instead all that may have one of the best labels is.
      workers: threads that share a batch's documents.
    """
    self._searches = searches
    self._beam, self._exact = beam, exact
    self.selected_by = f'beam={beam}'
    if exact:
      # With several trees, the best labels of each are put together.
      several = len(searches) > 1
      self.selected_by = f'trees={len(searches)}' if several else 'exact'
    self._pool = concurrent.futures.ThreadPoolExecutor(workers)
    self._workers = workers
    self._link = searches[0].link
    self.score_kind = kind
    self.n_labels = searches[0].tree.n_labels
    if kind is ScoreKind.LOGIT:
      self.assigned_above = None
    else:
      self.assigned_above = -1.0 if self._link is Link.L3_HINGE else 0.0

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[np.ndarray, np.ndarray]:
    """As core.types.Scorer; each slice is a search of its own.

    A label has the same score in every list of a document. Lists of a beam may
    be short: labels that the beam did not come to are not in them.
    """
    rows = batch_rows(batch, self._searches[0].weights.n_features)
    if np.ndim(allowed) == 2:
      lists = [
        self._lists(rows[[i]], k, weights, slices, allowed[i], sigmoid)
        for i in range(rows.shape[0])
      ]
      ids, scores = (np.concatenate(x, axis=1) for x in zip(*lists))
      return ids, scores
    return self._lists(rows, k, weights, slices, allowed, sigmoid)

  def _lists(
    self,
    rows: sparse.csr_array,
    k: int,
    weights: np.ndarray | None,
    slices: Sequence[np.ndarray],
    allowed: np.ndarray | None,
    sigmoid: tuple[float, float],
  ) -> tuple[np.ndarray, np.ndarray]:
    log_weights_L = None
    if weights is not None:
      with np.errstate(divide='ignore'):  # log 0: never selected
        log_weights_L = np.log(weights[: self.n_labels].astype(np.float64))
    if allowed is not None:
      log_weights_L = self._only(log_weights_L, allowed)
    squash = self._squash(sigmoid) if weights is not None else None
    logs = [
      log_weights_L,
      *(self._only(log_weights_L, each) for each in slices),
    ]
    found = self._found(rows, k, logs, squash)
    ids_GBK = np.stack([each.ids for each in found])
    keys_GBK = np.stack([each.keys for each in found])
    if weights is None and self._link is Link.SIGMOID:
      keys_GBK = _logits(keys_GBK)
    return ids_GBK, keys_GBK.astype(np.float32)

  def _only(
    self, log_weights_L: np.ndarray | None, mask: np.ndarray
  ) -> np.ndarray:
    kept = 0.0 if log_weights_L is None else log_weights_L
    return np.where(mask[: self.n_labels], kept, -np.inf)

  def _squash(self, sigmoid: tuple[float, float]) -> Squash | None:
    """Scores of probabilistic trees are log probabilities already."""
    if self._link is Link.SIGMOID:
      return None
    return Squash(
      *(sigmoid if self.score_kind is ScoreKind.MARGIN else AS_LOGITS)
    )

  def _found(
    self,
    rows: sparse.csr_array,
    k: int,
    logs: Sequence[np.ndarray | None],
    squash: Squash | None,
  ) -> list[Found]:
    """The lists for each of several arrays of log weights."""
    depth = k if len(self._searches) == 1 else _DEEPER * k
    trees = [
      self._search(each, rows, depth, logs, squash) for each in self._searches
    ]
    if len(trees) == 1:
      return trees[0]
    return combined(list(zip(*trees)), k, self.n_labels, logs, squash)

  def _search(
    self,
    search: TreeSearch,
    rows: sparse.csr_array,
    k: int,
    logs: Sequence[np.ndarray | None],
    squash: Squash | None,
  ) -> list[Found]:
    """The lists of one tree, by workers that share the documents."""
    width = None if self._exact else self._beam
    bounds = np.linspace(0, rows.shape[0], self._workers + 1).astype(int)
    done = [
      self._pool.submit(search.lists, rows[start:end], k, logs, squash, width)
      for start, end in zip(bounds, bounds[1:])
      if start < end
    ]
    return [Found.joined(parts) for parts in zip(*(x.result() for x in done))]


def combined(
  lists: Sequence[Sequence[Found]],
  k: int,
  n_labels: int,
  logs: Sequence[np.ndarray | None],
  squash: Squash | None,
) -> list[Found]:
  """The k best labels by the mean of the exponentials of trees' scores.

  A label that a tree does not list has an exponential of 0 there. The mean is
  over the first lists where any of these has the label, so that it does not
  depend on what else was searched; else over all other lists of the tree. So a
  label has one score for each document.

  Args:
    lists: for each array of log weights, what each tree listed for the same N
      documents.
    k: length of the combined lists.
    n_labels: L.
    logs: float64 [L], added to the logarithm of the mean; None: 0.
    squash: what is done to that logarithm before.

  Returns:
    Lists for each array of log weights.
  """
  first, *others = lists
  scores = _Scores.of([[each] for each in first], n_labels)
  best = [scores.best(len(first[0].ids), k, logs[0], squash)]
  if others:
    scores = scores.and_others(_Scores.of(list(zip(*others)), n_labels))
    size = len(first[0].ids)
    best += [scores.best(size, k, each, squash) for each in logs[1:]]
  for one, of_trees in zip(best, lists, strict=True):
    one.opened[:] = sum(each.opened for each in of_trees)
  return best


@dataclasses.dataclass(frozen=True, eq=False)
class _Scores:
  """Logarithms of the means over trees.

  Attributes:
    cells: int64 [M], document times n_labels plus label, ascending or not.
    means: float64 [M].
    n_labels: L.
  """

  cells: np.ndarray
  means: np.ndarray
  n_labels: int

  @classmethod
  def of(cls, trees: Sequence[Sequence[Found]], n_labels: int) -> Self:
    """The scores of the labels in any of the lists that each tree has."""
    of_trees = [_cells(each, n_labels) for each in trees]
    cells, listed = (np.concatenate(each) for each in zip(*of_trees))
    cells, which = np.unique(cells, return_inverse=True)
    # Beside the best of a label's scores: their exponentials may all be 0.
    best_score = np.full(len(cells), -np.inf)
    np.maximum.at(best_score, which, listed)
    sums = np.bincount(which, np.exp(listed - best_score[which]), len(cells))
    return cls(cells, best_score + np.log(sums / len(trees)), n_labels)

  def and_others(self, others: '_Scores') -> '_Scores':
    """With the scores of labels that have none here."""
    new = ~np.isin(others.cells, self.cells)
    return dataclasses.replace(
      self,
      cells=np.append(self.cells, others.cells[new]),
      means=np.append(self.means, others.means[new]),
    )

  def best(
    self,
    n: int,
    k: int,
    log_weights_L: np.ndarray | None,
    squash: Squash | None,
  ) -> Found:
    """The best labels of n documents."""
    document, label = np.divmod(self.cells, self.n_labels)
    keys = squash(self.means) if squash else self.means
    if log_weights_L is not None:
      keys = log_weights_L[label] + keys
    order = np.lexsort((label, -keys, document))
    order = order[keys[order] > -np.inf]
    document = document[order]
    rank = np.arange(len(order)) - np.searchsorted(document, document)
    top = rank < k
    order, at = order[top], (document[top], rank[top])
    found = Found.none(n, k)
    found.ids[at], found.keys[at] = label[order], keys[order]
    found.scores[at] = self.means[order]
    return found


def _cells(
  lists: Sequence[Found], n_labels: int
) -> tuple[np.ndarray, np.ndarray]:
  """The cells of _Scores in any of a tree's lists, each once, and scores."""
  ids = np.concatenate([each.ids for each in lists], axis=1)
  scores = np.concatenate([each.scores for each in lists], axis=1)
  document, place = np.nonzero(ids != PAD)
  cells = document * np.int64(n_labels) + ids[document, place]
  cells, at = np.unique(cells, return_index=True)
  return cells, scores[document[at], place[at]]


def _logits(logs: np.ndarray) -> np.ndarray:
  """Logits of probabilities of such logarithms; of -inf -inf."""
  # float64 has no logarithm of a probability nearer to 1 than this.
  logs = np.minimum(logs, -1e-300)
  return logs - np.log(-np.expm1(logs))
