"""Compares systems with a baseline: intervals and significance tests."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from xjax.core.errors import ConfigError
from xjax.judge.comparison_plan import ComparisonPlan
from xjax.judge.criteria import Criteria
from xjax.judge.evidence import Evidence
from xjax.judge.intervals import (
  ReplicateSums,
  bootstrap_sums,
  label_f1,
  randomized_sums,
  replicate_interval,
  sum_names,
)
from xjax.judge.judge import judge_slice, judged_slices, thresholds
from xjax.judge.metrics.metric import Measure
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

# A bin with fewer labels gets no t-test, because the test would say little (see
# the paper on binned macro-F1, section 5.2).
FEWEST_LABELS = 11
SIGNIFICANT = 0.05  # a p-value below this number is significant


@dataclasses.dataclass(frozen=True)
class SystemDifference:
  """Holds the difference between a system and the baseline in one metric.

  If `baseline` or `value` is None, then `difference`, `interval`, `p` and
  `holm` are None.

  Attributes:
    slice: name of the slice.
    metric: name of the metric.
    system: name of the system.
    baseline: the baseline's value of the metric, or None.
    value: the system's value of the metric, or None.
    difference: value - baseline.
    interval: confidence interval of the difference, by the paired bootstrap.
    p: two-sided p-value of approximate randomization.
    holm: p after Holm's correction for the number of systems.
    note: why `baseline` or `value` is None; '' if both values exist.
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
  """Holds a system's gain in the macro-F1 of a frequency bin of labels.

  Attributes:
    metric: name of the metric, which contains the name of the bin.
    system: name of the system.
    n_labels: number of labels in the bin.
    baseline: the baseline's macro-F1.
    value: the system's macro-F1.
    relative: (value - baseline) / baseline; None if `baseline` is 0.
    interval: confidence interval of `relative`, by the paired bootstrap.
    t_p: p-value of the macro t-test; None for bins of 10 labels or fewer.
    holm: t_p after Holm's correction for the number of systems.
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
  """Holds the result of comparing systems with the baseline.

  Attributes:
    differences: one difference per slice, metric and system.
    gains: one gain per frequency bin and system.
  """

  differences: Sequence[SystemDifference]
  gains: Sequence[Gain]


def compare(
  systems: Mapping[str, Predictions], criteria: Criteria, plan: ComparisonPlan
) -> Comparison:
  """Compares each system with the first system, under the protocol of xjax.

  Args:
    systems: name -> predictions; the first system is the baseline. All systems
      have the same documents, labels, gold and training counts, in the same
      order.
    criteria: criteria from plan.request(), by which all systems are judged.
    plan: settings of the comparison.

  Raises:
    ConfigError: a metric of the plan does not exist.
  """
  baseline = next(iter(systems.values()))
  masks = judged_slices(baseline, criteria, XJAX.frequent_from)
  parts = []
  for name, mask in masks.items():
    if plan.has(name):
      evidence = _evidence(systems, name, mask, criteria)
      parts.append(_Part.of(name, evidence, criteria, plan))
  existing = {metric for part in parts for metric in part.table}
  for metric in plan.metrics:
    if metric not in existing:
      raise ConfigError(
        f'--metrics: {metric!r} does not exist for these predictions'
      )
  gains = [gain for part in parts for gain in part.gains()]
  return Comparison(
    [row for part in parts for row in part.differences()], gains
  )


def _evidence(
  systems: Mapping[str, Predictions],
  name: str,
  mask: np.ndarray,
  criteria: Criteria,
) -> dict[str, Evidence]:
  """Returns the evidence of each system in one slice."""
  return {
    who: Evidence.of(
      Slice.of(predictions, name, mask),
      criteria,
      criteria.protocols,
      thresholds(predictions, None),
      predictions.n_train,
    )
    for who, predictions in systems.items()
  }


def best_systems(
  systems: Mapping[str, Predictions],
  criteria: Criteria,
  metrics: Sequence[str],
  iterations: int = 1000,
  seed: int = 0,
) -> dict[str, dict[str, str]]:
  """Finds the systems that are significantly better than all others.

  The system with the highest value is tested against every other system, by
  approximate randomization with Holm's correction. The protocol is that of
  xjax.

  Args:
    systems: name -> predictions, as in compare.
    criteria: criteria by which all systems are judged.
    metrics: names of metrics; metrics that do not exist are left out.
    iterations: number of iterations of each test.
    seed: seed of the tests.

  Returns:
    Slice -> metric -> name of a system. A metric without such a system, or
    without a value for every system, is left out.
  """
  first = next(iter(systems.values()))
  masks = judged_slices(first, criteria, XJAX.frequent_from)
  best = {}
  for name, mask in masks.items():
    evidence = _evidence(systems, name, mask, criteria)
    part = next(iter(evidence.values()))
    points = tuple(part.cuts), tuple(part.bins), part.levels
    printed = criteria.table(XJAX, *points)
    table = {metric: printed[metric] for metric in metrics if metric in printed}
    best[name] = _best_in_slice(evidence, table, seed, iterations)
  return best


def _best_in_slice(
  evidence: Mapping[str, Evidence],
  table: Mapping[str, Measure],
  seed: int,
  iterations: int,
) -> dict[str, str]:
  """Returns the significantly best systems of one slice, by metric."""
  values = {who: judge_slice(x, table)[0] for who, x in evidence.items()}
  led: dict[str, list[str]] = {}
  for metric in table:
    of = {who: values[who][metric] for who in evidence}
    if None not in of.values():
      led.setdefault(max(of, key=of.__getitem__), []).append(metric)
  best = {}
  for leader, metrics in led.items():
    sums = sum_names(table[metric] for metric in metrics)
    exchanged = {
      who: randomized_sums(evidence[leader], other, sums, seed, iterations)
      for who, other in evidence.items()
      if who != leader
    }
    for metric in metrics:
      p_values = [
        randomization_p(
          values[leader][metric],
          values[who][metric],
          *map(table[metric].value, pair),
        )
        for who, pair in exchanged.items()
      ]
      if max(holm(p_values), default=1.0) < SIGNIFICANT:
        best[metric] = leader
  return best


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
  """Compares the systems in one slice.

  Attributes:
    name: name of the slice.
    evidence: system -> evidence; the baseline comes first.
    table: metric -> measure, for the requested metrics and for the macro-F1 of
      each bin.
    values: system -> metric -> value or None.
    reasons: system -> metric -> why the value is None.
    sums: system -> sums of the bootstrap replicates.
    plan: settings of the comparison.
  """

  name: str
  evidence: Mapping[str, Evidence]
  table: Mapping[str, Measure]
  values: Mapping[str, Mapping[str, Any]]
  reasons: Mapping[str, Mapping[str, str]]
  sums: Mapping[str, ReplicateSums]
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
    points = tuple(first.cuts), tuple(first.bins), first.levels
    printed = criteria.table(XJAX, *points)
    names = {*plan.metrics, *plan.bin_metrics(first.bins)}
    table = {metric: printed[metric] for metric in printed if metric in names}
    results = {who: judge_slice(x, table) for who, x in evidence.items()}
    values, _ = next(iter(results.values()))
    measures = [m for name, m in table.items() if values[name] is not None]
    sums = bootstrap_sums(
      list(evidence.values()), sum_names(measures), plan.seed, plan.replicates
    )
    return cls(
      name=name,
      evidence=evidence,
      table=table,
      values={who: values for who, (values, _) in results.items()},
      reasons={who: reasons for who, (_, reasons) in results.items()},
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
    """Yields each system's difference from the baseline, metric by metric."""
    exchanged = {who: self._exchange(who) for who in self.others}
    for metric in self.plan.metrics:
      if metric in self.table:
        rows = [
          self._difference(metric, who, exchanged[who]) for who in self.others
        ]
        yield from _correct_p_values(rows, 'p')

  def _exchange(self, who: str) -> tuple[ReplicateSums, ReplicateSums]:
    """Returns the randomized sums of a system and of the baseline.

    In each iteration, the results of random documents are exchanged between
    the system and the baseline.
    """
    measures = [
      measure
      for metric, measure in self.table.items()
      if metric in self.plan.metrics and self._has_values(metric, who)
    ]
    plan, base = self.plan, self.evidence[self.baseline]
    return randomized_sums(
      self.evidence[who], base, sum_names(measures), plan.seed, plan.iterations
    )

  def _has_values(self, metric: str, who: str) -> bool:
    """Returns whether the system and the baseline have a value of a metric."""
    pair = self.values[self.baseline], self.values[who]
    return all(values[metric] is not None for values in pair)

  def _difference(
    self,
    metric: str,
    who: str,
    exchanged: tuple[ReplicateSums, ReplicateSums],
  ) -> SystemDifference:
    base, value = self.values[self.baseline][metric], self.values[who][metric]
    row = SystemDifference(self.name, metric, who, base, value)
    if not self._has_values(metric, who):
      without = who if value is None else self.baseline
      note = f'{without}: {self.reasons[without][metric]}'
      return dataclasses.replace(row, note=note)
    measure = self.table[metric]
    replicates_R = self._replicates(metric, who) - self._replicates(
      metric, self.baseline
    )
    interval = self._interval(replicates_R, value - base, metric)
    if interval is not None:
      largest = self._largest_difference(metric, who)
      interval = clip_interval(interval, value - base, -largest, largest)
    return dataclasses.replace(
      row,
      difference=value - base,
      interval=interval,
      p=randomization_p(value, base, *map(measure.value, exchanged)),
    )

  def _largest_difference(self, metric: str, who: str) -> float:
    """Returns the largest possible difference between two systems.

    If the metric is a share, the result is 1, or more than 1 if a replicate is
    above 1 or below 0. For other metrics, the result is inf.
    """
    if not self.table[metric].metric.is_share:
      return np.inf
    values = [self._replicates(metric, x) for x in (who, self.baseline)]
    # Some metrics with is_share, such as PSP-raw, can be above 1.
    least, most = np.nanmin(values), np.nanmax(values)
    return max(1.0, float(most)) - min(0.0, float(least))

  def _interval(
    self, values_R: np.ndarray, value: float, metric: str
  ) -> Interval | None:
    """Returns the interval of a difference or a relative gain in a metric."""
    n_docs, level = len(self.evidence[self.baseline].part), self.plan.level
    measure = self.table[metric]
    return replicate_interval(values_R, value, level, n_docs, measure)

  def _replicates(self, metric: str, who: str) -> np.ndarray:
    """Returns a system's value of the metric in each replicate."""
    return self.table[metric].value(self.sums[who])

  def gains(self) -> Iterator[Gain]:
    """Yields the gain of each system in each bin, at the largest cut-off."""
    binned = self.plan.bin_metrics(self.evidence[self.baseline].bins)
    f1 = {
      who: label_f1(evidence, self.plan.end)
      for who, evidence in self.evidence.items()
      if binned
    }
    for metric, labels_L in binned.items():
      rows = [
        self._gain(metric, who, f1[who][labels_L], f1[self.baseline][labels_L])
        for who in self.others
        if self._has_values(metric, who)
      ]
      yield from _correct_p_values(rows, 't_p')

  def _gain(
    self, metric: str, who: str, ours_L: np.ndarray, theirs_L: np.ndarray
  ) -> Gain:
    pair = who, self.baseline
    value, base = (self.values[x][metric] for x in pair)
    row = Gain(metric, who, len(ours_L), base, value, None, None)
    if base > 0:
      replicates_R = relative(*(self._replicates(metric, w) for w in pair))
      share = (value - base) / base
      interval = self._interval(replicates_R, share, metric)
      if interval is not None:  # no system can lose more than 100 %
        interval = clip_interval(interval, share, -1.0, np.inf)
      row = dataclasses.replace(row, relative=share, interval=interval)
    if row.n_labels < FEWEST_LABELS:
      return row
    return dataclasses.replace(row, t_p=paired_t_p(ours_L, theirs_L))


def clip_interval(
  interval: Interval, value: float, least: float, most: float
) -> Interval:
  """Limits an interval to possible values, and makes it include `value`.

  Rounding may put `value` just outside the interval, for example if all
  replicates are equal.

  Args:
    interval: interval of the value.
    value: the value on all documents.
    least: the smallest possible value.
    most: the largest possible value.
  """
  low, high = max(interval.low, least), min(interval.high, most)
  return dataclasses.replace(
    interval, low=min(low, value), high=max(high, value)
  )


def _correct_p_values(
  rows: Sequence[SystemDifference] | Sequence[Gain], field: str
) -> list[Any]:
  """Returns copies of rows, with the corrected p-values in `holm`.

  The given field has the p-value of a row. The p-values of all rows are
  corrected together, by Holm's method.
  """
  values = [getattr(row, field) for row in rows]
  corrected = iter(holm([p for p in values if p is not None]))
  return [
    row if p is None else dataclasses.replace(row, holm=next(corrected))
    for row, p in zip(rows, values)
  ]
