"""Ranks labels with label trees, for evaluation and prediction."""

from collections.abc import Sequence
import concurrent.futures
import dataclasses
from typing import Self

from jaxtyping import Float64, Int64
import numpy as np
from scipy import sparse

from xjax.core.ranking import Lists, Query
from xjax.core.types import AS_LOGITS, ScoreKind
from xjax.data.documents import Documents
from xjax.models.features import FeatureScorer, Featuriser
from xjax.models.trees.tree_search import Link, SearchResult, Squash, TreeSearch
from xjax.models.trees.tree_search_loops import fill_lists, mean_scores

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
    self._pool = concurrent.futures.ThreadPoolExecutor(workers)
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
    if np.ndim(query.allowed) < 2:
      return Lists(*self._lists(rows, query))
    lists = [
      self._lists(rows[[i]], dataclasses.replace(query, allowed=allowed_L))
      for i, allowed_L in enumerate(query.allowed)
    ]
    return Lists(*(np.concatenate(x, axis=1) for x in zip(*lists)))

  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> Float64[np.ndarray, 'D K']:
    """Returns the weights of features in labels, averaged over the trees."""
    parts = [s.feature_weights(features, labels) for s in self._searches]
    return np.mean(parts, axis=0)

  def _lists(
    self, rows: sparse.csr_array, query: Query
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids_GBK and scores_GBK. `allowed` has one axis, or is None."""
    log_weights_L = squash = None
    if query.weights is not None:
      values_L = np.asarray(query.weights.values, np.float64)
      with np.errstate(divide='ignore'):  # weight 0: never selected
        log_weights_L = np.log(values_L)
      squash = self._squash(query.weights.sigmoid)
    if query.allowed is not None:
      log_weights_L = self._only(log_weights_L, query.allowed)
    logs = [
      log_weights_L,
      *(self._only(log_weights_L, mask) for mask in query.slices),
    ]
    results = self._search(rows, query.k, logs, squash)
    ids_GBK = np.stack([result.ids for result in results])
    keys_GBK = np.stack([result.keys for result in results])
    if query.weights is None and self._link is Link.SIGMOID:
      keys_GBK = _logits(keys_GBK)
    return ids_GBK, keys_GBK.astype(np.float32)

  def _only(
    self, log_weights_L: np.ndarray | None, mask: np.ndarray
  ) -> np.ndarray:
    inside = 0.0 if log_weights_L is None else log_weights_L
    return np.where(mask, inside, -np.inf)

  def _squash(self, sigmoid: tuple[float, float]) -> Squash | None:
    """Returns what turns scores into log probabilities; None if they are."""
    if self._link is Link.SIGMOID:
      return None
    return Squash(
      *(sigmoid if self.score_kind is ScoreKind.MARGIN else AS_LOGITS)
    )

  def _search(
    self,
    rows: sparse.csr_array,
    k: int,
    logs: Sequence[np.ndarray | None],
    squash: Squash | None,
  ) -> list[SearchResult]:
    depth = k if len(self._searches) == 1 else _DEEPER * k
    trees = [
      self._search_tree(search, rows, depth, logs, squash)
      for search in self._searches
    ]
    if len(trees) == 1:
      return trees[0]
    return combine_trees(list(zip(*trees)), k, self.n_labels, logs, squash)

  def _search_tree(
    self,
    search: TreeSearch,
    rows: sparse.csr_array,
    k: int,
    logs: Sequence[np.ndarray | None],
    squash: Squash | None,
  ) -> list[SearchResult]:
    """Searches one tree, with documents divided among the threads."""
    width = None if self._exact else self._beam
    bounds = np.linspace(0, rows.shape[0], self._workers + 1).astype(int)
    futures = [
      self._pool.submit(search.lists, rows[start:end], k, logs, squash, width)
      for start, end in zip(bounds, bounds[1:])
      if start < end
    ]
    parts = zip(*(future.result() for future in futures))
    return [SearchResult.concatenate(part) for part in parts]


def combine_trees(
  lists: Sequence[Sequence[SearchResult]],  # by logs, and then by tree
  k: int,
  n_labels: int,
  logs: Sequence[Float64[np.ndarray, ' L'] | None],  # added to combined scores
  squash: Squash | None,  # applied to combined scores before logs are added
) -> list[SearchResult]:
  """Combines the results of several trees into lists of the k best labels.

  The combined score of a label is the logarithm of the mean over trees of
  exp(score). A tree that does not list the label adds 0 to the mean. There is a
  search for each array of log weights, but a label has only one combined score
  for a document:

  - If a tree lists the label in the first search, the score comes only from the
    results of the first search.
  - If not, the score comes from the results of all other searches.
  """
  first, *others = lists
  scores = _Scores.of([[result] for result in first], n_labels)
  best = [scores.best(len(first[0].ids), k, logs[0], squash)]
  if others:
    scores = scores.with_missing(_Scores.of(list(zip(*others)), n_labels))
    size = len(first[0].ids)
    best += [scores.best(size, k, log, squash) for log in logs[1:]]
  for combined, trees in zip(best, lists, strict=True):
    combined.opened[:] = sum(result.opened for result in trees)
  return best


@dataclasses.dataclass(frozen=True, eq=False)
class _Scores:
  """Holds the scores that are combined from several trees.

  A cell is a pair of a document and a label. All cells are different.
  """

  documents: np.ndarray  # int64 [cells]
  labels: np.ndarray  # int32 [cells]
  means: np.ndarray  # float64 [cells], the combined scores (see combine_trees)
  n_labels: int

  @classmethod
  def of(cls, trees: Sequence[Sequence[SearchResult]], n_labels: int) -> Self:
    """Combines the scores of trees; each tree has one or more results."""
    results = [result for each in trees for result in each]
    ids = np.concatenate([result.ids for result in results], axis=1)
    scores = np.concatenate([result.scores for result in results], axis=1)
    sizes = [sum(x.ids.shape[1] for x in each) for each in trees]
    numbers = np.repeat(np.arange(len(trees)), sizes)
    means = mean_scores(ids, scores, numbers, len(trees), n_labels)
    return cls(*means, n_labels)

  def with_missing(self, others: '_Scores') -> '_Scores':
    """Adds the scores of `others` for cells that have no score here."""
    new = ~np.isin(others._cells, self._cells, assume_unique=True)
    return _Scores(
      np.append(self.documents, others.documents[new]),
      np.append(self.labels, others.labels[new]),
      np.append(self.means, others.means[new]),
      self.n_labels,
    )

  @property
  def _cells(self) -> Int64[np.ndarray, ' cells']:
    return self.documents * self.n_labels + self.labels

  def best(
    self,
    n: int,
    k: int,
    log_weights_L: np.ndarray | None,
    squash: Squash | None,
  ) -> SearchResult:
    keys = squash(self.means) if squash else self.means
    if log_weights_L is not None:
      keys = log_weights_L[self.labels] + keys
    found = SearchResult.none(n, k)
    lists = found.ids, found.keys, found.scores
    fill_lists(self.documents, self.labels, keys, self.means, lists)
    return found


def _logits(logs: np.ndarray) -> np.ndarray:
  """Converts log probabilities to logits; -inf stays -inf."""
  # This avoids the logit +inf of a log probability of 0.
  logs = np.minimum(logs, -1e-300)
  return logs - np.log(-np.expm1(logs))
