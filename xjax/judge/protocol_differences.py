"""Explains by counts why a metric differs between two protocols."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xjax.judge.evidence import SliceStatistics
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

# Two values count as equal if they differ by at most this number, because
# rounding depends on the order of summation.
_SAME = 1e-9


def facts_of(evidence: SliceStatistics) -> dict[str, Any]:
  """Returns the counts that fill the fields of explanations.

  There is a field `up_to_largest@k` for each cut-off k. The field `between` is
  computed from the array `train_counts`.
  """
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
    Protocol -> slice -> metric -> text, where the value differs from the value
      under the first protocol, or is missing. If it is missing, the first
      protocol has a value, or does not have this metric.
  """
  first, *others = protocols
  by_protocol = {}
  for other in others:
    slices = {}
    for name, values in metrics[other.name].items():
      ours, absent = metrics[first.name][name], missing[other.name][name]
      texts = _explain_slice(ours, values, first, other, name, facts)
      texts |= {
        metric: reason
        for metric, reason in absent.items()
        if _is_unexplained(metric, ours, values)
      }
      slices |= {name: texts} if texts else {}
    if slices:
      by_protocol[other.name] = slices
  return by_protocol


def _explain_slice(
  ours: Mapping[str, Any],
  theirs: Mapping[str, Any],
  first: Protocol,
  other: Protocol,
  name: str,
  facts: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
  texts = {}
  for metric, value in theirs.items():
    if metric in ours and _differ(ours[metric], value):
      counts = _counts(facts[name], metric, first, other)
      sentences = [
        s.format(**counts) for s in reasons(metric, first, other, name)
      ]
      # A reason about 0 documents or 0 labels does not explain a difference.
      sentences = [_singular(s) for s in sentences if not s.startswith('0 ')]
      if sentences:
        texts[metric] = '; '.join(sentences)
  return texts


def _singular(sentence: str) -> str:
  """Returns the sentence in the singular if it starts with the count 1."""
  for many, one in (
    ('documents have', 'document has'),
    ('labels are', 'label is'),
  ):
    if sentence.startswith(f'1 {many} '):
      return sentence.replace(many, one, 1)
  return sentence


def _is_unexplained(
  metric: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> bool:
  """Returns whether a value is missing, but not under the first protocol."""
  return metric in theirs and (metric not in ours or ours[metric] is not None)


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
  kind, sentences = kind_of(metric), []
  instance = _metric_of(kind)
  if first.frequent_from != other.frequent_from and slice_name in (
    'frequent',
    'few',
  ):
    sentences.append(_FREQUENT)
  if first.skip_without_gold != other.skip_without_gold:
    is_mean = (
      isinstance(instance, DocumentMetric) and type(instance).under is None
    )
    if is_mean or kind in _COUNTS:
      sentences.append(_SKIPPED if first.skip_without_gold else _COUNTED)
  if first.psndcg != other.psndcg and kind == 'PSnDCG@k':
    sentences.append(_PSNDCG[first.psndcg])
  if first.psr != other.psr and kind in ('PSR@k', 'PSR-norm@k'):
    sentences.append(_PSR[first.psr])
  if isinstance(instance, LabelMetric) and instance.has_cut_off():
    ours, theirs = (
      instance.averaged_labels(first),
      instance.averaged_labels(other),
    )
    if ours is not theirs:
      subject = 'coverage' if kind == 'coverage@k' else 'the mean'
      sentences.append(_averaged_over(subject, ours, theirs))
  names = {'us': first.name, 'them': other.name}
  names |= {'our_from': first.frequent_from, 'their_from': other.frequent_from}
  return tuple(_fill(sentence, names) for sentence in sentences)


def _metric_of(kind: str) -> Metric | None:
  metrics = (
    metric for cls in metric_classes() for metric in cls.variants(SumLayout())
  )
  return next((metric for metric in metrics if metric.name == kind), None)


_COUNTS = ('n_docs', 'n_skipped')
_FREQUENT = (
  '{between} labels are frequent under only one of the protocols: {us} '
  'requires {our_from} training documents, {them} requires {their_from}'
)
_SKIPPED = (
  '{without_gold} documents have no gold label: skipped by {us}, counted as 0 '
  'by {them}'
)
_COUNTED = (
  '{without_gold} documents have no gold label: counted as 0 by {us}, skipped '
  'by {them}'
)
_PSNDCG = {
  Ratio.SUMS: (
    'the terms of a document are first divided by its ideal DCG in {them}, but '
    'not in {us}'
  ),
  Ratio.MEANS: (
    'the terms of a document are first divided by its ideal DCG in {us}, but '
    'not in {them}'
  ),
}
_PSR = {
  Recalled.WEIGHT: (
    "a document's hits are divided by the weights of its gold labels in {us}, "
    'by the number of its gold labels in {them}'
  ),
  Recalled.COUNT: (
    "a document's hits are divided by the number of its gold labels in {us}, "
    'by the weights of its gold labels in {them}'
  ),
}
_AVERAGED = {
  AveragedLabels.ALL: 'all {labels} labels',
  AveragedLabels.GOLD: 'the {gold_labels} labels that are gold for a document',
  AveragedLabels.UP_TO_LARGEST: (
    'the {up_to_largest} labels up to the largest index that is gold or listed'
  ),
}


def _averaged_over(
  subject: str, ours: AveragedLabels, theirs: AveragedLabels
) -> str:
  """Returns a sentence that says which labels the two means include."""
  return (
    f'{subject} in {{us}} is over {_AVERAGED[ours]}, in {{them}} over '
    f'{_AVERAGED[theirs]}'
  )


def _fill(sentence: str, values: dict[str, object]) -> str:
  """Replaces the given fields and leaves all other fields unchanged."""
  for name, value in values.items():
    sentence = sentence.replace(f'{{{name}}}', str(value))
  return sentence
