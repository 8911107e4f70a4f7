"""Sums of many replicates: of drawn documents, or of exchanged outputs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from xjax.core.progress import Progress
from xjax.judge.metrics.contract import (
  GOLD_LABELS,
  UP_TO_LARGEST,
  LabelMetric,
)
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.label_sums import LabelTable, label_sums
from xjax.judge.metrics.outcomes import Counts, Outcomes, Slots

_ONE = LabelTable.of(np.ones(1, bool), {})


class Reweighing:
  """Sums as functions of the documents' weights.

  Attributes:
    n_docs: N.
    n_found: labels that are counted one by one.
  """

  def __init__(self, names: Collection[str], before: Outcomes, after: Outcomes):
    """Prepares the sums.

    Args:
      names: of the sums, all of them terms or fixed in the outcomes, or sums
        over labels.
      before: outcomes of the documents of weight 0; in a bootstrap
        after.none().
      after: those of weight 1, of the same documents. A weight of w adds w
        times the difference to the sums and counts per label.
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
    wanted = {end: _wanted(names, end, after) for end in after.sets}
    ends = [end for end, sums in wanted.items() if sums]
    only_correct = all(
      metric.only_correct for sums in wanted.values() for metric, _ in sums
    )
    count_gold = GOLD_LABELS in names
    slots = Slots.of(before, after, ends, count_gold, only_correct)
    self.n_found = slots.n_found
    self._gold = slots.counts(before.golden, after.golden, slots.n_gold)
    self._sets = {
      end: _SetSums.of(slots, wanted[end], before, after, end) for end in ends
    }

  def sums(self, weights_NR: np.ndarray) -> dict[str, np.ndarray | int | float]:
    """Name -> float64 [R], or a number where it is the same in all.

    Args:
      weights_NR: int32, of the documents in each of R replicates.
    """
    rows_MR = self._base_M1 + self._change_MN @ weights_NR.astype(np.float64)
    found = {**self._fixed, **dict(zip(self._terms, rows_MR, strict=True))}
    for name, (before_N, after_N) in self._largest.items():
      largest_NR = np.where(weights_NR > 0, after_N[:, None], before_N[:, None])
      found[name] = largest_NR.max(0).astype(np.float64)
    if not self._sets and GOLD_LABELS not in self._names:
      return found
    gold_counts = self._gold.at(weights_NR)
    if GOLD_LABELS in self._names:
      found[GOLD_LABELS] = np.count_nonzero(gold_counts, 0).astype(np.float64)
    gold_HR = gold_counts[: self.n_found]
    with exact():
      # All are under way before the first is waited for.
      totals = {
        name: rows_FR
        for end, each in self._sets.items()
        for name, rows_FR in each.totals(weights_NR, gold_HR, end).items()
      }
      for names, rows_FR in totals.items():
        found |= zip(names, np.asarray(rows_FR), strict=True)
    return found


# A metric with the name of one of its sums.
_Sum = tuple[LabelMetric, str]


def _wanted(
  names: Collection[str], end: str, outcomes: Outcomes
) -> dict[_Sum, list[str]]:
  """The sums over labels that are asked for -> the bins they are asked of."""
  found: dict[str, tuple[_Sum, list[str]]] = {}
  for metric in outcomes.metrics:
    for name in metric.sums():
      whole = f'{name}{end}'
      bins = [b for b in outcomes.bins if f'{whole}[{b}]' in names]
      if not metric.is_binned:
        bins = found[name][1] if name in found else []
      if bins or whole in names:
        found[name] = (metric, name), bins
  return dict(found.values())


@dataclasses.dataclass(frozen=True, eq=False)
class _SetSums:
  """Sums over labels of one set of decisions.

  Attributes:
    correct: counts.
    predicted: counts.
    sums: to take -> the bins to take them of.
    rows: bin, '' for all labels -> float64 [H], 1 where a label is in it.
  """

  correct: Counts
  predicted: Counts
  sums: Mapping[_Sum, Sequence[str]]
  rows: Mapping[str, np.ndarray]

  @classmethod
  def of(
    cls,
    slots: Slots,
    sums: Mapping[_Sum, Sequence[str]],
    before: Outcomes,
    after: Outcomes,
    end: str,
  ) -> '_SetSums':
    sets = [each.sets[end] for each in (before, after)]
    rows = {'': np.ones(slots.n_found)}
    for name in {bin_ for bins in sums.values() for bin_ in bins}:
      rows[name] = np.zeros(slots.n_found)
      rows[name][: len(slots.found_H)] = after.bins[name][slots.found_H]
    return cls(
      slots.counts(*(each.correct() for each in sets), slots.n_found),
      slots.counts(*sets, slots.n_found),
      sums,
      rows,
    )

  def totals(
    self, weights_NR: np.ndarray, gold_HR: np.ndarray, end: str
  ) -> dict[tuple[str, ...], jax.Array]:
    """Names of sums -> float64 [F, R], a row for each of them."""
    counts = self.correct.at(weights_NR), self.predicted.at(weights_NR), gold_HR
    n_docs, found = np.float64(len(weights_NR)), {}
    # Each sum in a program of its own: XLA runs one on all cores, but several
    # together on one.
    for (metric, name), bins in self.sums.items():
      rows_FH = np.stack([self.rows[bin_] for bin_ in ('', *bins)])
      names = f'{name}{end}', *(f'{name}{end}[{bin_}]' for bin_ in bins)
      found[names] = _totals(*counts, rows_FH, n_docs, metric, name)
    return found


@partial(jax.jit, static_argnames=('metric', 'name'))
def _totals(
  correct_HR: Int[Array | np.ndarray, 'H R'],
  predicted_HR: Int[Array | np.ndarray, 'H R'],
  gold_HR: Int[Array | np.ndarray, 'H R'],
  rows_FH: Float[Array | np.ndarray, 'F H'],
  n_docs: Float[Array | np.ndarray | np.float64, ''],
  metric: LabelMetric,
  name: str,
) -> Float[Array, 'F R']:
  counts = [jnp.asarray(x) for x in (correct_HR, predicted_HR, gold_HR)]
  # Each label is a sum of its own; the replicates, last, fill the registers.
  each = (x[..., None] for x in counts)
  values, _ = label_sums(*each, _ONE, n_docs, (metric,))
  return jnp.asarray(rows_FH) @ values[name]


# Numbers of a block, at most: counts per label should stay in a core's cache,
# weights of documents in memory.
_COUNTS, _WEIGHTS = 1 << 21, 1 << 25
_FEWEST, _MOST = 16, 512  # replicates of a block
_GROUPS = 100  # of documents, for the jackknife


def draws(seed: int, n_docs: int) -> Iterator[np.ndarray]:
  """Yields int [N]: how often each document is drawn, N times in all.

  They depend on the seed and N alone, so that systems are compared on the same
  draws.
  """
  rng = np.random.default_rng((seed, n_docs))
  while True:
    drawn = rng.integers(0, n_docs, n_docs, np.int32)
    yield np.bincount(drawn, minlength=n_docs)


def leave_outs(seed: int, n_docs: int) -> Iterator[np.ndarray]:
  """Yields uint8 [N] for each group of documents: 0 for those in it, else 1.

  n_groups(n_docs) of them, at random, of sizes that differ by one at most.
  """
  rng = np.random.default_rng((seed, n_docs, 2))
  groups = rng.permutation(n_docs) % n_groups(n_docs)
  for group in range(n_groups(n_docs)):
    yield (groups != group).astype(np.uint8)


def n_groups(n_docs: int) -> int:
  """Groups of documents that the jackknife leaves out, one after the other."""
  return min(_GROUPS, n_docs)


def swaps(seed: int, n_docs: int) -> Iterator[np.ndarray]:
  """Yields uint8 [N]: 1 where two systems' outputs are exchanged.

  A fair coin for each document (Noreen 1989), so half of them on average: if
  the systems are alike, all 2^N ways are as likely as the one that was seen,
  which is among them. With exactly half exchanged it could not be.
  """
  rng = np.random.default_rng((seed, n_docs, 1))
  while True:
    coins = np.frombuffer(rng.bytes(-(-n_docs // 8)), np.uint8)
    yield np.unpackbits(coins, count=n_docs)


def resample(
  weighings: Sequence[Reweighing],
  columns: Iterator[np.ndarray],
  n_replicates: int,
  what: str,
) -> list[dict[str, np.ndarray]]:
  """The sums of every replicate.

  Args:
    weighings: of the same N documents, which get the same weights.
    columns: yields weights [N], of a replicate each, without end.
    n_replicates: how many.
    what: says the progress.

  Returns:
    For each of weighings: name -> float64 [n_replicates].
  """
  n_docs = weighings[0].n_docs
  size = block_size(n_docs, max(w.n_found for w in weighings), n_replicates)
  weights_NR = np.zeros((n_docs, size), np.int32)
  blocks: list[list[dict[str, np.ndarray]]] = [[] for _ in weighings]
  with Progress(what, n_replicates) as shown:
    for start in range(0, n_replicates, size):
      n = min(size, n_replicates - start)
      for i in range(n):  # the columns after them are cut off below
        weights_NR[:, i] = next(columns)
      for block, weighing in zip(blocks, weighings):
        sums = weighing.sums(weights_NR)
        block.append(
          {name: np.broadcast_to(row, size)[:n] for name, row in sums.items()}
        )
      shown.update(n)
  return [
    {name: np.concatenate([part[name] for part in block]) for name in block[0]}
    for block in blocks
  ]


def block_size(n_docs: int, n_found: int, n_replicates: int) -> int:
  """Replicates at a time: a power of two.

  Args:
    n_docs: documents.
    n_found: labels that are counted one by one.
    n_replicates: of all blocks.
  """
  size = _MOST
  while size > 1 and (
    size >= 2 * n_replicates
    or size * n_docs > _WEIGHTS
    or (size > _FEWEST and size * n_found > _COUNTS)
  ):
    size //= 2
  return size
