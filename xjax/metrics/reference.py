"""The metrics' definitions, slow and plain: what the tests compare with.

Everything here takes the full score of every label and Python sets of gold.
"""

from collections.abc import Collection, Sequence
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


def ndcg(ranked: Sequence[int], gold: set[int], k: int) -> float:
  """nDCG@k with an ideal list of min(k, g) gold labels; log base 2."""
  gain = sum(
    1 / math.log2(place + 1)
    for place, label in enumerate(ranked[:k], 1)
    if label in gold
  )
  best = sum(
    1 / math.log2(place + 1) for place in range(1, min(k, len(gold)) + 1)
  )
  return gain / best


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
