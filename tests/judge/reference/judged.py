"""Computes every metric of ranked lists under a protocol, slow and plain."""

from collections.abc import Callable, Collection, Sequence
import dataclasses

import numpy as np

from tests.judge.reference import (
  documents as reference,
  labels as by_label,
  propensity as scored,
)
from xjax.judge.metrics.metric import AveragedLabels, Ratio, Recalled
from xjax.judge.metrics.protocols import XJAX

BINS = {
  '1-9': (1, 9),
  '10-99': (10, 99),
  '100-999': (100, 999),
  '1000+': (1000,),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
  """Holds ranked lists, gold and labels, already cut to the slice to judge.

  Attributes:
    lists: N ranked lists of labels, best first, each label at most once.
    golds: N sets of gold labels.
    labels: the slice's labels.
    weights: float64 [L] inverse propensities, or None.
    train_counts: int [L], or None.
    decisions: N sets of labels above the threshold, or None.
    similarity: of two labels, or None.
    alphas: recalls of alpha-coverage.
    drawn: numbers of documents of n'-coverage.
  """

  lists: Sequence[Sequence[int]]
  golds: Sequence[set[int]]
  labels: Collection[int]
  weights: np.ndarray | None = None
  train_counts: np.ndarray | None = None
  decisions: Sequence[Collection[int]] | None = None
  similarity: Callable[[int, int], float] | None = None
  alphas: Sequence[float] = ()
  drawn: Sequence[int] = ()


def judge(problem, ks, protocol):
  """Every metric that the problem has what it takes for.

  Returns:
    Metric -> value as a fraction; None where there is nothing to be a mean of.
  """
  values = {'R-Precision': _mean(problem, protocol, reference.r_precision)}
  for k in ks:
    values |= _document_values(problem, k, protocol)
    values |= _label_values(problem, k, protocol)
    if problem.weights is not None:
      values |= _scored_values(problem, k, protocol)
  if problem.decisions is not None:
    counts = by_label.count(problem.decisions, problem.golds, problem.labels)
    values['micro-F1'] = by_label.micro_f1(counts)
    values['macro-F1'] = by_label.macro_f1(counts)
    values['weighted-F1'] = by_label.weighted_f1(counts)
  return values


def judge_scores(scores_NL, golds, labels, ks, threshold=0.0):
  """Every metric of our protocol of a slice whose labels are all ranked."""
  problem = Problem(
    lists=[reference.rank(scores, labels) for scores in scores_NL],
    golds=[gold.intersection(labels) for gold in golds],
    labels=labels,
    decisions=[
      {label for label in labels if scores[label] > threshold}
      for scores in scores_NL
    ],
  )
  return judge(problem, ks, XJAX)


def _mean(problem, protocol, value, *rest):
  return reference.mean(
    lambda ranked, gold: value(ranked, gold, *rest),
    problem.lists,
    problem.golds,
    protocol.skip_without_gold,
  )


def _document_values(problem, k, protocol):
  kinds = {
    'P': reference.precision,
    'R': reference.recall,
    'RP': reference.r_precision_at,
    'nDCG': reference.ndcg,
    'nDCG-full': reference.full_ndcg,
    'Hit': reference.hit,
  }
  values = {
    f'{kind}@{k}': _mean(problem, protocol, value, k)
    for kind, value in kinds.items()
  }
  if problem.similarity is not None:

    def diversity(ranked, gold):
      return reference.diversity(ranked, k, problem.similarity)

    values[f'ILD@{k}'] = _mean(problem, protocol, diversity)
  return values


def _scored_values(problem, k, protocol):
  def of_best(value):
    return scored.of_best(
      value, problem.lists, problem.golds, k, problem.weights
    )

  means = protocol.psndcg is Ratio.MEANS
  by_count = protocol.psr is Recalled.COUNT
  psr = scored.psr_by_count if by_count else scored.psr
  kinds = {
    'PSP-raw': scored.raw_psp,
    'PSnDCG-full': scored.full_psndcg,
    'PSR': psr,
  }
  return {
    f'PSP@{k}': of_best(scored.gain),
    f'PSnDCG@{k}': of_best(scored.own_psndcg if means else reference.dcg),
    f'PSR-norm@{k}': of_best(psr),
    **{
      f'{kind}@{k}': _mean(problem, protocol, value, k, problem.weights)
      for kind, value in kinds.items()
    },
  }


def _label_values(problem, k, protocol):
  firsts = [ranked[:k] for ranked in problem.lists]
  counts = by_label.count(firsts, problem.golds, problem.labels)
  mean_over = _averaged(counts, protocol.macro_over)
  values = {
    'micro-F1': by_label.micro_f1(counts),
    'macro-F1': by_label.macro_f1(mean_over),
    'macro-F0.5': by_label.macro_f1(mean_over, 0.5),
    'macro-F2': by_label.macro_f1(mean_over, 2.0),
    'macro-P': by_label.macro(
      [by_label.label_precision(row) for row in mean_over.values()]
    ),
    'macro-R': by_label.macro(
      [by_label.label_recall(row) for row in mean_over.values()]
    ),
    'coverage': by_label.coverage(_averaged(counts, protocol.coverage_over)),
    'entropy': by_label.entropy(counts),
  }
  for alpha in problem.alphas:
    values[f'coverage[a={alpha:g}]'] = by_label.alpha_coverage(counts, alpha)
  for drawn in problem.drawn:
    values[f'coverage[n={drawn}]'] = by_label.sampled_coverage(
      counts, len(problem.lists), drawn
    )
  values = {f'{kind}@{k}': value for kind, value in values.items()}
  if problem.train_counts is not None:
    for name, bounds in BINS.items():
      values[f'macro-F1@{k}[{name}]'] = by_label.binned_macro_f1(
        counts, problem.train_counts, *bounds
      )
  return values


def _averaged(counts, averaged_labels):
  if averaged_labels is AveragedLabels.GOLD:
    return {label: row for label, row in counts.items() if row.gold}
  if averaged_labels is AveragedLabels.UP_TO_LARGEST:
    seen = [label for label, row in counts.items() if row.gold or row.predicted]
    last = max(seen, default=-1)
    return {label: row for label, row in counts.items() if label <= last}
  return counts
