"""Computes all metrics of predictions, under every requested protocol."""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import math
from typing import Any

import numpy as np

from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.types import PAD, ScoreKind
from xjax.judge.calibration import expected_calibration_error
from xjax.judge.criteria import Criteria
from xjax.judge.evidence import Evidence
from xjax.judge.intervals import bootstrap
from xjax.judge.metrics.contract import WITH_GOLD, Measure, Protocol
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.metrics.slices import ALL, judged_masks
from xjax.judge.predictions import Predictions
from xjax.judge.protocol_differences import differences, facts_of
from xjax.judge.slice import Slice

PROTOCOL = XJAX.name
# Keys of Metrics next to the names of protocols. They say why a value is None,
# what its confidence interval is, and why it differs from the first protocol.
NOTES, INTERVALS, REASONS = 'notes', 'intervals', 'reasons'
LISTS = 'lists'  # key of the note on lists that are cut from other lists
SEARCH = 'search'  # key of the note on lists that may lack labels of high score
# {protocol: {slice: {metric: value}}}
Metrics = dict[str, dict[str, dict[str, Any]]]


def judge(
  predictions: Predictions,
  criteria: Criteria | None = None,
  threshold: float | None = None,
) -> Metrics:
  """Computes all metrics of every slice, under the requested protocols.

  Within a slice, labels are ranked by the slice's own lists, and gold is cut to
  the slice. Under the protocol of xjax, ranking metrics are means over the
  `n_docs` documents that have gold in the slice; `n_skipped` documents have
  none. F1 and coverage count all documents. Macro-averages are means over the
  `n_labels` labels of the slice. F1 without a cut-off counts the labels above
  probability 0.5, or the labels that the scorer itself assigns
  (Predictions.assigned_above). ECE is the expected calibration error of the
  listed labels' raw scores, if the scores are logits or probabilities.

  Args:
    predictions: predictions with gold.
    criteria: what to judge by; None uses the defaults.
    threshold: threshold of the `-tuned` F1 metrics, in the unit of the scores,
      for example from tune_threshold; None leaves these metrics out.

  Returns:
    `{protocol: {slice: {metric: value}}}`. A value is None if the saved lists
    are too short for it or if there is nothing to judge; then
    `{'notes': {slice: {metric: reason}}}` says why. For a slice without its own
    lists, the note 'lists' says how many of the lists that were cut for the
    slice are too short.
    For `all`, the note 'search' says how labels were searched, if the search
    was not exact. Notes are about the first protocol.
    `{'reasons': {protocol: {slice: {metric: text}}}}` says why a value differs
    from the value under the first protocol, or is None.
    `{'intervals': {protocol: {slice: {metric: [low, high]}}}}` is present if
    criteria.replicates is not 0.

  Raises:
    DataError: the predictions have no gold.
  """
  need_gold(predictions)
  criteria = criteria or Criteria()
  cuts = thresholds(predictions, threshold)
  first = criteria.protocols[0]
  metrics = {protocol.name: {} for protocol in criteria.protocols}
  missing = {protocol.name: {} for protocol in criteria.protocols}
  intervals, facts = {}, {}
  with Progress('computing metrics'):
    for name, protocols, evidence in _evidence(predictions, criteria, cuts):
      tables = {}
      for protocol in protocols:
        who = protocol.name
        tables[who] = criteria.table(protocol, tuple(cuts), evidence.bins)
        metrics[who][name], missing[who][name] = judge_slice(
          evidence, tables[who], protocol
        )
      if first in protocols:
        facts[name] = facts_of(evidence)
      if criteria.replicates:
        for who, ends in _intervals(evidence, tables, criteria).items():
          intervals.setdefault(who, {})[name] = ends
  _add_for_all(
    metrics, missing[first.name][ALL], predictions, criteria, threshold
  )
  reasons = differences(metrics, criteria.protocols, facts, missing)
  notes = {name: texts for name, texts in missing[first.name].items() if texts}
  extras = {NOTES: notes, INTERVALS: intervals, REASONS: reasons}
  return {**metrics, **{key: extra for key, extra in extras.items() if extra}}


def _evidence(
  predictions: Predictions,
  criteria: Criteria,
  cuts: Mapping[str, float | None],
) -> Iterator[tuple[str, list[Protocol], Evidence]]:
  """Yields the name, the protocols and the evidence of each slice.

  Protocols that define the slice by the same labels share the evidence.
  """
  masks = {
    protocol.name: judged_slices(predictions, criteria, protocol.frequent_from)
    for protocol in criteria.protocols
  }
  for name in masks[criteria.protocols[0].name]:
    by_mask: dict[bytes, list[Protocol]] = {}
    for protocol in criteria.protocols:
      key = masks[protocol.name][name].tobytes()
      by_mask.setdefault(key, []).append(protocol)
    for protocols in by_mask.values():
      part = Slice.of(predictions, name, masks[protocols[0].name][name])
      evidence = Evidence.of(
        part, criteria, protocols, cuts, predictions.n_train
      )
      yield name, protocols, evidence


def _add_for_all(
  metrics: Metrics,
  notes: dict[str, str],
  predictions: Predictions,
  criteria: Criteria,
  threshold: float | None,
) -> None:
  """Adds, in place, the metrics and notes that only the slice `all` has."""
  if predictions.is_approximate:
    note = f'{predictions.selection}; labels of high score may be missing'
    notes[SEARCH] = note
  if threshold is not None:
    for slices in metrics.values():
      slices[ALL]['threshold-tuned'] = threshold
  if PROTOCOL in metrics and not criteria.kinds:
    error = expected_calibration_error(predictions)
    if error is not None:
      metrics[PROTOCOL][ALL]['ECE'] = error


def judged_slices(
  predictions: Predictions, criteria: Criteria, frequent_from: int
) -> dict[str, np.ndarray]:
  """Returns the labels of each slice to judge: name -> bool [L].

  The slice `all` comes first.

  Args:
    predictions: predictions, which know training counts and held-out labels.
    criteria: criteria, which may have further slices.
    frequent_from: the fewest training documents of a frequent label.

  Raises:
    ValueError: a further slice has the name of another slice.
  """
  masks = predictions.masks
  if frequent_from != XJAX.frequent_from and len(masks) > 1:
    masks = judged_masks(
      predictions.train_counts, predictions.held_out, frequent_from
    )
  if taken := masks.keys() & criteria.slices.keys():
    raise ValueError(
      f'criteria.slices: {sorted(taken)} are names of other slices; choose '
      'other names'
    )
  return {**masks, **criteria.slices}


def _intervals(
  evidence: Evidence,
  tables: Mapping[str, Mapping[str, Measure]],
  criteria: Criteria,
) -> dict[str, dict[str, list[float]]]:
  """Returns protocol -> metric -> [low, high], from the same draws for all."""
  together = {
    (who, metric): measure
    for who, table in tables.items()
    for metric, measure in table.items()
  }
  ends = {who: {} for who in tables}
  intervals = bootstrap(evidence, together, criteria.seed, criteria.replicates)
  for (who, metric), interval in intervals.items():
    ends[who][metric] = [interval.low, interval.high]
  return ends


def thresholds(
  predictions: Predictions, tuned: float | None
) -> dict[str, float | None]:
  """Returns the thresholds of F1 metrics: suffix of the name -> threshold.

  Args:
    predictions: predictions with the scores that the thresholds are for.
    tuned: a tuned threshold, or None.

  Returns:
    '' -> the scorer's own threshold, or else the score at probability 0.5,
    which is None for margins. '-tuned' -> the tuned threshold, if there is one.
  """
  usual = predictions.assigned_above
  if usual is None:
    usual = score_threshold(predictions.score_kind, 0.5)
  return {'': usual} if tuned is None else {'': usual, '-tuned': tuned}


def score_threshold(kind: ScoreKind, probability: float) -> float | None:
  """Returns the score at a probability, or None for margins."""
  match kind:
    case ScoreKind.LOGIT:
      return math.log(probability / (1 - probability))
    case ScoreKind.PROBABILITY:
      return probability
    case ScoreKind.MARGIN:
      return None


def judge_slice(
  evidence: Evidence,
  table: Mapping[str, Measure],
  protocol: Protocol = XJAX,
) -> tuple[dict[str, Any], dict[str, str]]:
  """Computes all metrics of a slice under one protocol.

  Args:
    evidence: evidence of the slice.
    table: metric -> measure.
    protocol: the protocol that the table belongs to.

  Returns:
    values: metric -> value or None.
    reasons: metric -> why the value is None. If the lists are cut from other
      lists and some are too short, also LISTS -> how many are too short.
  """
  part = evidence.part
  n_docs = part.n_with_gold if protocol.skip_without_gold else len(part)
  values = {
    'n_docs': n_docs,
    'n_skipped': len(part) - n_docs,
    'n_labels': part.n_labels,
  }
  reasons = {}
  for name, measure in table.items():
    if evidence.is_requested(measure):
      reason = evidence.missing(measure)
      value = None if reason else float(measure.value(evidence.sums))
      if value is not None and math.isnan(value):
        value, reason = None, 'the denominator is 0'
      values[name] = value
      if reason:
        reasons[name] = reason
  deepest = max(evidence.form.ks)
  if part.is_cut and (n_short := part.n_short(deepest)):
    reasons[LISTS] = (
      f'cut from the lists of all labels, which have {part.depth} labels; '
      f'{n_short:,} of {len(part):,} documents ({n_short / len(part):.1%}) '
      f'have fewer than {deepest} labels left'
    )
  return values, reasons


def tune_threshold(predictions: Predictions) -> float:
  """Returns the threshold with the best micro-F1 over all labels.

  It tries only thresholds at which micro-F1 is known from the saved lists.

  Args:
    predictions: predictions with gold.

  Returns:
    The threshold, in the unit of the scores.

  Raises:
    DataError: the predictions have no gold.
  """
  need_gold(predictions)
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  return part.best_threshold()


def need_gold(predictions: Predictions) -> None:
  """Checks that predictions have gold.

  Raises:
    DataError: the predictions have no gold.
  """
  if predictions.gold is None:
    raise DataError('these predictions have no gold labels to judge them by')


_ROWS = 1024  # documents whose lines are made at a time


def document_lines(
  predictions: Predictions, criteria: Criteria
) -> Iterator[str]:
  """Yields a JSON line with the metrics of each document.

  A line is `{"id", "gold", "labels", metric: value, ...}`. It has the metrics
  of the first protocol that exist for a single document. For a mean over
  documents, such as P@5, the value is the document's term. For a ratio of sums,
  such as PSP@5, it is the ratio of the document's own sums. `labels` are the
  best max(k) labels. A value is null if the document has no gold or its list is
  too short.

  Args:
    predictions: predictions with gold.
    criteria: what to judge by.
  """
  protocol = dataclasses.replace(criteria.protocols[0], skip_without_gold=True)
  criteria = dataclasses.replace(criteria, protocols=(protocol,))
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  evidence = Evidence.of(
    part, criteria, criteria.protocols, {}, predictions.n_train
  )
  table = {
    name: measure
    for name, measure in criteria.table(protocol, (), ()).items()
    if all(s in evidence.form.terms for s in measure.sums)
  }
  values = _values(evidence, table)
  for start in range(0, len(predictions), _ROWS):
    block = slice(start, start + _ROWS)
    columns = {name: rows[block].tolist() for name, rows in values.items()}
    for row, id_ in enumerate(predictions.doc_ids[block]):
      listed = part.lists.ids[start + row, : max(criteria.ks)]
      document = {
        'id': id_,
        'gold': _names(predictions, part.gold[start + row]),
        'labels': _names(predictions, listed[listed != PAD]),
      }
      for name, column in columns.items():
        value = column[row]
        document[name] = None if math.isnan(value) else value
      yield json.dumps(document, ensure_ascii=False)


def _names(predictions: Predictions, labels: np.ndarray) -> list[str]:
  return [predictions.labels[i] for i in labels.tolist()]


def _values(
  evidence: Evidence, table: dict[str, Measure]
) -> dict[str, np.ndarray]:
  """Returns metric -> float64 [N], which is NaN if unknown or without gold."""
  terms_MN, known_MN = evidence.documents()
  rows = dict(zip(evidence.form.terms, terms_MN, strict=True))
  known = dict(zip(evidence.form.terms, known_MN, strict=True))
  with_gold_N = evidence.part.gold.lengths > 0
  rows[WITH_GOLD] = with_gold_N.astype(np.float64)
  values = {}
  for name, measure in table.items():
    known_N = with_gold_N.copy()
    for sum_name in measure.sums:
      known_N &= known.get(sum_name, True)
    values[name] = np.where(known_N, measure.value(rows), np.nan)
  return values
