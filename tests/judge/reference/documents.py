"""The metrics' definitions, slow and plain: what the tests compare with.

This file has the metrics of documents; those of labels are beside it. A ranked
list is a sequence of labels, best first: one that ends before k has nothing
more. Gold is a Python set. g is the number of gold labels.
"""

import itertools
import math


def rank(scores, labels):
  """The labels by score descending, then index ascending.

  A label of score -inf is one that is not scored: it is never ranked.
  """
  scored = [label for label in labels if scores[label] > -math.inf]
  return sorted(scored, key=lambda label: (-scores[label], label))


def precision(ranked, gold, k):
  """P@k: hits / k."""
  return len(gold.intersection(ranked[:k])) / k


def recall(ranked, gold, k):
  """R@k: hits / g."""
  return len(gold.intersection(ranked[:k])) / len(gold)


def r_precision_at(ranked, gold, k):
  """RP@k: hits / min(k, g); Chalkidis et al. 2019, eq. 3."""
  return len(gold.intersection(ranked[:k])) / min(k, len(gold))


def r_precision(ranked, gold):
  """R-Precision: hits among the first g, over g."""
  return len(gold.intersection(ranked[: len(gold)])) / len(gold)


def discount(place):
  """The gain of a hit at this place, 1 / log2(place + 1); the first is 1."""
  return 1 / math.log2(place + 1)


def ideal(places):
  """The DCG of a list whose first so many places are hits."""
  return math.fsum(discount(place) for place in range(1, places + 1))


def dcg(ranked, gold, k, weights=None):
  """DCG@k; PSDCG@k with label weights, by which hits gain more."""
  return math.fsum(
    discount(place) * (1 if weights is None else weights[label])
    for place, label in enumerate(ranked[:k], 1)
    if label in gold
  )


def ndcg(ranked, gold, k):
  """nDCG@k with an ideal list of min(k, g) gold labels; log base 2."""
  return dcg(ranked, gold, k) / ideal(min(k, len(gold)))


def full_ndcg(ranked, gold, k):
  """nDCG-full@k: the ideal list has k (Schultheis 2022, eq. 2)."""
  return dcg(ranked, gold, k) / ideal(k)


def hit(ranked, gold, k):
  """Hit@k: 1 where any of the first k is gold (Schultheis 2022, eq. 12)."""
  return float(any(label in gold for label in ranked[:k]))


def diversity(ranked, k, similarity):
  """ILD@k: the mean of 1 - similarity over pairs (Schultheis 2022, eq. 17).

  Over the pairs that there are: a list of fewer than k labels has fewer, one
  of fewer than two has none and is 0.
  """
  pairs = [
    1 - similarity(a, b) for a, b in itertools.combinations(ranked[:k], 2)
  ]
  return math.fsum(pairs) / max(len(pairs), 1)


def mean(value, lists, golds, skip_without_gold=True):
  """The mean of a document's value over documents; None where there are none.

  Documents without gold are left out, or else count as 0.
  """
  values = [
    value(ranked, gold) if gold else 0.0
    for ranked, gold in zip(lists, golds, strict=True)
    if gold or not skip_without_gold
  ]
  return math.fsum(values) / len(values) if values else None
