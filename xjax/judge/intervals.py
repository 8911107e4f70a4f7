"""Computes bootstrap intervals, and the sums that randomization tests need."""

from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
import itertools

import numpy as np

from xjax.core.types import PAD
from xjax.judge.evidence import SliceStatistics
from xjax.judge.metrics.labels import f_beta
from xjax.judge.metrics.metric import (
  CORRECT,
  GOLD,
  PREDICTED,
  LabelMetric,
  Measure,
)
from xjax.judge.metrics.outcomes import Decisions, Outcomes
from xjax.judge.metrics.resampling import (
  Reweighing,
  draws,
  leave_outs,
  n_groups,
  resample,
  swaps,
)
from xjax.judge.metrics.significance import Interval, interval

# Name of a sum -> float64, its value in each replicate.
ReplicateSums = dict[str, np.ndarray]


def bootstrap(
  evidence: SliceStatistics,
  table: Mapping[str, Measure],
  seed: int,
  replicates: int = 1000,
  level: float = 0.95,
) -> dict[str, Interval]:
  """Computes bootstrap intervals of metrics, by drawing N of N documents.

  Metrics without a value are left out, and so are metrics for which too many
  replicates have no value; see significance.interval.
  """
  names = sum_names(m for m in table.values() if has_value(evidence, m))
  (sums,) = bootstrap_sums([evidence], names, seed, replicates)
  return intervals(evidence, table, sums, level)


def intervals(
  evidence: SliceStatistics,
  table: Mapping[str, Measure],
  sums: Mapping[str, np.ndarray],
  level: float = 0.95,
) -> dict[str, Interval]:
  """Computes intervals of metrics from a result of bootstrap_sums.

  Tables of several protocols may share the sums.
  """
  by_metric = {}
  for name, measure in table.items():
    if has_value(evidence, measure):
      values_R = measure.value(sums)
      value = float(measure.value(evidence.sums))
      n_docs = len(evidence.part)
      ends = replicate_interval(values_R, value, level, n_docs, measure)
      if ends is not None:
        by_metric[name] = _clip_interval(ends, values_R, value, measure)
  return by_metric


def _clip_interval(
  ends: Interval, values_R: np.ndarray, value: float, measure: Measure
) -> Interval:
  """Limits an interval to possible values, and makes it include the value."""
  # Some metrics can leave this range: PSP-raw can be above 1, and a metric with
  # negative weights of the user can be below 0. So the limits are moved to
  # include all replicates. Entropy is not a share and has no upper limit.
  most = max(1.0, float(np.nanmax(values_R)))
  most = most if measure.metric.is_share else np.inf
  least = min(0.0, float(np.nanmin(values_R)))
  return dataclasses.replace(
    ends,
    low=max(min(ends.low, value), least),
    high=min(max(ends.high, value), most),
  )


def has_value(evidence: SliceStatistics, measure: Measure) -> bool:
  """Returns whether a metric was requested and has a value."""
  return evidence.is_requested(measure) and not evidence.missing(measure)


def sum_names(measures: Iterable[Measure]) -> frozenset[str]:
  """Returns the names of the sums that the measures depend on."""
  return frozenset(name for measure in measures for name in measure.sums)


def bootstrap_sums(
  systems: Sequence[SliceStatistics],
  names: Collection[str],
  seed: int,
  replicates: int,
) -> list[ReplicateSums]:
  """Computes the bootstrap sums of systems, with the same draws for all.

  Returns:
    For each system, name -> float64 [replicates + groups]. The sums of the
    replicates come first. The sums for the jackknife follow, each of which
    leaves out one group of documents.
  """
  if not names:
    return [{} for _ in systems]
  after = [outcomes(evidence, names) for evidence in systems]
  n_docs = len(after[0])
  columns = itertools.chain(
    itertools.islice(draws(seed, n_docs), replicates), leave_outs(seed, n_docs)
  )
  return resample(
    [Reweighing(names, drawn.zeros(), drawn) for drawn in after],
    columns,
    replicates + n_groups(n_docs),
    'bootstrap',
  )


def replicate_interval(
  values_R: np.ndarray,
  value: float,
  level: float,
  n_docs: int,
  measure: Measure,
) -> Interval | None:
  """Computes the interval of a number from its value in each replicate.

  `values_R` come from bootstrap_sums: [replicates + groups]. The jackknife is
  used only for label metrics.
  """
  n_drawn = len(values_R) - n_groups(n_docs)
  by_label = isinstance(measure.metric, LabelMetric)
  left_out_values = values_R[n_drawn:] if by_label else None
  return interval(values_R[:n_drawn], value, level, left_out_values)


def randomized_sums(
  ours: SliceStatistics,
  theirs: SliceStatistics,
  names: Collection[str],
  seed: int,
  iterations: int,
) -> tuple[ReplicateSums, ReplicateSums]:
  """Computes the sums of two systems whose outputs are exchanged at random.

  Both have the same documents, labels and gold. The sums are float64 [R].
  """
  if not names:
    return {}, {}
  a, b = outcomes(ours, names), outcomes(theirs, names)
  first, second = resample(
    [Reweighing(names, a, b), Reweighing(names, b, a)],
    swaps(seed, len(a)),
    iterations,
    'randomization',
  )
  return first, second


def outcomes(evidence: SliceStatistics, names: Collection[str]) -> Outcomes:
  """Returns what a system predicted, for the sums of these names."""
  form = evidence.form
  # Only the terms of requested sums are computed, because each further term
  # takes time.
  metrics = tuple(
    metric
    for metric in form.metrics
    if any(
      f'{name}{end}' in names
      for name in metric.sums()
      for end in form.ends(metric)
    )
  )
  narrow = dataclasses.replace(form, metrics=metrics)
  values = dataclasses.replace(evidence, form=narrow).terms()
  gold = evidence.part.gold
  terms = {
    name: row
    for name, row in zip(narrow.terms, values, strict=True)
    if name in names
  }
  rows = evidence.path_terms
  terms |= {name: rows[name] for name in rows if name in names}
  terms[GOLD] = gold.lengths.astype(np.float64)
  sets = _decisions(evidence)
  for end, decisions in sets.items():
    terms[f'{PREDICTED}{end}'] = decisions.per_document(len(gold))
    terms[f'{CORRECT}{end}'] = decisions.correct().per_document(len(gold))
  return Outcomes(
    terms=terms,
    sets=sets,
    gold=gold,
    mask=evidence.part.mask,
    bins=evidence.bins,
    fixed=evidence.fixed,
    metrics=evidence.metrics,
  )


def label_f1(evidence: SliceStatistics, end: str) -> np.ndarray:
  """Computes the F1 of each label, float64 [L], at a suffix such as `@5`."""
  decisions, n_labels = _decisions(evidence)[end], len(evidence.part.mask)
  counts = (
    np.bincount(labels, minlength=n_labels).astype(np.float64)
    for labels in (
      decisions.correct().labels,
      decisions.labels,
      evidence.part.gold.values,
    )
  )
  return f_beta(*counts)


def _decisions(evidence: SliceStatistics) -> dict[str, Decisions]:
  part = evidence.part
  lists, hits_NK = part.lists, part.lists.hits(part.gold, len(part.mask))
  listed_NK = lists.ids != PAD
  places_K = np.arange(lists.ids.shape[1])
  chosen = {f'@{k}': listed_NK & (places_K < k) for k in evidence.form.ks}
  for end, threshold in evidence.thresholds.items():
    chosen[end] = listed_NK & (lists.scores.astype(np.float64) > threshold)
  return {
    end: Decisions(np.nonzero(in_NK)[0], lists.ids[in_NK], hits_NK[in_NK])
    for end, in_NK in chosen.items()
  }
