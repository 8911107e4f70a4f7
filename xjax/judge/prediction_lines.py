"""Predictions as text: a JSON line per document."""

from collections.abc import Sequence
import json

import numpy as np

from xjax.core.types import PAD, ScoreKind
from xjax.data.schema import Label
from xjax.judge.calibration import Calibration, readable_scores
from xjax.judge.explained import AttendedWord

_DIGITS = 6  # of weights


def prediction_line(
  doc_id: str,
  ids_K: np.ndarray,
  scores_K: np.ndarray,
  labels: Sequence[Label],
  kind: ScoreKind,
  calibration: Calibration | None = None,
  whys: Sequence[Sequence[AttendedWord]] | None = None,
) -> str:
  """`{"id", "labels": [{"id", "name", "score"}, ...]}`, best label first.

  With whys, each label has `"why": [{"word", "weight", "zone", "at"}, ...]`.

  Args:
    doc_id: the document's id.
    ids_K: int32 label indices, PAD beyond the list.
    scores_K: float32 scores; printed as readable_scores.
    labels: descriptors by label index.
    kind: what the scores are.
    calibration: of these scores, if there is one.
    whys: for each of the K labels, the words that it attends to.
  """
  keep = np.asarray(ids_K) != PAD
  ids = np.asarray(ids_K)[keep].tolist()
  scores = readable_scores(np.asarray(scores_K)[keep], kind, calibration)
  row = [
    {'id': labels[i].id, 'name': labels[i].name, 'score': score}
    for i, score in zip(ids, scores.tolist(), strict=True)
  ]
  for label, why in zip(row, whys or ()):
    label['why'] = [
      {**word._asdict(), 'weight': round(word.weight, _DIGITS)} for word in why
    ]
  return json.dumps({'id': doc_id, 'labels': row}, ensure_ascii=False)
