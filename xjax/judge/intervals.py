"""How sure the metrics of a slice are, and whether two systems differ."""

from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np

from xjax.core.types import PAD
from xjax.judge.evidence import Evidence
from xjax.judge.metrics.contract import (
  CORRECT,
  GOLD,
  PREDICTED,
  LabelMetric,
  Measure,
)
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.labels import f_beta
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

Sums = dict[str, np.ndarray]


def bootstrap(
  evidence: Evidence,
  table: Mapping[str, Measure],
  seed: int,
  replicates: int = 1000,
  level: float = 0.95,
) -> dict[str, Interval]:
  """Intervals of metrics over documents drawn with replacement.

  Args:
    evidence: of a slice.
    table: metric -> measure.
    seed: of the draws, which depend on it and the number of documents alone.
    replicates: how often as many documents are drawn as there are.
    level: of the intervals.

  Returns:
    Metric -> interval, of those that have a value; see interval for those
    that a replicate may lack.
  """
  names = names_of(m for m in table.values() if has_value(evidence, m))
  (sums,) = bootstrap_sums([evidence], names, seed, replicates)
  return intervals(evidence, table, sums, level)


def intervals(
  evidence: Evidence,
  table: Mapping[str, Measure],
  sums: Mapping[str, np.ndarray],
  level: float = 0.95,
) -> dict[str, Interval]:
  """Intervals of metrics, from the sums of bootstrap replicates.

  Args:
    evidence: of a slice.
    table: metric -> measure; the table of another protocol may share the sums.
    sums: as from bootstrap_sums.
    level: of the intervals.

  Returns:
    As bootstrap.
  """
  found = {}
  for name, measure in table.items():
    if has_value(evidence, measure):
      values_R = measure.value(sums)
      value = float(measure.value(evidence.sums))
      each = sure(values_R, value, level, len(evidence.part), measure)
      if each is not None:
        found[name] = _possible(each, values_R, value, measure)
  return found


def _possible(
  each: Interval, values_R: np.ndarray, value: float, measure: Measure
) -> Interval:
  """With the value, and without what no metric can be.

  That is less than 0, or a share above 1.
  """
  # Bits have no end; what is no share, as PSP-raw, is above 1 at times, and
  # weights of a user's may be negative.
  most = max(1.0, float(np.nanmax(values_R)))
  most = most if measure.metric.is_share else np.inf
  least = min(0.0, float(np.nanmin(values_R)))
  return dataclasses.replace(
    each,
    low=max(min(each.low, value), least),
    high=min(max(each.high, value), most),
  )


def has_value(evidence: Evidence, measure: Measure) -> bool:
  """Whether a metric was asked for, and is known."""
  return evidence.asks_for(measure) and not evidence.missing(measure)


def names_of(measures: Iterable[Measure]) -> frozenset[str]:
  """The sums that they depend on."""
  return frozenset(name for measure in measures for name in measure.sums)


def bootstrap_sums(
  systems: Sequence[Evidence],
  names: Collection[str],
  seed: int,
  replicates: int,
) -> list[Sums]:
  """Sums of the same draws for each system.

  Args:
    systems: of the same documents.
    names: of the sums.
    seed: of the draws.
    replicates: R.

  Returns:
    For each system: name -> float64 [replicates + groups]: the values of R
    draws, then those without each group of documents, for the jackknife.
  """
  if not names:
    return [{} for _ in systems]
  after = [outcomes(evidence, names) for evidence in systems]
  n_docs = len(after[0])
  columns = itertools.chain(
    itertools.islice(draws(seed, n_docs), replicates), leave_outs(seed, n_docs)
  )
  return resample(
    [Reweighing(names, each.none(), each) for each in after],
    columns,
    replicates + n_groups(n_docs),
    'bootstrap',
  )


def sure(
  values_R: np.ndarray,
  value: float,
  level: float,
  n_docs: int,
  measure: Measure,
) -> Interval | None:
  """The interval of a number that was computed from each replicate's sums.

  Args:
    values_R: float64 [replicates + groups], from sums as of bootstrap_sums.
    value: of all documents.
    level: of the interval.
    n_docs: N.
    measure: what the number is made of. Of sums over documents alone the
      bootstrap is enough.

  Returns:
    As significance.interval.
  """
  n_drawn = len(values_R) - n_groups(n_docs)
  by_label = isinstance(measure.metric, LabelMetric)
  left_out_values = values_R[n_drawn:] if by_label else None
  return interval(values_R[:n_drawn], value, level, left_out_values)


def randomized_sums(
  ours: Evidence,
  theirs: Evidence,
  names: Collection[str],
  seed: int,
  iterations: int,
) -> tuple[Sums, Sums]:
  """Sums of two systems that exchange their outputs on some documents.

  Args:
    ours: one system.
    theirs: another, of the same documents, labels and gold.
    names: of the sums.
    seed: of the exchanges.
    iterations: R.

  Returns:
    For either system: name -> float64 [R].
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


def outcomes(evidence: Evidence, names: Collection[str]) -> Outcomes:
  """What the system did with each document, as far as sums depend on it."""
  form = evidence.form
  # Only these are computed.
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


def label_f1(evidence: Evidence, end: str) -> np.ndarray:
  """float64 [L], F1 of each label.

  Args:
    evidence: of a slice.
    end: what ends the names of the sums of a set of decisions, as `@5`.
  """
  decisions, n_labels = _decisions(evidence)[end], len(evidence.part.mask)
  counts = (
    np.bincount(labels, minlength=n_labels)
    for labels in (
      decisions.correct().labels,
      decisions.labels,
      evidence.part.gold.values,
    )
  )
  with exact():
    return np.asarray(f_beta(*(jnp.asarray(c, jnp.float64) for c in counts)))


def _decisions(evidence: Evidence) -> dict[str, Decisions]:
  """What ends the names of a set's sums -> its decisions."""
  part = evidence.part
  lists, hits_NK = part.lists, part.lists.hits(part.gold, len(part.mask))
  listed_NK = lists.ids != PAD
  places_K = np.arange(lists.ids.shape[1])
  chosen = {f'@{k}': listed_NK & (places_K < k) for k in evidence.form.ks}
  for end, threshold in evidence.thresholds.items():
    chosen[end] = listed_NK & (lists.scores.astype(np.float64) > threshold)
  return {
    end: Decisions(np.nonzero(of_set)[0], lists.ids[of_set], hits_NK[of_set])
    for end, of_set in chosen.items()
  }
