"""What a system did with each of the documents that it is judged on."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np
import scipy.sparse

from xjax.core.types import Ragged
from xjax.judge.metrics.contract import LabelMetric


@dataclasses.dataclass(frozen=True, eq=False)
class Decisions:
  """Labels given to documents, one after the other.

  Attributes:
    docs: int [decisions], rows of documents.
    labels: int32 [decisions].
    hits: bool [decisions], whether the label is gold.
  """

  docs: np.ndarray
  labels: np.ndarray
  hits: np.ndarray

  def correct(self) -> 'Decisions':
    """Those that are right."""
    return Decisions(
      self.docs[self.hits], self.labels[self.hits], self.hits[self.hits]
    )

  def per_document(self, n_docs: int) -> np.ndarray:
    """float64 [n_docs], decisions of each."""
    return np.bincount(self.docs, minlength=n_docs).astype(np.float64)

  def none(self) -> 'Decisions':
    """No decision."""
    return Decisions(self.docs[:0], self.labels[:0], self.hits[:0])


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
  """What a system did with N documents.

  Attributes:
    terms: name -> float64 [N], what each document adds to the sum of that name.
    sets: what ends the names of a set's sums -> its decisions.
    gold: N rows of label indices.
    mask: bool [L], the labels of the slice.
    bins: name -> bool [L].
    fixed: name -> a sum that does not depend on the documents.
    metrics: of labels, whose sums are taken.
  """

  terms: Mapping[str, np.ndarray]
  sets: Mapping[str, Decisions]
  gold: Ragged
  mask: np.ndarray
  bins: Mapping[str, np.ndarray]
  fixed: Mapping[str, int | float]
  metrics: tuple[LabelMetric, ...]

  def __len__(self) -> int:
    return len(self.gold)

  @property
  def golden(self) -> Decisions:
    """The gold labels."""
    docs = np.repeat(np.arange(len(self)), self.gold.lengths)
    return Decisions(docs, self.gold.values, np.ones(len(docs), bool))

  def up_to_largest(self, end: str) -> np.ndarray:
    """Labels up to the largest that is gold or in a set: int [N]."""
    upto_L, found_N = np.cumsum(self.mask), np.zeros(len(self), np.int64)
    for each in (self.sets[end], self.golden):
      np.maximum.at(found_N, each.docs, upto_L[each.labels])
    return found_N

  def none(self) -> 'Outcomes':
    """The same documents, when none of them counts."""
    return dataclasses.replace(
      self,
      terms={name: np.zeros_like(row) for name, row in self.terms.items()},
      sets={end: decisions.none() for end, decisions in self.sets.items()},
      gold=Ragged(np.zeros_like(self.gold.indptr), self.gold.values[:0]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
  """Counts per label, linear in the weights of the documents.

  Attributes:
    base_H1: int32, where all weights are 0.
    change_HN: int32, what a weight adds.
  """

  base_H1: np.ndarray
  change_HN: scipy.sparse.csr_array

  def at(self, weights_NR: np.ndarray) -> np.ndarray:
    """int32 [H, R], counts for each of R replicates."""
    # SciPy on one core takes 1.2 s for 1,000 replicates of 1.65 million
    # decisions, XLA's gather and sorted segment sum 2.7 to 3.5 s on two.
    counts_HR = self.change_HN @ weights_NR
    counts_HR += self.base_H1
    return counts_HR


@dataclasses.dataclass(frozen=True, eq=False)
class Slots:
  """The labels that are counted one by one.

  These are the labels found by a correct decision, where all that is summed is
  0 for others, else those that are predicted or gold. Where gold labels are
  counted too, the other gold ones come after them.

  Attributes:
    found_H: labels in the first slots: those summed over.
    n_found: the slots of these, a little more than there are.
    n_gold: all slots.
    slots_L: label -> slot; -1: none.
    n_docs: N.
  """

  found_H: np.ndarray
  n_found: int
  n_gold: int
  slots_L: np.ndarray
  n_docs: int

  @classmethod
  def of(
    cls,
    before: Outcomes,
    after: Outcomes,
    ends: Sequence[str],
    count_gold: bool,
    only_correct: bool = True,
  ) -> 'Slots':
    """Those of two outcomes.

    Args:
      before: of the documents of weight 0.
      after: of those of weight 1.
      ends: which sets of decisions are looked at.
      count_gold: whether all gold labels are counted.
      only_correct: whether all sums are 0 for labels without a correct
        decision.
    """
    sets = [each.sets[end] for each in (before, after) for end in ends]
    found = [each.labels[each.hits] for each in sets]
    if not only_correct:
      found = [each.labels for each in (*sets, before.golden, after.golden)]
    found_H = _distinct(found)
    rest = _distinct([after.gold.values] if count_gold else [])
    rest = np.setdiff1d(rest, found_H, assume_unique=True)
    labels = [each.labels for each in (*sets, before.golden, after.golden)]
    n_found = _rounded(len(found_H))
    slots_L = np.full(1 + max(x.max(initial=0) for x in labels), -1, np.int32)
    slots_L[found_H] = np.arange(len(found_H))
    slots_L[rest] = n_found + np.arange(len(rest))
    return cls(found_H, n_found, n_found + len(rest), slots_L, len(after))

  def counts(self, before: Decisions, after: Decisions, n_slots: int) -> Counts:
    """Counts in the first n_slots slots."""
    first, last = (self._matrix(each, n_slots) for each in (before, after))
    base_H = np.asarray(first.sum(1), np.int32)
    return Counts(base_H[:, None], last - first)

  def _matrix(
    self, decisions: Decisions, n_slots: int
  ) -> scipy.sparse.csr_array:
    slots = self.slots_L[decisions.labels]
    kept = (slots >= 0) & (slots < n_slots)
    ones = np.ones(int(kept.sum()), np.int32)
    return scipy.sparse.csr_array(
      (ones, (slots[kept], decisions.docs[kept].astype(np.int32))),
      shape=(n_slots, self.n_docs),
    )


def _distinct(parts: Sequence[np.ndarray]) -> np.ndarray:
  return np.unique(np.concatenate([np.zeros(0, np.int32), *parts]))


def _rounded(n: int) -> int:
  """Up, by an eighth at most: few shapes, so few programs."""
  step = max(1 << max(n.bit_length() - 4, 0), 64)
  return -(-max(n, 1) // step) * step
