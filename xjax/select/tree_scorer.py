"""Label trees as the scorer that evaluation and prediction know."""

from collections.abc import Callable, Sequence
import concurrent.futures
import functools

import numpy as np
from scipy import sparse

from xjax.core.types import AS_LOGITS, Batch, ScoreKind
from xjax.data.batches.sparse import batch_rows
from xjax.score.trees.links import Link
from xjax.select.tree_ensemble import combined
from xjax.select.tree_search import Found, Squash, TreeSearch

_DEEPER = 4  # times k, what each tree of an ensemble lists


class TreeScorer:
  """Top-k of label trees over sparse features (a core.types.Scorer).

  Of several trees the score is the mean of the exponentials of their scores,
  where a label that a tree does not find counts as 0.

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
    self.selected_by = 'exact' if exact else f'beam={beam}'
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

    Lists of a beam may be short: labels that it did not come to are not there.
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
    found = [self._found(rows, k, each, squash) for each in logs]
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
    log_weights_L: np.ndarray | None,
    squash: Squash | None,
  ) -> Found:
    if len(self._searches) == 1:
      return self._search(self._searches[0], rows, k, log_weights_L, squash)
    found = [
      self._search(each, rows, _DEEPER * k, log_weights_L, squash)
      for each in self._searches
    ]
    return combined(found, k, self.n_labels, log_weights_L, squash)

  def _search(
    self,
    search: TreeSearch,
    rows: sparse.csr_array,
    k: int,
    log_weights_L: np.ndarray | None,
    squash: Squash | None,
  ) -> Found:
    run: Callable[..., Found] = search.exact
    if not self._exact:
      run = functools.partial(search.beam, width=self._beam)
    bounds = np.linspace(0, rows.shape[0], self._workers + 1).astype(int)
    done = [
      self._pool.submit(
        run, rows[start:end], k, log_weights_L=log_weights_L, squash=squash
      )
      for start, end in zip(bounds, bounds[1:])
      if start < end
    ]
    return Found.joined([each.result() for each in done])


def _logits(logs: np.ndarray) -> np.ndarray:
  """Logits of probabilities of such logarithms; of -inf -inf."""
  # float64 has no logarithm of a probability nearer to 1 than this.
  logs = np.minimum(logs, -1e-300)
  return logs - np.log(-np.expm1(logs))
