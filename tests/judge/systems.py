"""Predictions of a system, of arrays that a test made."""

import numpy as np

from xjax.core.types import Ragged, ScoreKind
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions


def lists_of(ids, scores) -> LabelLists:
  return LabelLists(np.array(ids, np.int32), np.array(scores, np.float32))


def system(ids, scores, gold, counts, /, **fields) -> Predictions:
  """Predictions that have lists of all labels; scores are logits.

  Args:
    ids: label indices [N, K], best first.
    scores: of these labels, [N, K].
    gold: N rows of gold labels.
    counts: training documents of each label, [L].
    **fields: fields of Predictions that are to be others.
  """
  parts = {
    'score_kind': ScoreKind.LOGIT,
    'n_scored': len(counts),
    'n_train': 100,
    'doc_ids': tuple(f'd{i}' for i in range(len(ids))),
    'labels': tuple(f'l{i}' for i in range(len(counts))),
    'train_counts': np.array(counts, np.int32),
    'lists': {'all': lists_of(ids, scores)},
    'gold': Ragged.of(gold),
  }
  return Predictions(**(parts | fields))
