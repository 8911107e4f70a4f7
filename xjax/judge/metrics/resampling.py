"""Computes the sums from which metrics are computed, for many replicates.

A replicate gives a weight to each document: how often a bootstrap draws it, or
1 if a significance test exchanges two systems' outputs for it, else 0. The term
of a label is computed from counts of documents. A slot is a row of the arrays
of counts (see LabelSlots). The counts and the sums over documents are linear
functions of the documents' weights; fixed sums are the same in all replicates.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import dataclasses

import jax
from jaxtyping import Float, Int, Shaped, UInt8
import numpy as np

from xjax.core.progress import Progress
from xjax.judge.metrics.exact import Array, exact
from xjax.judge.metrics.metric import (
  GOLD_LABELS,
  UP_TO_LARGEST,
  LabelMetric,
  PerLabel,
)
from xjax.judge.metrics.outcomes import Counts, LabelSlots, Outcomes

# With at most this many labels, NumPy computes the sums of 1,000 replicates in
# less time than XLA needs to compile them.
_NUMPY_UP_TO = 1 << 11


class Reweighing:
  """Computes sums as functions of the documents' weights.

  `n_summed` is the number of slots for the labels that the sums include.
  """

  def __init__(self, names: Collection[str], before: Outcomes, after: Outcomes):
    """Prepares the sums with these names.

    `before` has the outcomes where all weights are 0 (in a bootstrap,
    after.zeros()), and `after` those where all weights are 1. A document of
    weight w adds w times the difference.
    """
    self.n_docs, self._names = len(after), names
    self._fixed = {n: v for n, v in after.fixed.items() if n in names}
    self._terms = [name for name in after.terms if name in names]
    first_MN, last_MN = (
      np.zeros((len(self._terms), self.n_docs)) for _ in range(2)
    )
    for i, name in enumerate(self._terms):
      first_MN[i], last_MN[i] = before.terms[name], after.terms[name]
    self._base_M1 = first_MN.sum(1, keepdims=True)
    self._change_MN = np.subtract(last_MN, first_MN, out=last_MN)
    self._largest = {
      f'{UP_TO_LARGEST}{end}': (
        before.up_to_largest(end),
        after.up_to_largest(end),
      )
      for end in after.sets
      if f'{UP_TO_LARGEST}{end}' in names
    }
    requested = {end: _requested_sums(names, end, after) for end in after.sets}
    ends = [end for end, sums in requested.items() if sums]
    only_correct = all(
      metric.only_correct for sums in requested.values() for metric, _ in sums
    )
    count_gold = GOLD_LABELS in names
    slots = LabelSlots.of(before, after, ends, count_gold, only_correct)
    self.n_summed = slots.n_summed
    self._gold = slots.counts(
      before.gold_decisions, after.gold_decisions, slots.n_slots
    )
    self._sets = {
      end: _SetSums.of(slots, requested[end], before, after, end)
      for end in ends
    }

  def sums(
    self, weights_NR: Int[np.ndarray, 'N R']
  ) -> dict[str, np.ndarray | int | float]:
    """Returns the sums, float64 [R]; a fixed sum is one number."""
    rows_MR = self._base_M1 + self._change_MN @ weights_NR.astype(np.float64)
    sums = {**self._fixed, **dict(zip(self._terms, rows_MR, strict=True))}
    for name, (before_N, after_N) in self._largest.items():
      largest_NR = np.where(weights_NR > 0, after_N[:, None], before_N[:, None])
      sums[name] = largest_NR.max(0).astype(np.float64)
    if not self._sets and GOLD_LABELS not in self._names:
      return sums
    gold_counts = self._gold.at(weights_NR)
    if GOLD_LABELS in self._names:
      sums[GOLD_LABELS] = np.count_nonzero(gold_counts, 0).astype(np.float64)
    gold_HR = gold_counts[: self.n_summed]
    with exact():
      # All computations are started before the first result is converted to
      # NumPy, so that the computations overlap.
      totals = {
        name: rows_FR
        for end, set_sums in self._sets.items()
        for name, rows_FR in set_sums.totals(weights_NR, gold_HR, end).items()
      }
      for names, rows_FR in totals.items():
        sums |= zip(names, np.asarray(rows_FR), strict=True)
    return sums


# A metric, and the name of one sum of this metric.
_Sum = tuple[LabelMetric, str]


def _requested_sums(
  names: Collection[str], end: str, outcomes: Outcomes
) -> dict[_Sum, list[str]]:
  """Returns the requested sums over labels, with the bins of each sum."""
  requested: dict[str, tuple[_Sum, list[str]]] = {}
  for metric in outcomes.metrics:
    for name in metric.sums():
      whole = f'{name}{end}'
      bins = [b for b in outcomes.bins if f'{whole}[{b}]' in names]
      if not metric.is_binned:
        bins = requested[name][1] if name in requested else []
      if bins or whole in names:
        requested[name] = (metric, name), bins
  return dict(requested.values())


@dataclasses.dataclass(frozen=True, eq=False)
class _SetSums:
  """Computes sums over labels for one set of decisions."""

  correct: Counts  # of each label
  predicted: Counts  # of each label
  # Sum -> frequency bins, over which it is computed too.
  sums: Mapping[_Sum, Sequence[str]]
  # Bin, or '' for all labels -> float64 [H], 0 or 1.
  rows: Mapping[str, np.ndarray]

  @classmethod
  def of(
    cls,
    slots: LabelSlots,
    sums: Mapping[_Sum, Sequence[str]],
    before: Outcomes,
    after: Outcomes,
    end: str,
  ) -> '_SetSums':
    sets = [outcomes.sets[end] for outcomes in (before, after)]
    rows = {'': np.ones(slots.n_summed)}
    for name in {bin_ for bins in sums.values() for bin_ in bins}:
      rows[name] = np.zeros(slots.n_summed)
      rows[name][: len(slots.labels_H)] = after.bins[name][slots.labels_H]
    return cls(
      slots.counts(*(x.correct() for x in sets), slots.n_summed),
      slots.counts(*sets, slots.n_summed),
      sums,
      rows,
    )

  def totals(
    self,
    weights_NR: Int[np.ndarray, 'N R'],
    gold_HR: Int[np.ndarray, 'H R'],
    end: str,
  ) -> dict[tuple[str, ...], Array]:
    """Returns the sums of R replicates: F names -> float64 [F, R]."""
    counts = self.correct.at(weights_NR), self.predicted.at(weights_NR), gold_HR
    n_docs, totals = np.float64(len(weights_NR)), {}
    compute = _totals if len(gold_HR) <= _NUMPY_UP_TO else _compiled_totals
    # Each sum is a separate program, because XLA runs a program with one sum on
    # all cores, but a program with several sums on one core.
    for (metric, name), bins in self.sums.items():
      rows_FH = np.stack([self.rows[bin_] for bin_ in ('', *bins)])
      names = f'{name}{end}', *(f'{name}{end}[{bin_}]' for bin_ in bins)
      totals[names] = compute(*counts, rows_FH, n_docs, metric, name)
    return totals


def _totals(
  correct_HR: Int[Array, 'H R'],
  predicted_HR: Int[Array, 'H R'],
  gold_HR: Int[Array, 'H R'],
  rows_FH: Float[Array, 'F H'],
  n_docs: Float[Array, ''] | np.float64,
  metric: LabelMetric,
  name: str,
) -> Float[Array, 'F R']:
  """Computes one sum over labels, in each replicate and over each bin."""
  counts = (correct_HR, predicted_HR, gold_HR)
  labels = PerLabel(*(x.astype(np.float64) for x in counts), n_docs)
  return rows_FH @ metric.sums()[name](labels)


_compiled_totals = jax.jit(_totals, static_argnames=('metric', 'name'))


# _COUNTS is the largest number of label counts in a block of replicates, so
# that the counts fit in a core's cache. _WEIGHTS is the largest number of
# document weights in a block, so that the weights fit in memory.
_COUNTS, _WEIGHTS = 1 << 21, 1 << 25
# A block of at most _FEWEST replicates may have more than _COUNTS counts. No
# block has more than _MOST replicates.
_FEWEST, _MOST = 16, 512
_GROUPS = 100  # groups of documents, for the jackknife


def draws(seed: int, n_docs: int) -> Iterator[Int[np.ndarray, ' N']]:
  """Yields how often each document is drawn in N draws, int [N].

  They depend only on the seed and on N, so all systems get the same draws.
  """
  rng = np.random.default_rng((seed, n_docs))
  while True:
    drawn = rng.integers(0, n_docs, n_docs, np.int32)
    yield np.bincount(drawn, minlength=n_docs)


def leave_outs(seed: int, n_docs: int) -> Iterator[UInt8[np.ndarray, ' N']]:
  """Yields weights that leave out one group of documents at a time, uint8 [N].

  Documents are split at random into n_groups(n_docs) groups of equal size, up
  to one.
  """
  rng = np.random.default_rng((seed, n_docs, 2))
  groups = rng.permutation(n_docs) % n_groups(n_docs)
  for group in range(n_groups(n_docs)):
    yield (groups != group).astype(np.uint8)


def n_groups(n_docs: int) -> int:
  """Returns the number of groups that the jackknife leaves out in turn."""
  return min(_GROUPS, n_docs)


def swaps(seed: int, n_docs: int) -> Iterator[UInt8[np.ndarray, ' N']]:
  """Yields weights that exchange two systems' outputs at random, uint8 [N].

  A fair coin is thrown for each document (Noreen 1989), so that all 2^N ways of
  exchanging outputs are equally likely. With exactly half exchanged, the
  observed result, where none is, could never be drawn.
  """
  rng = np.random.default_rng((seed, n_docs, 1))
  while True:
    coins = np.frombuffer(rng.bytes(-(-n_docs // 8)), np.uint8)
    yield np.unpackbits(coins, count=n_docs)


def resample(
  weighings: Sequence[Reweighing],
  columns: Iterator[Int[np.ndarray, ' N']],
  n_replicates: int,
  task: str,
) -> list[dict[str, Shaped[np.ndarray, ' R']]]:
  """Computes the sums in each replicate, name -> [R], for each weighing.

  All weighings are of the same documents and get the same weights, of which
  `columns` yields at least n_replicates. `task` names the progress.
  """
  n_docs = weighings[0].n_docs
  size = block_size(n_docs, max(w.n_summed for w in weighings), n_replicates)
  weights_NR = np.zeros((n_docs, size), np.int32)
  blocks: list[list[dict[str, np.ndarray]]] = [[] for _ in weighings]
  with Progress(task, n_replicates) as progress:
    for start in range(0, n_replicates, size):
      n = min(size, n_replicates - start)
      # If n < size, the results of the last columns are cut off below.
      for i in range(n):
        weights_NR[:, i] = next(columns)
      for block, weighing in zip(blocks, weighings):
        sums = weighing.sums(weights_NR)
        block.append(
          {name: np.broadcast_to(row, size)[:n] for name, row in sums.items()}
        )
      progress.update(n)
  return [
    {name: np.concatenate([part[name] for part in block]) for name in block[0]}
    for block in blocks
  ]


def block_size(n_docs: int, n_summed: int, n_replicates: int) -> int:
  """Returns how many replicates to compute at a time, a power of two."""
  size = _MOST
  while size > 1 and (
    size >= 2 * n_replicates
    or size * n_docs > _WEIGHTS
    or (size > _FEWEST and size * n_summed > _COUNTS)
  ):
    size //= 2
  return size
