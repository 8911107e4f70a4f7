"""Holds what a system predicted for each judged document."""

from collections.abc import Mapping, Sequence
import dataclasses

from jaxtyping import Bool, Float, Int, Int32
import numpy as np
import scipy.sparse

from xjax.core.types import Ragged
from xjax.judge.metrics.metric import LabelMetric


@dataclasses.dataclass(frozen=True, eq=False)
class Decisions:
  """Holds the labels assigned to documents, as a flat list of pairs."""

  docs: Int[np.ndarray, ' decisions']  # rows of documents
  labels: Int[np.ndarray, ' decisions']  # int32
  hits: Bool[np.ndarray, ' decisions']  # the label is gold

  def correct(self) -> 'Decisions':
    return Decisions(
      self.docs[self.hits], self.labels[self.hits], self.hits[self.hits]
    )

  def per_document(self, n_docs: int) -> Float[np.ndarray, ' N']:
    """Returns the number of decisions of each document, float64 [n_docs]."""
    return np.bincount(self.docs, minlength=n_docs).astype(np.float64)

  def empty(self) -> 'Decisions':
    return Decisions(self.docs[:0], self.labels[:0], self.hits[:0])


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
  """Holds what a system predicted for N documents, and their gold labels."""

  terms: Mapping[str, Float[np.ndarray, ' N']]  # sum -> term
  sets: Mapping[str, Decisions]  # by suffix of sums, such as `@5`
  gold: Ragged
  mask: Bool[np.ndarray, ' L']  # the slice
  bins: Mapping[str, Bool[np.ndarray, ' L']]  # by name
  fixed: Mapping[str, int | float]  # sums without documents
  metrics: tuple[LabelMetric, ...]  # whose sums are computed

  def __len__(self) -> int:
    return len(self.gold)

  @property
  def gold_decisions(self) -> Decisions:
    """Returns the gold labels of all documents, as correct decisions."""
    docs = np.repeat(np.arange(len(self)), self.gold.lengths)
    return Decisions(docs, self.gold.values, np.ones(len(docs), bool))

  def up_to_largest(self, end: str) -> Int[np.ndarray, ' N']:
    """Counts the slice's labels up to the largest gold or predicted index."""
    upto_L, largest_N = np.cumsum(self.mask), np.zeros(len(self), np.int64)
    for decisions in (self.sets[end], self.gold_decisions):
      np.maximum.at(largest_N, decisions.docs, upto_L[decisions.labels])
    return largest_N

  def zeros(self) -> 'Outcomes':
    """Returns outcomes of the documents without labels; all terms are 0."""
    return dataclasses.replace(
      self,
      terms={name: np.zeros_like(row) for name, row in self.terms.items()},
      sets={end: decisions.empty() for end, decisions in self.sets.items()},
      gold=Ragged(np.zeros_like(self.gold.indptr), self.gold.values[:0]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
  """Holds counts per label as a linear function of the documents' weights."""

  base_H1: Int32[np.ndarray, 'H 1']  # where all weights are 0
  change_HN: scipy.sparse.csr_array  # if a weight is 1 instead of 0

  def at(self, weights_NR: Int[np.ndarray, 'N R']) -> Int[np.ndarray, 'H R']:
    """Returns the counts of each of R replicates, int32 [H, R]."""
    # For 1,000 replicates of 1.65 million decisions, SciPy takes 1.2 s on one
    # core; XLA's gather and sorted segment sum take 2.7 to 3.5 s on two cores.
    counts_HR = self.change_HN @ weights_NR
    counts_HR += self.base_H1
    return counts_HR


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSlots:
  """Assigns a slot, which is a row of the count arrays, to each counted label.

  The first slots are for the labels that the sums over labels include: if
  `only_correct`, those with a correct decision, because others would add 0;
  otherwise all that are predicted or gold. The next slots are for other gold
  labels, if `count_gold`.
  """

  labels_H: Int[np.ndarray, ' H']  # in sums, in slot order
  n_summed: int  # len(labels_H), rounded up
  n_slots: int
  slots_L: Int32[np.ndarray, ' L']  # -1 if not counted
  n_docs: int

  @classmethod
  def of(
    cls,
    before: Outcomes,
    after: Outcomes,
    ends: Sequence[str],
    count_gold: bool,
    only_correct: bool = True,
  ) -> 'LabelSlots':
    """Assigns slots to the labels in these sets of two outcomes."""
    sets = [outcomes.sets[end] for outcomes in (before, after) for end in ends]
    every = [*sets, before.gold_decisions, after.gold_decisions]
    if only_correct:
      labels_H = _distinct([x.labels[x.hits] for x in sets])
    else:
      labels_H = _distinct([x.labels for x in every])
    rest = _distinct([after.gold.values] if count_gold else [])
    rest = np.setdiff1d(rest, labels_H, assume_unique=True)
    n_summed = _round_up(len(labels_H))
    largest = max(x.labels.max(initial=0) for x in every)
    slots_L = np.full(1 + largest, -1, np.int32)
    slots_L[labels_H] = np.arange(len(labels_H))
    slots_L[rest] = n_summed + np.arange(len(rest))
    return cls(labels_H, n_summed, n_summed + len(rest), slots_L, len(after))

  def counts(self, before: Decisions, after: Decisions, n_slots: int) -> Counts:
    """Counts decisions, for weights 0 and 1, about labels of n_slots slots."""
    first, last = (self._matrix(x, n_slots) for x in (before, after))
    base_H = np.asarray(first.sum(1), np.int32)
    return Counts(base_H[:, None], last - first)

  def _matrix(
    self, decisions: Decisions, n_slots: int
  ) -> scipy.sparse.csr_array:
    """Returns a [n_slots, N] matrix with a 1 for each decision."""
    slots = self.slots_L[decisions.labels]
    kept = (slots >= 0) & (slots < n_slots)
    ones = np.ones(int(kept.sum()), np.int32)
    return scipy.sparse.csr_array(
      (ones, (slots[kept], decisions.docs[kept].astype(np.int32))),
      shape=(n_slots, self.n_docs),
    )


def _distinct(parts: Sequence[np.ndarray]) -> np.ndarray:
  return np.unique(np.concatenate([np.zeros(0, np.int32), *parts]))


def _round_up(n: int) -> int:
  """Rounds up to a multiple of 64, and above 512 to at most n * 9 / 8.

  So few sizes occur and few programs are compiled.
  """
  step = max(1 << max(n.bit_length() - 4, 0), 64)
  return -(-max(n, 1) // step) * step
