"""Computes metrics of labels by definition, slow and plain.

They count decisions over all documents, also over those without gold: the first
k of every list, or the labels above a threshold. 0 / 0 is 0.
"""

import collections
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Counts:
  """Counts a label's documents: predicted and gold, predicted, gold."""

  correct: int = 0
  predicted: int = 0
  gold: int = 0

  def __add__(self, other: 'Counts') -> 'Counts':
    """The counts of two labels, or of two sets of documents, together."""
    return Counts(
      self.correct + other.correct,
      self.predicted + other.predicted,
      self.gold + other.gold,
    )


def count(decisions, golds, labels):
  """The counts of every label; a decision is taken once per document."""
  rows = [(set(d), g) for d, g in zip(decisions, golds, strict=True)]
  correct = collections.Counter(label for d, g in rows for label in d & g)
  predicted = collections.Counter(label for d, _ in rows for label in d)
  gold = collections.Counter(label for _, g in rows for label in g)
  return {
    label: Counts(correct[label], predicted[label], gold[label])
    for label in labels
  }


def ratio(over, under):
  """A quotient; 0 where it is 0 / 0."""
  return over / under if under else 0.0


def label_precision(counts):
  """The share of a label's predictions that are right."""
  return ratio(counts.correct, counts.predicted)


def label_recall(counts):
  """The share of a label's gold documents that are found."""
  return ratio(counts.correct, counts.gold)


def f_beta(counts, beta=1.0):
  """(1 + b^2) TP / ((1 + b^2) TP + b^2 FN + FP); F1 for b = 1.

  0 for a label that is never predicted.
  """
  square = beta * beta
  missed = counts.gold - counts.correct
  wrong = counts.predicted - counts.correct
  right = (1 + square) * counts.correct
  return ratio(right, right + square * missed + wrong)


def macro(values):
  """The mean over labels; None over no labels."""
  return math.fsum(values) / len(values) if values else None


def micro_f1(counts):
  """F1 of the decisions about all labels together."""
  return f_beta(sum(counts.values(), Counts()))


def macro_f1(counts, beta=1.0):
  """The mean of the labels' F1 (or F_beta)."""
  return macro([f_beta(row, beta) for row in counts.values()])


def binned_macro_f1(counts, train_counts, low, high=None):
  """macro_f1 over the labels of low to high training documents, or more.

  From the counts of whole lists: no list is ranked anew for a bin.
  """
  high = math.inf if high is None else high
  inside = [label for label in counts if low <= train_counts[label] <= high]
  return macro_f1({label: counts[label] for label in inside})


def weighted_f1(counts):
  """The mean of the labels' F1, weighted by how often each is gold."""
  golds = sum(row.gold for row in counts.values())
  weighted = math.fsum(f_beta(row) * row.gold for row in counts.values())
  return ratio(weighted, golds)


def coverage(counts):
  """The share of labels with a correct prediction."""
  return macro([float(row.correct > 0) for row in counts.values()])


def alpha_coverage(counts, alpha):
  """The share of labels with recall >= alpha, for 0 with recall > 0.

  A label without gold has recall 0.
  """
  rows = counts.values()
  return macro(
    [float(r.correct > 0 and label_recall(r) >= alpha) for r in rows]
  )


def sampled_coverage(counts, n_docs, drawn):
  """n'-coverage: what n' documents drawn with replacement cover on average.

  The mean over labels of 1 - (1 - c_l / n)^n', c_l its correct predictions in
  n documents.
  """
  return macro(
    [1 - (1 - row.correct / n_docs) ** drawn for row in counts.values()]
  )


def entropy(counts):
  """-sum rho log2 rho, in bits; 0 where nothing is correct.

  rho_l is the share of the correct predictions that are l.
  """
  correct = [row.correct for row in counts.values() if row.correct]
  shares = [c / sum(correct) for c in correct]
  return -math.fsum(share * math.log2(share) for share in shares)
