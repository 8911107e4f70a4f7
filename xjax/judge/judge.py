"""Predictions -> every metric, under every protocol asked for."""

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
# Beside the protocols in metrics: why a value is None, how sure it is, and why
# it is not that of the first protocol.
NOTES, INTERVALS, REASONS = 'notes', 'intervals', 'reasons'
LISTS = 'lists'  # the note on lists that are cut from other lists
SEARCH = 'search'  # the note on lists that may lack labels of high score
# {protocol: {slice: {metric: value}}}
Metrics = dict[str, dict[str, dict[str, Any]]]


def judge(
  predictions: Predictions,
  criteria: Criteria | None = None,
  threshold: float | None = None,
) -> Metrics:
  """All metrics of every slice, under the protocols asked for.

  Within a slice, ranking is by the slice's own lists and gold is cut to the
  slice. Under our own protocol ranking metrics are means over the `n_docs`
  documents with gold there; `n_skipped` have none. F1 and coverage count all
  documents. Macro-averages are means over the `n_labels` labels of the slice.
  F1 without a cut-off is of the labels above probability 0.5, or of those
  that the scorer itself assigns (Predictions.assigned_above).
  ECE is the expected calibration error of the listed labels' scores as they
  are, where they are logits or probabilities.

  Args:
    predictions: with gold.
    criteria: what to judge by.
    threshold: of micro- and macro-F1-tuned, in the unit of the scores, as from
      tune_threshold; None: without these two.

  Returns:
    `{protocol: {slice: {metric: value}}}`. A value is None where the saved
    lists are too short for it, or where there is nothing to judge; then
    `{'notes': {slice: {metric: reason}}}` says why. There 'lists' says of a
    slice without lists of its own how many of those cut for it are short;
    'search' says of `all` how labels were searched, if not exactly.
    These notes are about the first protocol; `{'reasons': {protocol: {slice:
    {metric: text}}}}` says why a value is not that of the first, or is None,
    and `{'intervals': {protocol: {slice: {metric: [low, high]}}}}` is there
    where replicates are asked for.

  Raises:
    DataError: predictions without gold.
  """
  need_gold(predictions)
  criteria = criteria or Criteria()
  cuts = thresholds(predictions, threshold)
  first = criteria.protocols[0]
  found = {protocol.name: {} for protocol in criteria.protocols}
  missing = {protocol.name: {} for protocol in criteria.protocols}
  intervals, facts = {}, {}
  with Progress('computing metrics'):
    for name, protocols, evidence in _evidence(predictions, criteria, cuts):
      tables = {}
      for each in protocols:
        table = criteria.table(each, tuple(cuts), evidence.bins)
        tables[each.name] = table
        judged = judge_slice(evidence, table, each)
        found[each.name][name], missing[each.name][name] = judged
      if first in protocols:
        facts[name] = facts_of(evidence)
      if criteria.replicates:
        for who, each in _intervals(evidence, tables, criteria).items():
          intervals.setdefault(who, {})[name] = each
  _of_all(found, missing[first.name][ALL], predictions, criteria, threshold)
  whys = differences(found, criteria.protocols, facts, missing)
  notes = {name: each for name, each in missing[first.name].items() if each}
  extras = {NOTES: notes, INTERVALS: intervals, REASONS: whys}
  return {**found, **{name: each for name, each in extras.items() if each}}


def _evidence(
  predictions: Predictions,
  criteria: Criteria,
  cuts: Mapping[str, float | None],
) -> Iterator[tuple[str, list[Protocol], Evidence]]:
  """Yields (slice, protocols, evidence): those agree on the slice's labels."""
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


def _of_all(
  found: Metrics,
  notes: dict[str, str],
  predictions: Predictions,
  criteria: Criteria,
  threshold: float | None,
) -> None:
  """Adds what is said of all labels alone."""
  if predictions.is_approximate:
    how = f'{predictions.selection}; labels of high score may be missing'
    notes[SEARCH] = how
  if threshold is not None:
    for slices in found.values():
      slices[ALL]['threshold-tuned'] = threshold
  if PROTOCOL in found and not criteria.kinds:
    error = expected_calibration_error(predictions)
    if error is not None:
      found[PROTOCOL][ALL]['ECE'] = error


def judged_slices(
  predictions: Predictions, criteria: Criteria, frequent_from: int
) -> dict[str, np.ndarray]:
  """Slice name -> bool [L], `all` first."""
  masks = predictions.masks
  if frequent_from != XJAX.frequent_from and len(masks) > 1:
    masks = judged_masks(
      predictions.train_counts, predictions.held_out, frequent_from
    )
  if twice := masks.keys() & criteria.slices.keys():
    raise ValueError(f'slices of names that are taken: {sorted(twice)}')
  return {**masks, **criteria.slices}


def _intervals(
  evidence: Evidence,
  tables: Mapping[str, Mapping[str, Measure]],
  criteria: Criteria,
) -> dict[str, dict[str, list[float]]]:
  """Protocol -> metric -> [low, high], of the same draws for all of them."""
  together = {
    (who, metric): measure
    for who, table in tables.items()
    for metric, measure in table.items()
  }
  found = {who: {} for who in tables}
  sure = bootstrap(evidence, together, criteria.seed, criteria.replicates)
  for (who, metric), interval in sure.items():
    found[who][metric] = [interval.low, interval.high]
  return found


def thresholds(
  predictions: Predictions, tuned: float | None
) -> dict[str, float | None]:
  """What ends the name of F1 -> its threshold, None where scores have none."""
  own = predictions.assigned_above
  if own is None:
    own = score_threshold(predictions.score_kind, 0.5)
  found = {'': own}
  return found if tuned is None else {**found, '-tuned': tuned}


def score_threshold(kind: ScoreKind, probability: float) -> float | None:
  """The score at a probability; None where scores say nothing of it."""
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
  """All metrics of a slice.

  Args:
    evidence: of the slice.
    table: metric -> measure.
    protocol: whose table it is.

  Returns:
    metric -> value or None, and for each None metric -> reason; if the lists
    are cut from others, and some are short of it, LISTS -> how many.
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
    if evidence.asks_for(measure):
      reason = evidence.missing(measure)
      value = None if reason else float(measure.value(evidence.sums))
      if value is not None and math.isnan(value):
        value, reason = None, 'there is nothing to divide by'
      values[name] = value
      if reason:
        reasons[name] = reason
  deepest = max(evidence.form.ks)
  if part.is_cut and (n_short := part.n_short(deepest)):
    reasons[LISTS] = (
      f'cut from those of all labels; of the {part.depth} saved, {n_short:,} '
      f'of {len(part):,} documents ({n_short / len(part):.1%}) have fewer than '
      f'{deepest} labels left'
    )
  return values, reasons


def tune_threshold(predictions: Predictions) -> float:
  """The threshold of best micro-F1 over all labels, in the scores' unit.

  Only thresholds are tried at which that F1 is known from the saved lists.

  Raises:
    DataError: predictions without gold.
  """
  need_gold(predictions)
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  return part.best_threshold()


def need_gold(predictions: Predictions) -> None:
  """Refuses predictions without gold.

  Raises:
    DataError: there is none.
  """
  if predictions.gold is None:
    raise DataError('these predictions have no gold labels: nothing to judge')


_ROWS = 1024  # documents at a time


def document_lines(
  predictions: Predictions, criteria: Criteria
) -> Iterator[str]:
  """Yields `{"id", "gold", "labels", metric: value, ...}` for each document.

  Of the first protocol's metrics those that a document has: means over
  documents, as P@5, and ratios of sums, as PSP@5, here of its own. `labels` are
  the best max(k); a document without gold has null values, and so has a
  list that is too short.
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
    some = slice(start, start + _ROWS)
    lists = {name: each[some].tolist() for name, each in values.items()}
    for row, id_ in enumerate(predictions.doc_ids[some]):
      listed = part.lists.ids[start + row, : max(criteria.ks)]
      document = {
        'id': id_,
        'gold': _names(predictions, part.gold[start + row]),
        'labels': _names(predictions, listed[listed != PAD]),
      }
      for name, each in lists.items():
        value = each[row]
        document[name] = None if math.isnan(value) else value
      yield json.dumps(document, ensure_ascii=False)


def _names(predictions: Predictions, labels: np.ndarray) -> list[str]:
  return [predictions.labels[i] for i in labels.tolist()]


def _values(
  evidence: Evidence, table: dict[str, Measure]
) -> dict[str, np.ndarray]:
  """Metric -> float64 [N], NaN where it is not known or there is no gold."""
  terms_MN, known_MN = evidence.documents()
  rows = dict(zip(evidence.form.terms, terms_MN, strict=True))
  known = dict(zip(evidence.form.terms, known_MN, strict=True))
  with_gold_N = evidence.part.gold.lengths > 0
  rows[WITH_GOLD] = with_gold_N.astype(np.float64)
  found = {}
  for name, measure in table.items():
    seen_N = with_gold_N.copy()
    for each in measure.sums:
      seen_N &= known.get(each, True)
    found[name] = np.where(seen_N, measure.value(rows), np.nan)
  return found
