"""The labels that several trees find, as one list."""

from collections.abc import Sequence

import numpy as np

from xjax.core.types import PAD
from xjax.select.tree_search import Found, Squash


def combined(
  found: Sequence[Found],
  k: int,
  n_labels: int,
  log_weights_L: np.ndarray | None,
  squash: Squash | None,
) -> Found:
  """The k best labels by the mean of the exponentials of trees' scores.

  Args:
    found: what each tree listed for the same N documents.
    k: length of the lists.
    n_labels: L.
    log_weights_L: float64, added to the logarithm of the mean; None: 0.
    squash: what is done to that logarithm before.

  Returns:
    Lists; a label that a tree did not list has an exponential of 0 there.
  """
  ids = np.concatenate([each.ids for each in found], axis=1)
  scores = np.concatenate([each.scores for each in found], axis=1)
  document, place = np.nonzero(ids != PAD)
  cells = document * np.int64(n_labels) + ids[document, place]
  cells, which = np.unique(cells, return_inverse=True)
  listed = scores[document, place]
  # Beside the best of a label's scores: their exponentials may all be 0.
  best_score = np.full(len(cells), -np.inf)
  np.maximum.at(best_score, which, listed)
  sums = np.bincount(which, np.exp(listed - best_score[which]), len(cells))
  means = best_score + np.log(sums / len(found))
  document, label = np.divmod(cells, n_labels)
  keys = squash(means) if squash else means
  if log_weights_L is not None:
    keys = log_weights_L[label] + keys
  order = np.lexsort((label, -keys, document))
  document, label, keys = document[order], label[order], keys[order]
  first = np.searchsorted(document, np.arange(len(ids)))
  rank = np.arange(len(document)) - first[document]
  kept = (rank < k) & (keys > -np.inf)
  best = Found.none(len(ids), k)
  at = document[kept], rank[kept]
  best.ids[at], best.keys[at] = label[kept], keys[kept]
  best.scores[at] = means[order][kept]
  best.opened[:] = sum(each.opened for each in found)
  return best
