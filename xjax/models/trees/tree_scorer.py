"""Ranks labels with label trees and linear models."""

from collections.abc import Callable, Sequence
import dataclasses

from jaxtyping import Float64, Int32, Int64
import numpy as np
from scipy import sparse

from xjax.core.processes.forks import threads
from xjax.core.ranking import Lists, Query, best_cells, listed_cells
from xjax.core.types import AS_LOGITS, ScoreKind
from xjax.data.documents import Documents
from xjax.models.features import FeatureScorer, Featuriser
from xjax.models.trees.tree_search import (
  Link,
  LogSigmoid,
  SearchResult,
  TreeSearch,
)

_DEEPER = 4  # each tree of an ensemble lists _DEEPER * k labels


class TreeScorer(FeatureScorer):
  """Ranks labels with label trees over sparse features.

  With several trees, the score is the logarithm of the mean of the exponentials
  of the trees' scores (combine_trees). Scores are logits for probabilistic
  trees and logistic one-vs-all, else margins. For margins, assigned_above is
  the score of a label if the label's own classifier gives 0 and the nodes above
  the label add 0 to the score (see tree_search.Link).
  """

  def __init__(
    self,
    searches: Sequence[TreeSearch],  # all with the same link
    kind: ScoreKind,
    featuriser: Featuriser,
    *,
    beam: int,  # nodes to open at each depth; ignored if exact
    exact: bool,  # whether to open all nodes that may have one of the best
    workers: int,  # threads that share a block
    block: int,  # documents that are ranked at a time
  ):
    super().__init__(featuriser, block)
    self._searches = searches
    self._beam, self._exact = beam, exact
    self.selected_by = f'beam={beam}'
    if exact:
      # With several trees, the result is not exact, because only the labels in
      # the trees' lists are combined.
      several = len(searches) > 1
      self.selected_by = f'trees={len(searches)}' if several else 'exact'
    self._workers = workers
    self._link = searches[0].link
    self.score_kind = kind
    self.n_labels = searches[0].tree.n_labels
    if kind is not ScoreKind.LOGIT:
      self.assigned_above = -1.0 if self._link is Link.L3_HINGE else 0.0

  def rank_block(self, documents: Documents, query: Query) -> Lists:
    """Returns the lists of a block.

    Each slice has a separate search. Lists of a beam search may be short, since
    labels that the beam did not reach are missing.
    """
    if not len(documents):
      return Lists.none(query.n_lists, 0, query.k)
    rows = self.featuriser(documents)
    return Lists(*by_filter(query, rows.shape[0], self._lists, rows))

  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> Float64[np.ndarray, 'D K']:
    """Returns the weights of features in labels, averaged over the trees."""
    parts = [s.feature_weights(features, labels) for s in self._searches]
    return np.mean(parts, axis=0)

  def _lists(
    self, query: Query, rows: sparse.csr_array
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids_GBK and scores_GBK. `allowed` has one axis, or is None."""
    logs, squash, k = log_weights(query), self.squash(query), query.k
    # A label's mean needs its score in each tree, also where it is not among
    # the k best.
    depth = k if len(self._searches) == 1 else _DEEPER * k
    trees = [
      self._search_tree(search, rows, depth, logs, squash)
      for search in self._searches
    ]
    if len(trees) == 1:
      lists = [(result.ids, result.keys) for result in trees[0]]
    else:
      found = list(zip(*trees))
      lists = combine_trees(found, k, self.n_labels, logs, squash)
    ids_GBK, keys_GBK = (np.stack(arrays) for arrays in zip(*lists))
    if query.weights is None and self._link is Link.SIGMOID:
      keys_GBK = _logits(keys_GBK)
    return ids_GBK, keys_GBK.astype(np.float32)

  def squash(self, query: Query) -> LogSigmoid | None:
    """Returns what turns scores into log probabilities, if they must be."""
    if query.weights is None or self._link is Link.SIGMOID:
      return None
    is_margin = self.score_kind is ScoreKind.MARGIN
    return LogSigmoid(*(query.weights.sigmoid if is_margin else AS_LOGITS))

  def _search_tree(
    self,
    search: TreeSearch,
    rows: sparse.csr_array,
    k: int,
    logs: Sequence[np.ndarray | None],
    squash: LogSigmoid | None,
  ) -> list[SearchResult]:
    width = None if self._exact else self._beam
    # Documents are independent, so the number of threads changes no list.
    bounds = np.linspace(0, rows.shape[0], self._workers + 1).astype(int)
    pool = threads(self._workers)
    futures = [
      pool.submit(search.lists, rows[start:end], k, logs, squash, width)
      for start, end in zip(bounds, bounds[1:])
      if start < end
    ]
    parts = zip(*(future.result() for future in futures))
    return [SearchResult.concatenate(part) for part in parts]


def by_filter(
  query: Query,
  n: int,  # documents
  rank: Callable[..., tuple[np.ndarray, np.ndarray]],
  *arrays: np.ndarray | sparse.csr_array,  # [N, ...], given to `rank`
) -> tuple[np.ndarray, np.ndarray]:
  """Ranks all documents at once, or one by one if each has its own filter."""
  if np.ndim(query.allowed) < 2:
    return rank(query, *arrays)
  # Rows and filters of a document are cut out together; the tree search has one
  # filter per call.
  parts = [
    rank(
      dataclasses.replace(query, allowed=query.allowed[i]),
      *(x[i : i + 1] for x in arrays),
    )
    for i in range(n)
  ]
  ids, scores = (np.concatenate(x, axis=1) for x in zip(*parts))
  return ids, scores


def log_weights(query: Query) -> list[Float64[np.ndarray, ' L'] | None]:
  """Returns the log weights of labels for each list, -inf outside its mask."""
  logs_L = None
  if query.weights is not None:
    with np.errstate(divide='ignore'):  # weight 0: never selected
      logs_L = np.log(np.asarray(query.weights.values, np.float64))
  if query.allowed is not None:
    logs_L = _only(logs_L, query.allowed)
  return [logs_L, *(_only(logs_L, mask_L) for mask_L in query.slices)]


def _only(logs_L: np.ndarray | None, mask_L: np.ndarray) -> np.ndarray:
  return np.where(mask_L, 0.0 if logs_L is None else logs_L, -np.inf)


def combine_trees(
  lists: Sequence[Sequence[SearchResult]],  # by logs, and then by tree
  k: int,
  n_labels: int,
  logs: Sequence[Float64[np.ndarray, ' L'] | None],  # added to combined scores
  squash: LogSigmoid | None,  # applied to combined scores before logs are added
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Combines the results of several trees into lists of the k best labels.

  The ids and the float64 keys of each list are returned.

  The combined score of a label is the logarithm of the mean over trees of
  exp(score). A tree that does not list the label adds 0 to the mean. There is a
  search for each array of log weights, but a label has only one combined score
  for a document: from the first search if a tree lists the label there, else
  from all other searches.
  """
  first, *others = lists
  cells, means = _mean_scores([[result] for result in first], n_labels)
  n = len(first[0].ids)
  best = [_best(cells, means, logs[0], squash, n, n_labels, k)]
  if others:
    more, more_means = _mean_scores(list(zip(*others)), n_labels)
    new = ~np.isin(more, cells, assume_unique=True)
    cells = np.append(cells, more[new])
    means = np.append(means, more_means[new])
  for log in logs[1:]:
    best.append(_best(cells, means, log, squash, n, n_labels, k))
  return best


def _mean_scores(
  trees: Sequence[Sequence[SearchResult]], n_labels: int
) -> tuple[Int64[np.ndarray, ' cells'], Float64[np.ndarray, ' cells']]:
  """Returns cells, document * n_labels + label, and their combined scores.

  Each tree has one or more results. If these list a label more than once,
  always with the same score, it counts once.
  """
  parts = []
  for results in trees:
    cells, at = listed_cells(np.stack([x.ids for x in results]), n_labels)
    parts.append((cells, np.stack([x.scores for x in results])[at]))
  cells, scores = (np.concatenate(arrays) for arrays in zip(*parts))
  cells, at = np.unique(cells, return_inverse=True)
  best = np.full(len(cells), -np.inf)
  np.maximum.at(best, at, scores)
  # The exponentials are relative to the best score of a label. If they were
  # not, all exponentials might be rounded to 0.
  sums = np.bincount(at, np.exp(scores - best[at]), len(cells))
  return cells, best + np.log(sums / len(trees))


def _best(
  cells: np.ndarray,
  means: np.ndarray,
  log_weights_L: np.ndarray | None,
  squash: LogSigmoid | None,
  n: int,
  n_labels: int,
  k: int,
) -> tuple[Int32[np.ndarray, 'N K'], Float64[np.ndarray, 'N K']]:
  keys = squash(means) if squash else means
  if log_weights_L is not None:
    keys = log_weights_L[cells % n_labels] + keys
  return best_cells(cells, keys, n_labels, n, k)


def _logits(logs: np.ndarray) -> np.ndarray:
  """Converts log probabilities to logits; -inf stays -inf."""
  # This avoids the logit +inf of a log probability of 0.
  logs = np.minimum(logs, -1e-300)
  # log p - log(1 - p), where expm1 keeps the digits of small p.
  return logs - np.log(-np.expm1(logs))
