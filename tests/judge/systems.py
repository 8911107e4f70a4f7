"""Predictions of a system, of arrays that a test made."""

import numpy as np

from xjax.core.types import Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions


def lists_of(ids, scores) -> LabelLists:
  return LabelLists(np.array(ids, np.int32), np.array(scores, np.float32))


def system(ids, scores, gold, counts, /, **fields) -> Predictions:
  """Lists [N, K] of all labels, N rows of gold, and training counts [L].

  Scores are logits, unless fields say otherwise.
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


def tree_of(n, arity) -> Hierarchy:
  """Labels l0, l1, ... of which each but the first ones has a parent."""
  above = [(f'l{i // arity}',) if i >= arity else () for i in range(n)]
  return Hierarchy.of(Label(f'l{i}', parents=x) for i, x in enumerate(above))
