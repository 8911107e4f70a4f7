"""Compares systems with a baseline: intervals and significance tests."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from xjax.core.errors import ConfigError
from xjax.judge.comparison_request import ComparisonRequest
from xjax.judge.criteria import Criteria
from xjax.judge.intervals import (
  ReplicateSums,
  bootstrap_sums,
  clip_interval,
  randomized_sums,
  replicate_interval,
  sum_names,
  value_range,
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
from xjax.judge.slice_statistics import SliceStatistics

# A bin with fewer labels gets no t-test, because the test would say little (see
# the paper on binned macro-F1, section 5.2).
FEWEST_LABELS = 11
SIGNIFICANT = 0.05  # a p-value below this number is significant
_ITERATIONS = 1000  # of the test of best_systems


@dataclasses.dataclass(frozen=True)
class SystemDifference:
  """Holds the difference between a system and the baseline in one metric.

  If `baseline` or `value` is None, all fields below but `note` are None.
  """

  slice: str
  metric: str
  system: str
  baseline: float | None  # the baseline's value of the metric
  value: float | None  # the system's value of the metric
  difference: float | None = None  # value - baseline
  interval: Interval | None = None  # of the difference, by paired bootstrap
  p: float | None = None  # two-sided, of approximate randomization
  holm: float | None = None  # p, corrected for the number of systems
  note: str = ''  # why a value is None; '' if both exist


@dataclasses.dataclass(frozen=True)
class Gain:
  """Holds a system's gain in the macro-F1 of a frequency bin of labels."""

  metric: str  # contains the name of the bin
  system: str
  n_labels: int  # in the bin
  baseline: float  # macro-F1
  value: float  # macro-F1
  relative: float | None  # (value - baseline) / baseline; None for 0
  interval: Interval | None  # of `relative`, by paired bootstrap
  t_p: float | None = None  # macro t-test; None for 10 labels or fewer
  holm: float | None = None  # t_p, corrected for the number of systems


@dataclasses.dataclass(frozen=True)
class Comparison:
  differences: Sequence[SystemDifference]  # by slice, metric, system
  gains: Sequence[Gain]  # by frequency bin and system


def compare(
  systems: Mapping[str, Predictions],
  criteria: Criteria,
  plan: ComparisonRequest,
) -> Comparison:
  """Compares each system with the first system, under the protocol of xjax.

  All systems have the same documents, labels, gold and training counts, in the
  same order. The criteria are from plan.request().
  """
  baseline = next(iter(systems.values()))
  masks = judged_slices(baseline, criteria, XJAX.frequent_from)
  parts = []
  for name, mask in masks.items():
    if plan.has(name):
      evidence = _evidence(systems, name, mask, criteria)
      parts.append(_SliceComparison.of(name, evidence, plan))
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
) -> dict[str, SliceStatistics]:
  return {
    who: SliceStatistics.of(
      Slice.of(predictions, name, mask),
      criteria,
      criteria.protocols,
      thresholds(predictions, None),
      predictions.n_train,
    )
    for who, predictions in systems.items()
  }


def best_systems(
  systems: Mapping[str, Predictions], criteria: Criteria, metrics: Sequence[str]
) -> dict[str, dict[str, str]]:
  """Finds the systems that are significantly better than all others.

  The system with the highest value is tested against every other system, by
  approximate randomization with Holm's correction.

  Returns:
    Slice -> metric -> name of a system, if there is one.
  """
  first = next(iter(systems.values()))
  masks = judged_slices(first, criteria, XJAX.frequent_from)
  best = {}
  for name, mask in masks.items():
    evidence = _evidence(systems, name, mask, criteria)
    printed = next(iter(evidence.values())).tables[XJAX.name]
    table = {metric: printed[metric] for metric in metrics if metric in printed}
    best[name] = _best_in_slice(evidence, table)
  return best


def _best_in_slice(
  evidence: Mapping[str, SliceStatistics], table: Mapping[str, Measure]
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
      who: randomized_sums(evidence[leader], other, sums, 0, _ITERATIONS)
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
class _SliceComparison:
  name: str
  evidence: Mapping[str, SliceStatistics]  # by system; the baseline is first
  table: Mapping[str, Measure]  # the metrics, and the macro-F1 of each bin
  # System -> (metric -> value, metric -> why the value is None).
  results: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]]
  # System -> metric that has a value -> value in each bootstrap replicate.
  replicates: Mapping[str, Mapping[str, np.ndarray]]
  plan: ComparisonRequest

  @classmethod
  def of(
    cls,
    name: str,
    evidence: Mapping[str, SliceStatistics],
    plan: ComparisonRequest,
  ) -> '_SliceComparison':
    first, *_ = evidence.values()
    printed = first.tables[XJAX.name]
    names = {*plan.metrics, *plan.bin_metrics(first.bins)}
    table = {metric: printed[metric] for metric in printed if metric in names}
    results = {who: judge_slice(x, table) for who, x in evidence.items()}
    missing = next(iter(results.values()))[1]
    measures = [m for metric, m in table.items() if metric not in missing]
    sums = bootstrap_sums(
      list(evidence.values()), sum_names(measures), plan.seed, plan.replicates
    )
    replicates = {
      who: {
        m.name: m.value(of) for m in measures if m.name not in results[who][1]
      }
      for who, of in zip(evidence, sums, strict=True)
    }
    return cls(name, evidence, table, results, replicates, plan)

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
    """Returns the sums of a system and the baseline, with results exchanged."""
    names = sum_names(
      self.table[metric]
      for metric in self.replicates[who]
      if metric in self.plan.metrics
    )
    plan, pair = self.plan, (self.evidence[who], self.evidence[self.baseline])
    return randomized_sums(*pair, names, plan.seed, plan.iterations)

  def _difference(
    self, metric: str, who: str, exchanged: tuple[ReplicateSums, ReplicateSums]
  ) -> SystemDifference:
    pair = who, self.baseline
    value, base = (self.results[x][0][metric] for x in pair)
    row = SystemDifference(self.name, metric, who, base, value)
    for x in pair:
      if reason := self.results[x][1].get(metric):
        return dataclasses.replace(row, note=f'{x}: {reason}')
    measure, difference = self.table[metric], value - base
    ours_R, base_R = (self.replicates[x][metric] for x in pair)
    interval = self._interval(ours_R - base_R, difference, measure)
    if interval is not None:
      least, most = value_range(measure, np.concatenate([ours_R, base_R]))
      largest = most - least
      interval = clip_interval(interval, difference, -largest, largest)
    return dataclasses.replace(
      row,
      difference=difference,
      interval=interval,
      p=randomization_p(value, base, *map(measure.value, exchanged)),
    )

  def _interval(
    self, values_R: np.ndarray, value: float, measure: Measure
  ) -> Interval | None:
    n_docs = len(self.evidence[self.baseline].part)
    return replicate_interval(values_R, value, n_docs, measure)

  def gains(self) -> Iterator[Gain]:
    """Yields the gain of each system in each bin, at the largest cut-off."""
    binned = self.plan.bin_metrics(self.evidence[self.baseline].bins)
    f1 = {
      who: evidence.label_f1(self.plan.end)
      for who, evidence in self.evidence.items()
      if binned
    }
    for metric, labels_L in binned.items():
      rows = [
        self._gain(metric, who, f1[who][labels_L], f1[self.baseline][labels_L])
        for who in self.others
        if metric in self.replicates[who]
      ]
      yield from _correct_p_values(rows, 't_p')

  def _gain(
    self, metric: str, who: str, ours_L: np.ndarray, theirs_L: np.ndarray
  ) -> Gain:
    pair = who, self.baseline
    value, base = (self.results[x][0][metric] for x in pair)
    row = Gain(metric, who, len(ours_L), base, value, None, None)
    if base > 0:
      replicates_R = relative(*(self.replicates[x][metric] for x in pair))
      share = (value - base) / base
      interval = self._interval(replicates_R, share, self.table[metric])
      if interval is not None:  # no system can lose more than 100 %
        interval = clip_interval(interval, share, -1.0, np.inf)
      row = dataclasses.replace(row, relative=share, interval=interval)
    if row.n_labels < FEWEST_LABELS:
      return row
    return dataclasses.replace(row, t_p=paired_t_p(ours_L, theirs_L))


def _correct_p_values(
  rows: Sequence[SystemDifference] | Sequence[Gain], field: str
) -> list[Any]:
  """Returns copies of rows, where `holm` corrects all p-values of a field."""
  values = [getattr(row, field) for row in rows]
  corrected = iter(holm([p for p in values if p is not None]))
  return [
    row if p is None else dataclasses.replace(row, holm=next(corrected))
    for row, p in zip(rows, values)
  ]
