"""Metrics document by document, as JSON lines."""

from collections.abc import Iterator
import dataclasses
import json

import numpy as np

from xjax.core.types import PAD
from xjax.evaluate.criteria import Criteria
from xjax.evaluate.evidence import Evidence
from xjax.evaluate.predictions import Predictions
from xjax.evaluate.slice import Slice
from xjax.metrics.measures import Measure
from xjax.metrics.slices import ALL
from xjax.metrics.sums import WITH_GOLD


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
  for row, id_ in enumerate(predictions.doc_ids):
    listed = part.lists.ids[row, : max(criteria.ks)]
    document = {
      'id': id_,
      'gold': _names(predictions, part.gold[row]),
      'labels': _names(predictions, listed[listed != PAD]),
    }
    document |= {name: each[row] for name, each in values.items()}
    yield json.dumps(document, ensure_ascii=False)


def _names(predictions: Predictions, labels: np.ndarray) -> list[str]:
  return [predictions.labels[i] for i in labels.tolist()]


def _values(
  evidence: Evidence, table: dict[str, Measure]
) -> dict[str, list[float | None]]:
  """Metric -> value of each document."""
  terms_MN, known_MN = evidence.documents()
  rows = dict(zip(evidence.form.terms, terms_MN, strict=True))
  known = dict(zip(evidence.form.terms, known_MN, strict=True))
  found = {}
  for name, measure in table.items():
    seen_N = np.logical_and.reduce([known[s] for s in measure.sums])
    seen_N &= rows[WITH_GOLD] > 0
    value_N = measure.value(rows)
    found[name] = [
      float(v) if ok and v == v else None
      for v, ok in zip(value_N.tolist(), seen_N.tolist(), strict=True)
    ]
  return found
