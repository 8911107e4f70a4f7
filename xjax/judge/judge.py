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
from xjax.judge.calibration import reliability_of
from xjax.judge.criteria import Criteria
from xjax.judge.intervals import bootstrap
from xjax.judge.metrics.calibration_error import ABOVE
from xjax.judge.metrics.metric import WITH_GOLD, Measure, Protocol
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.metrics.slices import ALL, judged_masks
from xjax.judge.predictions import Predictions
from xjax.judge.protocol_differences import conventions, explain_differences
from xjax.judge.slice import Slice
from xjax.judge.slice_statistics import SliceStatistics

PROTOCOL = XJAX.name
# Keys of a result of judge, in addition to the names of protocols (see judge).
NOTES, INTERVALS, REASONS = 'notes', 'intervals', 'reasons'
RECALLS = 'recalls'
LISTS = 'lists'  # key of the note that a slice has no lists of its own
SEARCH = 'search'  # key of the note that labels of high score may be missing
_NO_SHORTLIST = (
  'this slice has a shortlist of its own, which is not saved; judge the run '
  'itself (xjax evaluate --workdir=DIR --slices=...)'
)
ECE, ECE_ABOVE = 'ECE', f'ECE[>{ABOVE}]'
# {protocol: {slice: {metric: value}}}
Metrics = dict[str, dict[str, dict[str, Any]]]


def judge(
  predictions: Predictions,
  criteria: Criteria | None = None,
  threshold: float | None = None,
  shown_NK: np.ndarray | None = None,
) -> Metrics:
  """Computes all metrics of every slice, under the requested protocols.

  The metrics of a slice use the lists of the slice, and only gold labels in the
  slice. Under the protocol of xjax, ranking metrics are means over the `n_docs`
  documents that have gold labels in the slice, without the other `n_skipped`
  documents; F1 and coverage count all documents. F1 without a cut-off, and
  metrics of the hierarchy, count the labels with at least the score
  Predictions.assigned_above, else with at least probability 0.5. ECE, and
  `ECE[>0.1]`, need shown_NK or scores that are not margins.

  Args:
    predictions: with gold.
    criteria: None uses the defaults.
    threshold: of the `-tuned` F1 metrics, in the unit of the scores, for
      example from tune_threshold; None leaves these metrics out.
    shown_NK: float64, the probabilities that readers see of the entries in the
      lists of the slice `all`, for the ECE; None uses the raw scores.

  Returns:
    `{protocol: {slice: {metric: value}}}`. A value is None if the saved lists
    are too short for the metric, or if there is nothing to judge. These entries
    are added if they are not empty:

    - `{'notes': {slice: {metric: reason}}}`: why a value under the first
      protocol is None. The note 'lists' says how many cut lists are too short,
      or that lists of another slice cannot be used. The note 'search' of the
      slice `all` describes a search that was not exact.
    - `{'reasons': {protocol: {slice: {metric: text}}}}`: why a value under a
      later protocol is None, or differs from that under the first protocol.
    - `{'recalls': {slice: {step: share}}}`: Predictions.recalls.
    - `{'intervals': {protocol: {slice: {metric: [low, high]}}}}`: confidence
      intervals, if criteria.replicates is not 0.
  """
  need_gold(predictions)
  criteria = criteria or Criteria()
  cuts = thresholds(predictions, threshold)
  first = criteria.protocols[0]
  metrics, missing, said = (
    {protocol.name: {} for protocol in criteria.protocols} for _ in range(3)
  )
  intervals = {}
  with Progress('computing metrics'):
    for name, protocols, evidence in _evidence(predictions, criteria, cuts):
      for protocol in protocols:
        who = protocol.name
        metrics[who][name], missing[who][name] = judge_slice(
          evidence, evidence.tables[who], protocol
        )
        if evidence.part.is_cut and predictions.has_shortlists:
          missing[who][name][LISTS] = _NO_SHORTLIST
        said[who][name] = conventions(evidence, protocol)
      if criteria.replicates:
        for who, ends in _intervals(evidence, criteria).items():
          intervals.setdefault(who, {})[name] = ends
  if predictions.is_approximate:
    note = f'{predictions.selection}; labels of high score may be missing'
    missing[first.name][ALL][SEARCH] = note
  _add_for_all(metrics, predictions, criteria, threshold, shown_NK)
  reasons = explain_differences(metrics, said, missing)
  notes = {name: texts for name, texts in missing[first.name].items() if texts}
  extras = {NOTES: notes, INTERVALS: intervals, REASONS: reasons}
  extras[RECALLS] = {name: {**x} for name, x in predictions.recalls.items()}
  return {**metrics, **{key: extra for key, extra in extras.items() if extra}}


def _evidence(
  predictions: Predictions, criteria: Criteria, cuts: Mapping[str, float | None]
) -> Iterator[tuple[str, list[Protocol], SliceStatistics]]:
  """Yields a slice, protocols that assign the same labels, and statistics."""
  masks = {
    protocol.name: judged_slices(predictions, criteria, protocol.frequent_from)
    for protocol in criteria.protocols
  }
  for name in masks[criteria.protocols[0].name]:
    alike: dict[tuple[bytes, bool], list[Protocol]] = {}
    for protocol in criteria.protocols:
      key = masks[protocol.name][name].tobytes(), protocol.assigns_equal
      alike.setdefault(key, []).append(protocol)
    for (_, assigns_equal), protocols in alike.items():
      part = Slice.of(predictions, name, masks[protocols[0].name][name])
      least = cuts
      if not assigns_equal:  # scores are float32, so none is between the two
        least = {
          end: cut if cut is None else float(np.nextafter(cut, np.inf))
          for end, cut in cuts.items()
        }
      evidence = SliceStatistics.of(
        part, criteria, protocols, least, predictions.n_train
      )
      yield name, protocols, evidence


def _add_for_all(
  metrics: Metrics,
  predictions: Predictions,
  criteria: Criteria,
  threshold: float | None,
  shown_NK: np.ndarray | None,
) -> None:
  """Adds, in place, the metrics that only the slice `all` has."""
  if threshold is not None:
    for slices in metrics.values():
      slices[ALL]['threshold-tuned'] = threshold
  if PROTOCOL in metrics and not criteria.kinds:
    diagram = reliability_of(predictions, shown_NK)
    if diagram is not None:
      metrics[PROTOCOL][ALL][ECE] = diagram.ece
    if diagram is not None and diagram.ece_above is not None:
      metrics[PROTOCOL][ALL][ECE_ABOVE] = diagram.ece_above


def judged_slices(
  predictions: Predictions, criteria: Criteria, frequent_from: int
) -> dict[str, np.ndarray]:
  """Returns the labels of each slice to judge, by name; `all` comes first."""
  masks = predictions.masks
  if frequent_from != XJAX.frequent_from and len(masks) > 1:
    masks = judged_masks(
      predictions.train_counts,
      predictions.held_out,
      frequent_from,
      predictions.left_out,
    )
  if taken := masks.keys() & criteria.slices.keys():
    raise ValueError(
      f'criteria.slices: the names {sorted(taken)} are already used; choose '
      'other names'
    )
  # A file or a level may have labels that are left out of judging.
  inside_L = masks[ALL]
  further = {name: mask & inside_L for name, mask in criteria.slices.items()}
  return {**masks, **further}


def slices_without_lists(
  predictions: Predictions, criteria: Criteria
) -> list[np.ndarray]:
  """Returns the slices to judge, bool [L], for which a scorer has no lists."""
  missing = {}
  for protocol in criteria.protocols:
    masks = judged_slices(predictions, criteria, protocol.frequent_from)
    for name, mask in masks.items():
      if predictions.own_lists(name, mask) is None:
        missing[mask.tobytes()] = mask
  return list(missing.values())


def _intervals(
  evidence: SliceStatistics, criteria: Criteria
) -> dict[str, dict[str, list[float]]]:
  together = {
    (who, metric): measure
    for who, table in evidence.tables.items()
    for metric, measure in table.items()
  }
  ends = {who: {} for who in evidence.tables}
  intervals = bootstrap(evidence, together, criteria.seed, criteria.replicates)
  for (who, metric), interval in intervals.items():
    ends[who][metric] = [interval.low, interval.high]
  return ends


def thresholds(
  predictions: Predictions, tuned: float | None
) -> dict[str, float | None]:
  """Returns the thresholds of F1 metrics, by the suffix of a metric's name.

  '' has the scorer's own threshold, else the score at probability 0.5, or None
  for margins. '-tuned' has the tuned threshold, if there is one.
  """
  usual = predictions.assigned_above
  if usual is None:
    usual = score_threshold(predictions.score_kind, 0.5)
  return {'': usual} if tuned is None else {'': usual, '-tuned': tuned}


def score_threshold(kind: ScoreKind, probability: float) -> float | None:
  """Returns the score of a label with this probability, or None for margins."""
  match kind:
    case ScoreKind.LOGIT:
      return math.log(probability / (1 - probability))
    case ScoreKind.PROBABILITY:
      return probability
    case ScoreKind.MARGIN:
      return None


def judge_slice(
  evidence: SliceStatistics,
  table: Mapping[str, Measure],
  protocol: Protocol = XJAX,
) -> tuple[dict[str, Any], dict[str, str]]:
  """Computes all metrics of a slice, and the reasons why some have no value."""
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
        value, reason = None, evidence.not_a_number(measure)
      values[name] = value
      if reason:
        reasons[name] = reason
  if any('[level=' in name for name in values):
    values |= evidence.level_counts
  deepest = max(evidence.ks)
  n_short = int(part.hides_up_to(deepest).sum())
  if part.is_cut and n_short:
    reasons[LISTS] = (
      f'cut from lists of other slices, with at most {part.depth} labels each; '
      f'{n_short:,} of {len(part):,} documents ({n_short / len(part):.1%}) '
      f'have fewer than {deepest} labels left'
    )
  return values, reasons


def tune_threshold(predictions: Predictions) -> float:
  """Returns the threshold with the best micro-F1, in the unit of the scores.

  Only thresholds at which micro-F1 is known from the saved lists are tried.
  """
  need_gold(predictions)
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  return part.best_threshold()


def need_gold(predictions: Predictions) -> None:
  """Raises a DataError unless predictions have gold."""
  if predictions.gold is None:
    raise DataError('these predictions have no gold labels to judge them by')


_ROWS = 1024  # number of documents whose values are converted at a time


def document_lines(
  predictions: Predictions, criteria: Criteria
) -> Iterator[str]:
  """Yields a JSON line with the metrics of each document; gold is needed.

  A line is `{"id", "gold", "labels", metric: value, ...}`. `labels` has the
  best labels, up to the largest cut-off. The value is the document's term of a
  mean, such as P@5, or the ratio of its terms, as for PSP@5. It is null if the
  document has no gold, or if its list is too short.
  """
  protocol = dataclasses.replace(criteria.protocols[0], skip_without_gold=True)
  criteria = dataclasses.replace(criteria, protocols=(protocol,))
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  evidence = SliceStatistics.of(
    part, criteria, criteria.protocols, {}, predictions.n_train
  )
  values = _document_values(evidence)
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


def _document_values(evidence: SliceStatistics) -> dict[str, np.ndarray]:
  """Returns the values of document metrics; NaN if they are not known."""
  with_gold_N = evidence.part.gold.lengths > 0
  terms = dict(evidence.document_terms)
  terms[WITH_GOLD] = with_gold_N.astype(np.float64), with_gold_N
  rows = {name: row_N for name, (row_N, _) in terms.items()}
  values = {}
  (table,) = evidence.tables.values()
  for name, measure in table.items():
    if all(sum_ in terms for sum_ in measure.sums):
      known_N = np.all([with_gold_N, *(terms[x][1] for x in measure.sums)], 0)
      values[name] = np.where(known_N, measure.value(rows), np.nan)
  return values
