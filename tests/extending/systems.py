"""Predictions of a system."""

import numpy as np

from xjax.core.types import Ragged, ScoreKind
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions

KS = (1, 3)


def predictions(seed=0, n=60, n_labels=30, k=6):
  rng = np.random.default_rng(seed)
  scores = rng.random((n, n_labels)).astype(np.float32)
  ids = np.argsort(-scores, axis=1, kind='stable')[:, :k].astype(np.int32)
  # The same gold, whatever the system.
  golds = np.random.default_rng(9)
  rows = [golds.permutation(n_labels)[: golds.integers(0, 5)] for _ in range(n)]
  return Predictions(
    score_kind=ScoreKind.PROBABILITY,
    n_scored=n_labels,
    n_train=100,
    doc_ids=tuple(f'd{i}' for i in range(n)),
    labels=tuple(f'l{i}' for i in range(n_labels)),
    train_counts=np.arange(1, n_labels + 1, dtype=np.int32),
    lists={'all': LabelLists(ids, np.take_along_axis(scores, ids, 1))},
    gold=Ragged.of([row.tolist() for row in rows]),
  )
