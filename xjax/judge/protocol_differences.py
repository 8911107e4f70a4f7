"""Explains by counts why a metric differs between two protocols."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xjax.judge.metrics.metric import (
  GOLD_LABELS,
  UP_TO_LARGEST,
  AveragedLabels,
  DocumentMetric,
  LabelMetric,
  Metric,
  Protocol,
  Ratio,
  Recalled,
  SumLayout,
  kind_of,
  metric_classes,
)
from xjax.judge.slice_statistics import SliceStatistics

# Two values count as equal if they differ by at most this number, because
# rounding depends on the order of summation.
_SAME = 1e-9


def facts_of(evidence: SliceStatistics) -> dict[str, Any]:
  """Returns the counts that fill the fields of explanations (see reasons)."""
  part, sums = evidence.part, evidence.sums
  return {
    'without_gold': len(part) - part.n_with_gold,
    'labels': part.n_labels,
    'gold_labels': int(sums[GOLD_LABELS]),
    'train_counts': part.train_counts,
    **{
      name.replace(UP_TO_LARGEST, 'up_to_largest'): int(value)
      for name, value in sums.items()
      if name.startswith(UP_TO_LARGEST)
    },
  }


def differences(
  metrics: Mapping[str, Mapping[str, Mapping[str, Any]]],
  protocols: Sequence[Protocol],
  facts: Mapping[str, Mapping[str, Any]],
  missing: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, dict[str, dict[str, str]]]:
  """Explains why metrics differ from the same metrics of the first protocol.

  Args:
    metrics: protocol -> slice -> metric -> value.
    facts: slice -> counts of the slice, from facts_of.
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
          counts = _counts(facts[name], metric, first, other)
          sentences = [
            _singular(sentence.format(**counts))
            for sentence in reasons(metric, first, other, name)
          ]
          # A reason about 0 documents or labels does not explain a difference.
          if told := [s for s in sentences if not s.startswith('0 ')]:
            texts[metric] = '; '.join(told)
      for metric, reason in missing[other.name][name].items():
        # If the first protocol has no value either, its notes say why.
        if metric in values and ours.get(metric, 0.0) is not None:
          texts[metric] = reason
      if texts:
        slices[name] = texts
    if slices:
      by_protocol[other.name] = slices
  return by_protocol


def _singular(sentence: str) -> str:
  """Returns the sentence in the singular if it starts with the count 1."""
  for many, one in (
    ('documents have', 'document has'),
    ('labels are', 'label is'),
  ):
    if sentence.startswith(f'1 {many} '):
      return sentence.replace(many, one, 1)
  return sentence


def _differ(ours: Any, theirs: Any) -> bool:
  if ours is None or theirs is None:
    return ours is not theirs
  return abs(ours - theirs) > _SAME


def _counts(
  facts: Mapping[str, Any], metric: str, first: Protocol, other: Protocol
) -> dict[str, Any]:
  """Returns the texts that fill the fields of one metric's explanations."""
  k = metric.partition('@')[2]
  low, high = sorted((first.frequent_from, other.frequent_from))
  counts = facts['train_counts']
  between = int(np.sum((counts >= low) & (counts < high)))
  fields = {n: v for n, v in facts.items() if isinstance(v, int)}
  fields |= {
    'between': between,
    'up_to_largest': fields.get(f'up_to_largest@{k}'),
  }
  return {n: '' if v is None else f'{v:,}' for n, v in fields.items()}


def reasons(
  metric: str, first: Protocol, other: Protocol, slice_name: str = 'all'
) -> tuple[str, ...]:
  """Returns a text for each reason why two protocols may differ in a metric.

  The texts are sentences with fields for str.format. Each field is a number:

  - {without_gold}: documents that have no gold in the slice.
  - {labels}: all labels of the slice.
  - {gold_labels}: labels of the slice that are gold for some document.
  - {up_to_largest}: labels up to the largest index that is gold or listed.
  - {between}: labels that are frequent under only one of the two protocols.
  """
  kind, pair = kind_of(metric), (first, other)
  us, them = first.name, other.name
  instance, sentences = _metric_of(kind), []
  ours, theirs = (protocol.frequent_from for protocol in pair)
  if ours != theirs and slice_name in ('frequent', 'few'):
    sentences.append(
      '{between} labels are frequent under only one of the protocols: '
      f'{us} requires {ours} training documents, {them} requires {theirs}'
    )
  ours, theirs = (_WITHOUT_GOLD[p.skip_without_gold] for p in pair)
  is_mean = (
    isinstance(instance, DocumentMetric) and type(instance).under is None
  )
  if ours != theirs and (is_mean or kind in ('n_docs', 'n_skipped')):
    sentences.append(
      '{without_gold} documents have no gold label: '
      f'{ours} by {us}, {theirs} by {them}'
    )
  if first.psndcg != other.psndcg and kind == 'PSnDCG@k':
    divides, not_ = (us, them) if first.psndcg is Ratio.MEANS else (them, us)
    sentences.append(
      'the terms of a document are first divided by its ideal DCG in '
      f'{divides}, but not in {not_}'
    )
  ours, theirs = (_DIVISOR[protocol.psr] for protocol in pair)
  if ours != theirs and kind in ('PSR@k', 'PSR-norm@k'):
    sentences.append(
      f"a document's hits are divided by {ours} of its gold labels in {us}, "
      f'by {theirs} of its gold labels in {them}'
    )
  if isinstance(instance, LabelMetric) and instance.has_cut_off():
    ours, theirs = (_AVERAGED[instance.averaged_labels(p)] for p in pair)
    if ours != theirs:
      subject = 'coverage' if kind == 'coverage@k' else 'the mean'
      sentences.append(
        f'{subject} in {us} is over {ours}, in {them} over {theirs}'
      )
  return tuple(sentences)


# What protocols do, as the sentences say it.
_WITHOUT_GOLD = {True: 'skipped', False: 'counted as 0'}
_DIVISOR = {Recalled.WEIGHT: 'the weights', Recalled.COUNT: 'the number'}
_AVERAGED = {
  AveragedLabels.ALL: 'all {labels} labels',
  AveragedLabels.GOLD: 'the {gold_labels} labels that are gold for a document',
  AveragedLabels.UP_TO_LARGEST: (
    'the {up_to_largest} labels up to the largest index that is gold or listed'
  ),
}


def _metric_of(kind: str) -> Metric | None:
  metrics = (
    metric for cls in metric_classes() for metric in cls.variants(SumLayout())
  )
  return next((metric for metric in metrics if metric.name == kind), None)
