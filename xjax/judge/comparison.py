"""Systems beside a baseline: differences, how sure they are, gains by bin."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from xjax.core.errors import ConfigError
from xjax.judge.comparison_plan import ComparisonPlan
from xjax.judge.criteria import Criteria
from xjax.judge.evidence import Evidence
from xjax.judge.intervals import (
  Sums,
  bootstrap_sums,
  label_f1,
  names_of,
  randomized_sums,
  sure,
)
from xjax.judge.judge import judge_slice, judged_slices, thresholds
from xjax.judge.metrics.contract import Measure
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.metrics.significance import (
  Interval,
  holm,
  paired_t_p,
  randomization_p,
  relative,
)
from xjax.judge.predictions import Predictions
from xjax.judge.slice import Slice

# A t-test is over the labels of a bin; with fewer it says little (paper on
# binned macro-F1, section 5.2).
FEWEST_LABELS = 11


@dataclasses.dataclass(frozen=True)
class SystemDifference:
  """One system beside the baseline in one metric.

  Attributes:
    slice: name.
    metric: name.
    system: name.
    baseline: the baseline's value; None where it has none.
    value: the system's.
    difference: value less baseline; None where one of them is, and so all
      that follows.
    interval: of the difference, by the paired bootstrap.
    p: of approximate randomization, two-sided.
    holm: p corrected for the number of systems.
    note: why a value is None.
  """

  slice: str
  metric: str
  system: str
  baseline: float | None
  value: float | None
  difference: float | None = None
  interval: Interval | None = None
  p: float | None = None
  holm: float | None = None
  note: str = ''


@dataclasses.dataclass(frozen=True)
class Gain:
  """One system beside the baseline in the macro-F1 of a frequency bin.

  Attributes:
    metric: with the bin.
    system: name.
    n_labels: in the bin.
    baseline: the baseline's value.
    value: the system's.
    relative: the difference as a share of the baseline's value; None where
      that is 0.
    interval: of it, by the paired bootstrap.
    t_p: of the macro t-test; None in bins of 10 labels or fewer.
    holm: t_p corrected for the number of systems.
  """

  metric: str
  system: str
  n_labels: int
  baseline: float
  value: float
  relative: float | None
  interval: Interval | None
  t_p: float | None = None
  holm: float | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
  """All that is said of the systems; the first of each is the baseline."""

  differences: Sequence[SystemDifference]
  gains: Sequence[Gain]


def compare(
  systems: Mapping[str, Predictions], criteria: Criteria, plan: ComparisonPlan
) -> Comparison:
  """Compares systems with the first of them, under our own protocol.

  Args:
    systems: name -> predictions, of the same documents, labels, gold and
      training counts, in the same order.
    criteria: what they are judged by, as of plan.asked().
    plan: what to compare in.

  Raises:
    ConfigError: a metric is not there.
  """
  baseline = next(iter(systems.values()))
  masks = judged_slices(baseline, criteria, XJAX.frequent_from)
  parts = []
  for name, mask in masks.items():
    if plan.has(name):
      evidence = {
        who: Evidence.of(
          Slice.of(predictions, name, mask),
          criteria,
          criteria.protocols,
          thresholds(predictions, None),
          predictions.n_train,
        )
        for who, predictions in systems.items()
      }
      parts.append(_Part.of(name, evidence, criteria, plan))
  known = {metric for part in parts for metric in part.table}
  for metric in plan.metrics:
    if metric not in known:
      raise ConfigError(f'--metrics: there is no {metric!r} here')
  gains = [gain for part in parts for gain in part.gains()]
  return Comparison(
    [row for part in parts for row in part.differences()], gains
  )


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
  """A slice of the comparison.

  Attributes:
    name: of the slice.
    evidence: system -> evidence, the baseline first.
    table: metric -> measure, of those asked for and of the bins.
    values: system -> metric -> value or None.
    reasons: system -> metric -> why it is None.
    sums: system -> sums of the bootstrap's replicates.
    plan: what to compare.
  """

  name: str
  evidence: Mapping[str, Evidence]
  table: Mapping[str, Measure]
  values: Mapping[str, Mapping[str, Any]]
  reasons: Mapping[str, Mapping[str, str]]
  sums: Mapping[str, Sums]
  plan: ComparisonPlan

  @classmethod
  def of(
    cls,
    name: str,
    evidence: Mapping[str, Evidence],
    criteria: Criteria,
    plan: ComparisonPlan,
  ) -> '_Part':
    first, *_ = evidence.values()
    every = criteria.table(XJAX, tuple(first.cuts), tuple(first.bins))
    wanted = {*plan.metrics, *plan.binned(first.bins)}
    table = {metric: every[metric] for metric in every if metric in wanted}
    judged = {who: judge_slice(each, table) for who, each in evidence.items()}
    values, _ = next(iter(judged.values()))
    known = [m for name, m in table.items() if values[name] is not None]
    sums = bootstrap_sums(
      list(evidence.values()), names_of(known), plan.seed, plan.replicates
    )
    return cls(
      name=name,
      evidence=evidence,
      table=table,
      values={who: values for who, (values, _) in judged.items()},
      reasons={who: reasons for who, (_, reasons) in judged.items()},
      sums=dict(zip(evidence, sums, strict=True)),
      plan=plan,
    )

  @property
  def baseline(self) -> str:
    return next(iter(self.evidence))

  @property
  def others(self) -> list[str]:
    return list(self.evidence)[1:]

  def differences(self) -> Iterator[SystemDifference]:
    """A row per metric asked for and system."""
    exchanged = {who: self._exchanged(who) for who in self.others}
    for metric in self.plan.metrics:
      if metric in self.table:
        rows = [
          self._difference(metric, who, exchanged[who]) for who in self.others
        ]
        yield from _corrected(rows, 'p')

  def _exchanged(self, who: str) -> tuple[Sums, Sums]:
    known = [
      measure
      for metric, measure in self.table.items()
      if metric in self.plan.metrics and self._known(metric, who)
    ]
    plan, base = self.plan, self.evidence[self.baseline]
    return randomized_sums(
      self.evidence[who], base, names_of(known), plan.seed, plan.iterations
    )

  def _known(self, metric: str, who: str) -> bool:
    pair = self.values[self.baseline], self.values[who]
    return all(values[metric] is not None for values in pair)

  def _difference(
    self, metric: str, who: str, exchanged: tuple[Sums, Sums]
  ) -> SystemDifference:
    base, value = self.values[self.baseline][metric], self.values[who][metric]
    row = SystemDifference(self.name, metric, who, base, value)
    if not self._known(metric, who):
      lacks = who if value is None else self.baseline
      note = f'{lacks}: {self.reasons[lacks][metric]}'
      return dataclasses.replace(row, note=note)
    measure = self.table[metric]
    replicates_R = self._replicates(metric, who) - self._replicates(
      metric, self.baseline
    )
    interval = self._sure(replicates_R, value - base, metric)
    if interval is not None:
      reach = self._reach(metric, who)
      interval = within(interval, value - base, -reach, reach)
    return dataclasses.replace(
      row,
      difference=value - base,
      interval=interval,
      p=randomization_p(value, base, *map(measure.value, exchanged)),
    )

  def _reach(self, metric: str, who: str) -> float:
    """The largest difference there can be; shares differ by 1 at most."""
    if not self.table[metric].metric.is_share:
      return np.inf
    values = [self._replicates(metric, each) for each in (who, self.baseline)]
    # What is no share, as PSP-raw, is above 1 at times.
    least, most = np.nanmin(values), np.nanmax(values)
    return max(1.0, float(most)) - min(0.0, float(least))

  def _sure(
    self, values_R: np.ndarray, value: float, metric: str
  ) -> Interval | None:
    n_docs = len(self.evidence[self.baseline].part)
    return sure(values_R, value, self.plan.level, n_docs, self.table[metric])

  def _replicates(self, metric: str, who: str) -> np.ndarray:
    return self.table[metric].value(self.sums[who])

  def gains(self) -> Iterator[Gain]:
    """A row per bin and system, at the largest k."""
    binned = self.plan.binned(self.evidence[self.baseline].bins)
    f1 = {
      who: label_f1(evidence, self.plan.end)
      for who, evidence in self.evidence.items()
      if binned
    }
    for metric, labels_L in binned.items():
      rows = [
        self._gain(metric, who, f1[who][labels_L], f1[self.baseline][labels_L])
        for who in self.others
        if self._known(metric, who)
      ]
      yield from _corrected(rows, 't_p')

  def _gain(
    self, metric: str, who: str, ours_L: np.ndarray, theirs_L: np.ndarray
  ) -> Gain:
    pair = who, self.baseline
    value, base = (self.values[each][metric] for each in pair)
    row = Gain(metric, who, len(ours_L), base, value, None, None)
    if base > 0:
      replicates_R = relative(*(self._replicates(metric, w) for w in pair))
      share = (value - base) / base
      interval = self._sure(replicates_R, share, metric)
      if interval is not None:  # nothing loses more than all
        interval = within(interval, share, -1.0, np.inf)
      row = dataclasses.replace(row, relative=share, interval=interval)
    if row.n_labels < FEWEST_LABELS:
      return row
    return dataclasses.replace(row, t_p=paired_t_p(ours_L, theirs_L))


def within(
  interval: Interval, value: float, least: float, most: float
) -> Interval:
  """With the value, and without what cannot be.

  Args:
    interval: of the value.
    value: it is rounded to another last digit at times, and no replicate may
      differ from another.
    least: that there can be.
    most: likewise.
  """
  low, high = max(interval.low, least), min(interval.high, most)
  return dataclasses.replace(
    interval, low=min(low, value), high=max(high, value)
  )


def _corrected(
  rows: Sequence[SystemDifference] | Sequence[Gain], field: str
) -> list[Any]:
  """The rows, with the p-values of a field corrected for how many there are."""
  values = [getattr(row, field) for row in rows]
  raised = iter(holm([p for p in values if p is not None]))
  return [
    row if p is None else dataclasses.replace(row, holm=next(raised))
    for row, p in zip(rows, values)
  ]
