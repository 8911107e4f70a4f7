"""Propensity-scored metrics by definition, slow and plain.

Labels have weights w_l >= 1, float64 [L]: their inverse propensities (Jain et
al. 2016). Ranked lists and gold are those of `documents`.
"""

import math

from tests.judge.reference.documents import dcg, ideal


def gain(ranked, gold, k, weights):
  """The label weights of the hits among the first k."""
  return math.fsum(weights[label] for label in ranked[:k] if label in gold)


def best_list(gold, weights):
  """The gold labels by weight descending: no list gains more, at any k."""
  return sorted(gold, key=lambda label: -weights[label])


def raw_psp(ranked, gold, k, weights):
  """PSP-raw@k: the weights of the hits, over k."""
  return gain(ranked, gold, k, weights) / k


def full_psndcg(ranked, gold, k, weights):
  """PSnDCG-full@k: PSDCG@k over the DCG of k hits of weight 1; may exceed 1.

  So the Extreme Classification Repository prints the formula.
  """
  return dcg(ranked, gold, k, weights) / ideal(k)


def own_psndcg(ranked, gold, k, weights):
  """PSDCG@k over the DCG of min(k, g) hits of weight 1; may exceed 1."""
  return dcg(ranked, gold, k, weights) / ideal(min(k, len(gold)))


def psr(ranked, gold, k, weights):
  """PSR@k: the weights of the hits over those of all gold labels."""
  everything = math.fsum(weights[label] for label in gold)
  return gain(ranked, gold, k, weights) / everything


def psr_by_count(ranked, gold, k, weights):
  """PSR@k of pyxclib and napkinXC: the weights of the hits over g."""
  return gain(ranked, gold, k, weights) / len(gold)


def of_best(value, lists, golds, k, weights):
  """The sum of a value over the documents, over that of their best lists.

  With `gain` this is PSP@k; with `dcg` PSnDCG@k, our own; with `own_psndcg`
  that of pyxclib and napkinXC; with `psr` or `psr_by_count` PSR-norm@k.

  Returns:
    None where no document has gold. Documents without gold add nothing to
    either sum.
  """
  rows = [(r, g) for r, g in zip(lists, golds, strict=True) if g]
  best = math.fsum(
    value(best_list(gold, weights), gold, k, weights) for _, gold in rows
  )
  if not best:
    return None
  return math.fsum(value(r, g, k, weights) for r, g in rows) / best
