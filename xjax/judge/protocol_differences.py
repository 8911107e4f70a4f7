"""Explains by counts why a metric differs between two protocols."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from xjax.judge.metrics.metric import (
  GOLD_LABELS,
  UP_TO_LARGEST,
  AveragedLabels,
  DocumentMetric,
  LabelMetric,
  Metric,
  MetricSettings,
  Protocol,
  Ratio,
  Recalled,
  kind_of,
  metric_classes,
)
from xjax.judge.slice_statistics import SliceStatistics

# Two values count as equal if they differ by at most this number, because
# rounding depends on the order of summation.
_SAME = 1e-9
# What protocols do, as the sentences say it.
_WITHOUT_GOLD = {True: 'skipped', False: 'counted as 0'}
_DIVISOR = {Recalled.WEIGHT: 'the weights', Recalled.COUNT: 'the number'}


def differences(
  metrics: Mapping[str, Mapping[str, Mapping[str, Any]]],
  protocols: Sequence[Protocol],
  facts: Mapping[str, Mapping[Any, Any]],
  missing: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, dict[str, dict[str, str]]]:
  """Explains why metrics differ from the same metrics of the first protocol.

  Args:
    metrics: protocol -> slice -> metric -> value.
    facts: slice -> numbers of its documents and labels, from facts_of.
    missing: protocol -> slice -> metric -> why there is no value.

  Returns:
    Protocol -> slice -> metric -> text, where the value differs, or is missing
    although the first protocol has it, or lacks this metric.
  """
  first, *others = protocols
  by_protocol = {}
  for other in others:
    slices = {}
    for name, values in metrics[other.name].items():
      ours, texts = metrics[first.name][name], {}
      for metric, value in values.items():
        if metric in ours and _differ(ours[metric], value):
          # A reason about 0 documents or labels does not explain a difference.
          reasons = _reasons(metric, name, (first, other), facts[name])
          if known := [why for why in reasons if not why.startswith('0 ')]:
            texts[metric] = '; '.join(known)
      for metric, reason in missing[other.name][name].items():
        # If the first protocol has no value either, its notes say why.
        if metric in values and ours.get(metric, 0.0) is not None:
          texts[metric] = reason
      if texts:
        slices[name] = texts
    if slices:
      by_protocol[other.name] = slices
  return by_protocol


def facts_of(evidence: SliceStatistics) -> dict[Any, Any]:
  """Returns the numbers of documents and labels that reasons name."""
  part, sums = evidence.part, evidence.sums
  largest = {n: int(x) for n, x in sums.items() if n.startswith(UP_TO_LARGEST)}
  return {
    'without gold': len(part) - part.n_with_gold,
    'train counts': part.train_counts,
    AveragedLabels.ALL: part.n_labels,
    AveragedLabels.GOLD: int(sums[GOLD_LABELS]),
    **largest,
  }


def _differ(ours: Any, theirs: Any) -> bool:
  if ours is None or theirs is None:
    return ours is not theirs
  return abs(ours - theirs) > _SAME


def _reasons(
  metric: str,
  slice_name: str,
  pair: tuple[Protocol, Protocol],
  facts: Mapping[Any, Any],
) -> Iterator[str]:
  """Yields a sentence for each reason why two protocols differ in a metric."""
  kind, (us, them) = kind_of(metric), (protocol.name for protocol in pair)
  instance = _metrics_by_kind().get(kind)
  ours, theirs = (protocol.frequent_from for protocol in pair)
  if ours != theirs and slice_name in ('frequent', 'few'):
    counts = facts['train counts']
    low, high = sorted((ours, theirs))
    n = int(np.sum((counts >= low) & (counts < high)))
    yield (
      f'{_number(n, "label is", "labels are")} frequent under only one of the '
      f'protocols: {us} requires {ours} training documents, {them} requires '
      f'{theirs}'
    )
  ours, theirs = (_WITHOUT_GOLD[p.skip_without_gold] for p in pair)
  is_mean = isinstance(instance, DocumentMetric) and instance.under is None
  if ours != theirs and (is_mean or kind in ('n_docs', 'n_skipped')):
    n = facts['without gold']
    yield (
      f'{_number(n, "document has", "documents have")} no gold label: {ours} '
      f'by {us}, {theirs} by {them}'
    )
  ours, theirs = (protocol.psndcg for protocol in pair)
  if ours != theirs and kind == 'PSnDCG@k':
    divides, not_ = (us, them) if ours is Ratio.MEANS else (them, us)
    yield (
      'the terms of a document are first divided by its ideal DCG in '
      f'{divides}, but not in {not_}'
    )
  ours, theirs = (_DIVISOR[protocol.psr] for protocol in pair)
  if ours != theirs and kind in ('PSR@k', 'PSR-norm@k'):
    yield (
      f"a document's hits are divided by {ours} of its gold labels in {us}, "
      f'by {theirs} of its gold labels in {them}'
    )
  if isinstance(instance, LabelMetric) and instance.has_cut_off():
    end = metric[metric.index('@') :].partition('[')[0]
    ours, theirs = (
      _averaged(instance.averaged_labels(protocol), end, facts)
      for protocol in pair
    )
    if ours != theirs:
      subject = 'coverage' if kind == 'coverage@k' else 'the mean'
      yield f'{subject} in {us} is over {ours}, in {them} over {theirs}'


def _number(n: int, one: str, many: str) -> str:
  return f'{n:,} {one if n == 1 else many}'


def _averaged(
  averaged: AveragedLabels, end: str, facts: Mapping[Any, Any]
) -> str:
  match averaged:
    case AveragedLabels.ALL:
      return f'all {facts[averaged]:,} labels'
    case AveragedLabels.GOLD:
      return f'the {facts[averaged]:,} labels that are gold for a document'
    case AveragedLabels.UP_TO_LARGEST:
      return (
        f'the {facts[f"{UP_TO_LARGEST}{end}"]:,} labels up to the largest '
        'index that is gold or listed'
      )


def _metrics_by_kind() -> dict[str, Metric]:
  settings = MetricSettings()
  every = [
    metric for cls in metric_classes() for metric in cls.variants(settings)
  ]
  return {metric.name: metric for metric in reversed(every)}
