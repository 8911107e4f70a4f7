"""Zones kept apart: rows, padding, batches."""

import numpy as np
import pytest

from xjax.core.types import PAD, Ragged
from xjax.data.text.words import UNKNOWN_ID
from xjax.train.batches.dense import EvalBatches, TrainBatches, Zones

DOCUMENTS = [
  [[5, 6, 7], [8]],
  [],
  [[9]],
  [[2, 3], [4, 5, 6, 7, 8], [9]],
  [[3, 3]],
]


def zones(documents=DOCUMENTS) -> Zones:
  rows = []
  for document in documents:
    row = [id_ for zone in document for id_ in (0, *zone)]
    rows.append(row[1:])
  return Zones.of(Ragged.of(rows))


def found(tokens_ZT, lengths_Z) -> list[list[int]]:
  return [ids[:n].tolist() for ids, n in zip(tokens_ZT, lengths_Z) if n]


@pytest.mark.parametrize('documents', [[], [[]], [[], []]])
def test_nothing(documents):
  ours = zones(documents)
  assert len(ours) == len(documents) and not ours.lengths.any()


def drawn(n: int) -> list[list[list[int]]]:
  rng = np.random.default_rng(0)
  return [
    [rng.integers(2, 90, k).tolist() for k in rng.integers(1, 9, z)]
    for z in rng.integers(0, 5, n)
  ]


def test_batches_have_what_their_documents_have():
  documents = drawn(60)
  gold = Ragged.of([[i % 7] for i in range(60)])
  given = zones(documents), gold
  shared = {'batch_size': 8, 'buckets': (4, 8)}
  train = TrainBatches(*given, seed=1, **shared)
  for batches in (
    list(EvalBatches(*given, **shared)),
    [train[i] for i in range(train.steps_per_epoch)],
  ):
    seen = []
    for batch in batches:
      assert batch.tokens_BT.shape[:2] == batch.lengths_B.shape
      for row, document in enumerate(batch.doc_B):
        real = document != PAD
        assert batch.mask_B[row] == real
        want = documents[document] if real else []
        # Without any word it is one unknown word, so that no softmax is NaN.
        got = found(batch.tokens_BT[row], batch.lengths_B[row])
        assert got == (want or [[UNKNOWN_ID]])
        longest = max(map(len, want), default=0)
        assert not real or batch.tokens_BT.shape[2] == (4 if longest < 5 else 8)
        seen += [document] * bool(real)
    assert sorted(seen) == list(range(60))
    # One program for each bucket.
    assert len({batch.tokens_BT.shape for batch in batches}) == 2
