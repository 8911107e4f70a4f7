"""The metrics' definitions, slow and plain: what the tests compare with.

This file has the metrics of documents; those of labels are beside it. A ranked
list is a sequence of labels, best first: one that ends before k has nothing
more. Gold is a Python set. g is the number of gold labels.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
import itertools
import math

import numpy as np


def rank(scores: np.ndarray, labels: Collection[int]) -> list[int]:
  """The labels by score descending, then index ascending.

  A label of score -inf is one that is not scored: it is never ranked.
  """
  scored = [label for label in labels if scores[label] > -math.inf]
  return sorted(scored, key=lambda label: (-scores[label], label))


def precision(ranked: Sequence[int], gold: set[int], k: int) -> float:
  """P@k: hits / k."""
  return len(gold.intersection(ranked[:k])) / k


def recall(ranked: Sequence[int], gold: set[int], k: int) -> float:
  """R@k: hits / g."""
  return len(gold.intersection(ranked[:k])) / len(gold)


def r_precision_at(ranked: Sequence[int], gold: set[int], k: int) -> float:
  """RP@k: hits / min(k, g); Chalkidis et al. 2019, eq. 3."""
  return len(gold.intersection(ranked[:k])) / min(k, len(gold))


def r_precision(ranked: Sequence[int], gold: set[int]) -> float:
  """R-Precision: hits among the first g, over g."""
  return len(gold.intersection(ranked[: len(gold)])) / len(gold)


def discount(place: int) -> float:
  """The gain of a hit at this place, 1 / log2(place + 1); the first is 1."""
  return 1 / math.log2(place + 1)


def ideal(places: int) -> float:
  """The DCG of a list whose first so many places are hits."""
  return math.fsum(discount(place) for place in range(1, places + 1))


def dcg(
  ranked: Sequence[int],
  gold: set[int],
  k: int,
  weights: Mapping[int, float] | np.ndarray | None = None,
) -> float:
  """DCG@k; PSDCG@k with label weights, by which hits gain more."""
  return math.fsum(
    discount(place) * (1 if weights is None else weights[label])
    for place, label in enumerate(ranked[:k], 1)
    if label in gold
  )


def ndcg(ranked: Sequence[int], gold: set[int], k: int) -> float:
  """nDCG@k with an ideal list of min(k, g) gold labels; log base 2."""
  return dcg(ranked, gold, k) / ideal(min(k, len(gold)))


def full_ndcg(ranked: Sequence[int], gold: set[int], k: int) -> float:
  """nDCG-full@k: the ideal list has k (Schultheis 2022, eq. 2)."""
  return dcg(ranked, gold, k) / ideal(k)


def hit(ranked: Sequence[int], gold: set[int], k: int) -> float:
  """Hit@k: 1 where any of the first k is gold (Schultheis 2022, eq. 12)."""
  return float(any(label in gold for label in ranked[:k]))


def weighted(
  ranked: Sequence[int], gold: set[int], k: int, table_LK: np.ndarray
) -> float:
  """weighted@k: the sum over hits of W[label, place] (eq. 4 there)."""
  return math.fsum(
    table_LK[label, place]
    for place, label in enumerate(ranked[:k])
    if label in gold
  )


def diversity(
  ranked: Sequence[int], k: int, similarity: Callable[[int, int], float]
) -> float:
  """ILD@k: the mean of 1 - similarity over pairs (Schultheis 2022, eq. 17).

  Over the pairs that there are: a list of fewer than k labels has fewer, one
  of fewer than two has none and is 0.
  """
  pairs = [
    1 - similarity(a, b) for a, b in itertools.combinations(ranked[:k], 2)
  ]
  return math.fsum(pairs) / max(len(pairs), 1)


def mean(
  value: Callable[[Sequence[int], set[int]], float],
  lists: Sequence[Sequence[int]],
  golds: Sequence[set[int]],
  skip_without_gold: bool = True,
) -> float | None:
  """The mean of a document's value over documents; None where there are none.

  Documents without gold are left out, or else count as 0.
  """
  values = [
    value(ranked, gold) if gold else 0.0
    for ranked, gold in zip(lists, golds, strict=True)
    if gold or not skip_without_gold
  ]
  return math.fsum(values) / len(values) if values else None


def ranking(
  scores_NL: np.ndarray,
  golds: Sequence[set[int]],
  labels: Collection[int],
  ks: Sequence[int],
) -> dict[str, float]:
  """All ranking metrics within a slice: means over documents with gold there.

  Args:
    scores_NL: float scores of all labels.
    golds: N gold sets.
    labels: the slice, for both ranking and gold.
    ks: cut-offs.
  """
  rows = []
  for scores, gold in zip(scores_NL, golds, strict=True):
    gold = gold.intersection(labels)
    if not gold:
      continue
    ranked = rank(scores, labels)
    row = {'R-Precision': r_precision(ranked, gold)}
    for k in ks:
      row[f'P@{k}'] = precision(ranked, gold, k)
      row[f'R@{k}'] = recall(ranked, gold, k)
      row[f'RP@{k}'] = r_precision_at(ranked, gold, k)
      row[f'nDCG@{k}'] = ndcg(ranked, gold, k)
    rows.append(row)
  return {
    name: math.fsum(row[name] for row in rows) / len(rows) for name in rows[0]
  }


def f1(
  scores_NL: np.ndarray,
  golds: Sequence[set[int]],
  labels: Collection[int],
  threshold: float,
) -> tuple[float, float]:
  """Micro- and macro-F1 within a slice of labels scored above a threshold."""
  confusions = [
    _confusion(scores_NL[:, label] > threshold, label, golds)
    for label in labels
  ]
  totals = [sum(column) for column in zip(*confusions, strict=True)]
  macro = math.fsum(_f1(*row) for row in confusions) / len(confusions)
  return _f1(*totals), macro


def _confusion(
  predicted: np.ndarray, label: int, golds: Sequence[set[int]]
) -> tuple[int, int, int]:
  pairs = [
    (bool(p), label in gold) for p, gold in zip(predicted, golds, strict=True)
  ]
  return (
    pairs.count((True, True)),
    pairs.count((True, False)),
    pairs.count((False, True)),
  )


def _f1(true_positive: int, false_positive: int, false_negative: int) -> float:
  if not true_positive:
    return 0.0
  precision_ = true_positive / (true_positive + false_positive)
  recall_ = true_positive / (true_positive + false_negative)
  return 2 * precision_ * recall_ / (precision_ + recall_)
