"""Metrics document by document, as JSON lines."""

from collections.abc import Iterator
import dataclasses
import json
import math

import numpy as np

from xjax.core.types import PAD
from xjax.judge.criteria import Criteria
from xjax.judge.evidence import Evidence
from xjax.judge.metrics.measures import Measure
from xjax.judge.metrics.slices import ALL
from xjax.judge.metrics.sums import WITH_GOLD
from xjax.judge.predictions import Predictions
from xjax.judge.slice import Slice

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
