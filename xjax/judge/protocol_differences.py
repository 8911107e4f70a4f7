"""Why a metric is not the same under two protocols, with the counts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xjax.judge.evidence import Evidence
from xjax.judge.metrics.contract import (
  GOLD_LABELS,
  UP_TO_LARGEST,
  AveragedLabels,
  DocumentMetric,
  LabelForm,
  LabelMetric,
  Metric,
  Protocol,
  Ratio,
  Recalled,
  kind_of,
  metrics as every_metric,
)

# Two values of one convention, computed in another order, differ by less.
_SAME = 1e-9


def facts_of(evidence: Evidence) -> dict[str, Any]:
  """The counts that reasons speak of.

  Returns:
    Field of a reason -> count; `up_to_largest` has `@k` after it, and
    `train_counts` is those of the labels, from which `between` is counted.
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
  """Why metrics are not what the first protocol says they are.

  Args:
    metrics: protocol -> slice -> metric -> value.
    protocols: of the metrics.
    facts: slice -> its counts, as facts_of.
    missing: protocol -> slice -> metric -> why there is no value.

  Returns:
    Protocol -> slice -> metric -> sentences, of the metrics that differ, or
    that the first protocol does not say the absence of.
  """
  us, *others = protocols
  found = {}
  for them in others:
    slices = {}
    for name, values in metrics[them.name].items():
      ours, absent = metrics[us.name][name], missing[them.name][name]
      whys = _of_slice(ours, values, us, them, name, facts)
      whys |= {m: why for m, why in absent.items() if _untold(m, ours, values)}
      slices |= {name: whys} if whys else {}
    if slices:
      found[them.name] = slices
  return found


def _of_slice(
  ours: Mapping[str, Any],
  theirs: Mapping[str, Any],
  us: Protocol,
  them: Protocol,
  name: str,
  facts: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
  whys = {}
  for metric, value in theirs.items():
    if metric in ours and _differ(ours[metric], value):
      counts = _counts(facts[name], metric, us, them)
      told = [s.format(**counts) for s in reasons(metric, us, them, name)]
      # What holds of 0 documents or labels explains nothing.
      told = [_one(each) for each in told if not each.startswith('0 ')]
      if told:
        whys[metric] = '; '.join(told)
  return whys


def _one(sentence: str) -> str:
  """The sentence as it is said of one."""
  for many, one in (
    ('documents have', 'document has'),
    ('labels are', 'label is'),
  ):
    if sentence.startswith(f'1 {many} '):
      return sentence.replace(many, one, 1)
  return sentence


def _untold(
  metric: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> bool:
  """Whether a value is absent and the first protocol does not say why."""
  return metric in theirs and (metric not in ours or ours[metric] is not None)


def _differ(ours: Any, theirs: Any) -> bool:
  if ours is None or theirs is None:
    return ours is not theirs
  return abs(ours - theirs) > _SAME


def _counts(
  facts: Mapping[str, Any], metric: str, us: Protocol, them: Protocol
) -> dict[str, Any]:
  """The fields of reasons for one metric, as text."""
  k = metric.partition('@')[2]
  low, high = sorted((us.frequent_from, them.frequent_from))
  counts = facts['train_counts']
  between = int(np.sum((counts >= low) & (counts < high)))
  whole = {n: v for n, v in facts.items() if isinstance(v, int)}
  whole |= {
    'between': between,
    'up_to_largest': whole.get(f'up_to_largest@{k}'),
  }
  return {n: '' if v is None else f'{v:,}' for n, v in whole.items()}


def reasons(
  metric: str, us: Protocol, them: Protocol, slice_name: str = 'all'
) -> tuple[str, ...]:
  """Why two protocols may differ in a metric: a sentence for each reason.

  Args:
    metric: such as 'PSnDCG@5'.
    us: one protocol.
    them: another.
    slice_name: of the slice that is judged.

  Returns:
    Sentences with fields for str.format: {without_gold} documents without
    gold in the slice, {labels} of it, {gold_labels} of those that are gold,
    {up_to_largest} labels up to the largest that is gold or listed,
    {between} labels whose training count only one of the two calls frequent.
  """
  kind, found = kind_of(metric), []
  known = _metric_of(kind)
  if us.frequent_from != them.frequent_from and slice_name in (
    'frequent',
    'few',
  ):
    found.append(_FREQUENT)
  if us.skip_without_gold != them.skip_without_gold:
    is_mean = isinstance(known, DocumentMetric) and type(known).under is None
    if is_mean or kind in _COUNTS:
      found.append(_SKIPPED if us.skip_without_gold else _COUNTED)
  if us.psndcg != them.psndcg and kind == 'PSnDCG@k':
    found.append(_PSNDCG[us.psndcg])
  if us.psr != them.psr and kind in ('PSR@k', 'PSR-norm@k'):
    found.append(_PSR[us.psr])
  if isinstance(known, LabelMetric) and known.has_cut_off():
    ours, theirs = known.averaged_labels(us), known.averaged_labels(them)
    what = 'coverage' if kind == 'coverage@k' else 'the mean'
    found += [_over(what, ours, theirs)] if ours is not theirs else []
  names = {'us': us.name, 'them': them.name}
  names |= {'our_from': us.frequent_from, 'their_from': them.frequent_from}
  return tuple(_fill(sentence, names) for sentence in found)


def _metric_of(kind: str) -> Metric | None:
  """A metric of this kind, whichever protocol it is of."""
  every = (each for cls in every_metric() for each in cls.each(LabelForm()))
  return next((metric for metric in every if metric.name == kind), None)


_COUNTS = ('n_docs', 'n_skipped')
_FREQUENT = (
  '{between} labels are frequent for only one of the two: {us} asks for '
  '{our_from} training documents, {them} for {their_from}'
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
    'each document is divided by its own ideal DCG before the ratio in {them}, '
    'not in {us}'
  ),
  Ratio.MEANS: (
    'each document is divided by its own ideal DCG before the ratio in {us}, '
    'not in {them}'
  ),
}
_PSR = {
  Recalled.WEIGHT: (
    'a document is divided by the weights of its gold labels in {us}, by their '
    'number in {them}'
  ),
  Recalled.COUNT: (
    'a document is divided by the number of its gold labels in {us}, by their '
    'weights in {them}'
  ),
}
_UNIVERSES = {
  AveragedLabels.ALL: 'all {labels} labels',
  AveragedLabels.GOLD: 'the {gold_labels} labels that are gold here',
  AveragedLabels.UP_TO_LARGEST: (
    'the {up_to_largest} labels up to the largest that is gold or listed'
  ),
}


def _over(what: str, ours: AveragedLabels, theirs: AveragedLabels) -> str:
  return (
    f'{what} is over {_UNIVERSES[ours]} in {{us}}, over {_UNIVERSES[theirs]} '
    'in {them}'
  )


def _fill(sentence: str, values: dict[str, object]) -> str:
  """Fills in these fields and leaves the others."""
  for name, value in values.items():
    sentence = sentence.replace(f'{{{name}}}', str(value))
  return sentence
