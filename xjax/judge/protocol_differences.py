"""Explains by counts why a metric differs between two protocols."""

from collections.abc import Mapping
from typing import Any

from xjax.judge.metrics.metric import (
  DOCUMENTS,
  GOLD_LABELS,
  LABELS,
  TUNED,
  UP_TO_LARGEST,
  WITH_GOLD,
  Protocol,
  PSnDCGVariant,
  PSRDenominator,
  metric_kind,
)
from xjax.judge.metrics.protocols import THRESHOLD_KINDS
from xjax.judge.slice_statistics import SliceStatistics

# Two values count as equal if they differ by at most this number, because
# rounding depends on the order of summation.
_SAME = 1e-9
# Name of a denominator, without its cut-off -> what a mean is over.
_MEAN_OVER = {
  DOCUMENTS: 'all {:,} documents',
  WITH_GOLD: 'the {:,} documents with gold labels',
  LABELS: 'all {:,} labels',
  GOLD_LABELS: 'the {:,} labels that are gold for a document',
  UP_TO_LARGEST: 'the {:,} labels up to the largest that is gold or listed',
}
_DIVISOR = {
  PSnDCGVariant.SUMS: 'the largest possible sum',
  PSnDCGVariant.MEANS: (
    "the document's ideal DCG, then by the largest possible sum"
  ),
  PSRDenominator.WEIGHT: "the weights of the document's gold labels",
  PSRDenominator.COUNT: "the number of the document's gold labels",
}
# Subject of a sentence -> a key that is equal where protocols do the same, and
# the rest of the sentence.
_Conventions = dict[str, tuple[Any, str]]


def conventions(
  evidence: SliceStatistics, protocol: Protocol
) -> dict[str, _Conventions]:
  """Says what a protocol does in a slice, by metric."""
  n = evidence.part.n_labels
  frequent = f'{protocol.frequent_from} training documents'
  of_slice = {'the slice has': (n, f'{n:,} labels (frequent: from {frequent})')}
  documents = WITH_GOLD if protocol.skip_without_gold else DOCUMENTS
  table = evidence.tables[protocol.name]
  under = {name: measure.under[0] for name, measure in table.items()}
  under |= {'n_labels': '', 'n_docs': documents, 'n_skipped': documents}
  by_metric = {}
  for metric, sum_ in under.items():
    by_metric[metric] = said = {**of_slice}
    if words := _MEAN_OVER.get(sum_.partition('@')[0]):
      n = int(evidence.sums[sum_])
      said['the mean is over'] = n, words.format(n)
    if metric in table and (follows := table[metric].metric.follows):
      said['hits are divided by'] = follows, _DIVISOR[follows]
    if metric_kind(metric).removesuffix(TUNED) in THRESHOLD_KINDS:
      is_assigned = protocol.assigns_equal
      words = 'assigned' if is_assigned else 'not assigned'
      said['a score of exactly the threshold is'] = is_assigned, words
  return by_metric


def explain_differences(
  metrics: Mapping[str, Mapping[str, Mapping[str, Any]]],
  said: Mapping[str, Mapping[str, Mapping[str, _Conventions]]],
  missing: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, dict[str, dict[str, str]]]:
  """Explains why metrics differ from the same metrics of the first protocol.

  Args:
    metrics: protocol -> slice -> metric -> value.
    said: protocol -> slice -> metric -> what the protocol does.
    missing: protocol -> slice -> metric -> why there is no value.

  Returns:
    Protocol -> slice -> metric -> text, where the value differs, or is missing
    although the first protocol has it, or lacks this metric.
  """
  first, *others = metrics
  by_protocol = {}
  for other in others:
    slices = {}
    for name, values in metrics[other].items():
      ours, texts = metrics[first][name], {}
      for metric, value in values.items():
        if metric in ours and _differ(ours[metric], value):
          pair = said[first][name][metric], said[other][name][metric]
          texts[metric] = '; '.join(
            f'{subject} {text} in {first}, {pair[1][subject][1]} in {other}'
            for subject, (key, text) in pair[0].items()
            if key != pair[1][subject][0]
          )
      for metric, reason in missing[other][name].items():
        # If the first protocol has no value either, its notes say why.
        if metric in values and ours.get(metric, 0.0) is not None:
          texts[metric] = reason
      if texts := {metric: text for metric, text in texts.items() if text}:
        slices[name] = texts
    if slices:
      by_protocol[other] = slices
  return by_protocol


def _differ(ours: Any, theirs: Any) -> bool:
  if ours is None or theirs is None:
    return ours is not theirs
  return abs(ours - theirs) > _SAME
