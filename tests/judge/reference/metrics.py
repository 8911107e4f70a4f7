"""Every metric of ranked lists by definition, slow and plain.

A ranked list is a sequence of labels, best first: one that ends before k has
nothing more. Gold is a set of labels. Labels have weights w_l >= 1: their
inverse propensities (Jain et al. 2016).
"""

from collections.abc import Callable, Collection, Sequence
import dataclasses
import itertools
import math

import numpy as np

from xjax.judge.metrics.metric import (
  GOLD_LABELS,
  UP_TO_LARGEST,
  PSnDCGVariant,
  PSRDenominator,
)
from xjax.judge.metrics.protocols import XJAX

BINS = {
  '1-9': (1, 9),
  '10-99': (10, 99),
  '100-999': (100, 999),
  '1000+': (1000, math.inf),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
  """Ranked lists, gold and labels, already cut to the slice to judge."""

  lists: Sequence[Sequence[int]]
  golds: Sequence[set[int]]
  labels: Collection[int]  # of the slice
  weights: np.ndarray | None = None  # float64 [L], inverse propensities
  train_counts: np.ndarray | None = None  # int [L]
  # N sets of labels at the threshold.
  decisions: Sequence[Collection[int]] | None = None
  similarity: Callable[[int, int], float] | None = None  # of two labels
  table_LK: np.ndarray | None = None  # gains of a label at a place
  alphas: Sequence[float] = ()  # recalls of alpha-coverage
  drawn: Sequence[int] = ()  # numbers of documents of n'-coverage


def rank(scores, labels):
  """The labels by score descending, then index; -inf is not scored."""
  scored = [label for label in labels if scores[label] > -math.inf]
  return sorted(scored, key=lambda label: (-scores[label], label))


def hits(ranked, gold, k):
  return len(gold.intersection(ranked[:k]))


def dcg(ranked, gold, k, weights=None):
  """The sum of 1 / log2(place + 1) over hits, or of w / log2(place + 1)."""
  return math.fsum(
    (1 if weights is None else weights[label]) / math.log2(place + 1)
    for place, label in enumerate(ranked[:k], 1)
    if label in gold
  )


def ideal(places):
  """The DCG of a list whose first so many places are hits."""
  return dcg(range(places), range(places), places)


def gain(ranked, gold, k, weights):
  return math.fsum(weights[label] for label in ranked[:k] if label in gold)


def share_of_gain(ranked, gold, k, weights):
  return gain(ranked, gold, k, weights) / math.fsum(weights[x] for x in gold)


def gain_by_count(ranked, gold, k, weights):
  return gain(ranked, gold, k, weights) / len(gold)


def own_psndcg(ranked, gold, k, weights):
  return dcg(ranked, gold, k, weights) / ideal(min(k, len(gold)))


def diversity(ranked, gold, k, similarity):
  """The mean of 1 - similarity over the pairs that there are, else 0."""
  pairs = itertools.combinations(ranked[:k], 2)
  values = [1 - similarity(a, b) for a, b in pairs]
  return math.fsum(values) / max(len(values), 1)


def weighted(ranked, gold, k, table_LK):
  """The sum over hits of W[label, place] (Schultheis et al. 2022, eq. 4)."""
  return math.fsum(
    table_LK[label, place]
    for place, label in enumerate(ranked[:k])
    if label in gold
  )


# Metrics that are means over documents of a function of (list, gold, k).
MEANS = {
  'P': lambda ranked, gold, k: hits(ranked, gold, k) / k,
  'R': lambda ranked, gold, k: hits(ranked, gold, k) / len(gold),
  'RP': lambda ranked, gold, k: hits(ranked, gold, k) / min(k, len(gold)),
  'nDCG': lambda ranked, gold, k: (
    dcg(ranked, gold, k) / ideal(min(k, len(gold)))
  ),
  'nDCG-full': lambda ranked, gold, k: dcg(ranked, gold, k) / ideal(k),
  'Hit': lambda ranked, gold, k: float(hits(ranked, gold, k) > 0),
}


def judge(problem, ks, protocol):
  """Every metric that the problem has what it takes for, as a fraction.

  A value is None where there is nothing to be a mean of.
  """
  values = {
    'R-Precision': _mean(
      problem, protocol, lambda r, gold: hits(r, gold, len(gold)) / len(gold)
    )
  }
  for k in ks:
    found = _document_values(problem, k, protocol)
    if problem.weights is not None:
      found |= _weighed_values(problem, k, protocol)
    values |= {f'{kind}@{k}': value for kind, value in found.items()}
    values |= _label_values(problem, k, protocol)
  if problem.decisions is not None:
    counts = counts_of(problem.decisions, problem.golds, problem.labels)
    values['micro-F1'] = f_beta(*map(sum, zip(*counts.values())))
    values['macro-F1'] = macro(f_beta, counts)
    golds = sum(gold for *_, gold in counts.values())
    total = math.fsum(f_beta(*row) * row[2] for row in counts.values())
    values['weighted-F1'] = ratio(total, golds)
  return values


def judge_scores(scores_NL, golds, labels, ks, threshold=0.0):
  """Every metric of our protocol of a slice whose labels are all ranked."""
  problem = Problem(
    lists=[rank(scores, labels) for scores in scores_NL],
    golds=[gold.intersection(labels) for gold in golds],
    labels=labels,
    decisions=[
      {label for label in labels if scores[label] >= threshold}
      for scores in scores_NL
    ],
  )
  return judge(problem, ks, XJAX)


def _mean(problem, protocol, value, *rest):
  """Documents without gold are left out, or else count as 0."""
  values = [
    value(ranked, gold, *rest) if gold else 0.0
    for ranked, gold in zip(problem.lists, problem.golds, strict=True)
    if gold or not protocol.skip_without_gold
  ]
  return math.fsum(values) / len(values) if values else None


def _document_values(problem, k, protocol):
  values = {
    name: _mean(problem, protocol, value, k) for name, value in MEANS.items()
  }
  if problem.table_LK is not None:
    values['weighted'] = _mean(problem, protocol, weighted, k, problem.table_LK)
  if problem.similarity is not None:
    values['ILD'] = _mean(problem, protocol, diversity, k, problem.similarity)
  return values


def _weighed_values(problem, k, protocol):
  weights = problem.weights
  by_count = protocol.psr is PSRDenominator.COUNT
  psr = gain_by_count if by_count else share_of_gain

  def mean(value):
    return _mean(problem, protocol, value, k, weights)

  def of_best(value):
    """The sum over documents, over that of their best lists."""
    rows = [(r, g) for r, g in zip(problem.lists, problem.golds) if g]
    best = math.fsum(
      value(sorted(g, key=lambda x: -weights[x]), g, k, weights)
      for _, g in rows
    )
    over = math.fsum(value(r, g, k, weights) for r, g in rows)
    return over / best if best else None

  return {
    'PSP-raw': mean(lambda *of: gain(*of) / k),
    'PSnDCG-full': mean(lambda *of: dcg(*of) / ideal(k)),
    'PSR': mean(psr),
    'PSP': of_best(gain),
    'PSnDCG': of_best(
      own_psndcg if protocol.psndcg is PSnDCGVariant.MEANS else dcg
    ),
    'PSR-norm': of_best(psr),
  }


def counts_of(decisions, golds, labels):
  """Label -> the documents where it is right, predicted, and gold."""
  rows = [(set(d), g) for d, g in zip(decisions, golds, strict=True)]
  return {
    label: (
      sum(label in d & g for d, g in rows),
      sum(label in d for d, _ in rows),
      sum(label in g for _, g in rows),
    )
    for label in labels
  }


def ratio(over, under):
  return over / under if under else 0.0


def f_beta(correct, predicted, gold, beta=1.0):
  """(1 + b^2) TP / ((1 + b^2) TP + b^2 FN + FP)."""
  right = (1 + beta**2) * correct
  missed, wrong = gold - correct, predicted - correct
  return ratio(right, right + beta**2 * missed + wrong)


def macro(value, counts, *rest):
  """The mean over labels; None over no labels."""
  values = [float(value(*row, *rest)) for row in counts.values()]
  return math.fsum(values) / len(values) if values else None


def is_found(correct, predicted, gold, alpha):
  return correct > 0 and ratio(correct, gold) >= alpha


def is_drawn(correct, predicted, gold, n_docs, n):
  """The share of draws of n documents with one where the label is right."""
  return 1 - (1 - correct / n_docs) ** n


MACRO = {
  'macro-F1': f_beta,
  'macro-F0.5': lambda *row: f_beta(*row, 0.5),
  'macro-F2': lambda *row: f_beta(*row, 2.0),
  'macro-P': lambda correct, predicted, gold: ratio(correct, predicted),
  'macro-R': lambda correct, predicted, gold: ratio(correct, gold),
}


def _label_values(problem, k, protocol):
  firsts = [ranked[:k] for ranked in problem.lists]
  counts = counts_of(firsts, problem.golds, problem.labels)
  mean_over = _averaged(counts, protocol.macro_over)
  values = {name: macro(value, mean_over) for name, value in MACRO.items()}
  values['micro-F1'] = f_beta(*map(sum, zip(*counts.values())))
  covered = _averaged(counts, protocol.coverage_over)
  values['coverage'] = macro(lambda correct, *_: correct > 0, covered)
  correct = [row[0] for row in counts.values() if row[0]]
  shares = [c / sum(correct) for c in correct]
  values['entropy'] = -math.fsum(share * math.log2(share) for share in shares)
  for alpha in problem.alphas:
    values[f'coverage[a={alpha:g}]'] = macro(is_found, counts, alpha)
  for n in problem.drawn:
    values[f'coverage[n={n}]'] = macro(is_drawn, counts, len(firsts), n)
  values = {f'{kind}@{k}': value for kind, value in values.items()}
  trained = problem.train_counts
  for name, (low, high) in BINS.items() if trained is not None else ():
    inside = {x: row for x, row in counts.items() if low <= trained[x] <= high}
    values[f'macro-F1@{k}[{name}]'] = macro(f_beta, inside)
  return values


def _averaged(counts, averaged):
  if averaged == GOLD_LABELS:
    return {label: row for label, row in counts.items() if row[2]}
  if averaged == UP_TO_LARGEST:
    seen = [label for label, row in counts.items() if row[1] or row[2]]
    last = max(seen, default=-1)
    return {label: row for label, row in counts.items() if label <= last}
  return counts
