"""Why a metric is not the same under two protocols, with the counts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xjax.judge.evidence import Evidence
from xjax.judge.metrics.label_sums import GOLD_LABELS, UP_TO_LARGEST
from xjax.judge.metrics.protocols import Protocol
from xjax.judge.metrics.reasons import reasons

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
