"""Checks that counting only the labels that are seen changes no result."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.types import PAD, Ragged
from xjax.judge import slice as judged_slice
from xjax.judge.criteria import Criteria
from xjax.judge.evidence import SliceStatistics
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.metrics.slices import ALL
from xjax.judge.slice import Slice

N, L, K = 12, 700, 6


@pytest.fixture(scope='module')
def predictions():
  """Lists of the even labels up to 400, some short, and gold among them."""
  rng = np.random.default_rng(0)
  ids = 2 * np.stack([rng.permutation(200)[:K] for _ in range(N)])
  scores = -np.sort(-rng.normal(size=(N, K)), axis=1)
  ids[::4, -2:], scores[::4, -2:] = PAD, -np.inf
  golds = [row[row != PAD][::3] + [0, 1] for row in ids]
  return system(ids, scores, golds, rng.integers(0, 90, L), n_train=1000)


def evidence_of(predictions):
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  ranks_LK = np.random.default_rng(1).random((L, 3))
  criteria = Criteria(ks=(1, 3), ranks_LK=ranks_LK)
  cuts = {'': 0.0}
  return SliceStatistics.of(part, criteria, [XJAX], cuts, predictions.n_train)


def test_the_same_sums(predictions, monkeypatch):
  every = evidence_of(predictions)
  monkeypatch.setattr(judged_slice, '_COUNT_ALL_UP_TO', 0)
  some = evidence_of(predictions)
  assert (every.form.n_labels, some.form.n_labels) == (L, 128)
  assert len(every.sums) > 50
  assert every.sums == pytest.approx(some.sums, rel=1e-12)
  assert every.short == some.short
  for ours, theirs in zip(some.documents(), every.documents(), strict=True):
    np.testing.assert_array_equal(ours, theirs)


def test_places(predictions, monkeypatch):
  monkeypatch.setattr(judged_slice, '_COUNT_ALL_UP_TO', 0)
  part = Slice.of(predictions, ALL, predictions.masks[ALL])
  seen = judged_slice.SeenLabels.of(part)
  (_, documents), *_ = part.blocks()
  placed = seen.documents(documents)
  for labels, places in (
    (documents.ids_BK, placed.ids_BK),
    (documents.gold_BP, placed.gold_BP),
  ):
    assert places.dtype == np.int32
    back = np.where(places == PAD, PAD, seen.labels_H[places])
    np.testing.assert_array_equal(back, labels)


def test_all_labels_where_most_are_seen(predictions, monkeypatch):
  monkeypatch.setattr(judged_slice, '_COUNT_ALL_UP_TO', 0)
  every = Ragged.of([sorted(part) for part in np.array_split(np.arange(L), N)])
  part = Slice.of(
    dataclasses.replace(predictions, gold=every), ALL, predictions.masks[ALL]
  )
  assert judged_slice.SeenLabels.of(part).labels_H is None


def test_weights_of_a_large_slice_go_to_the_device_once(
  predictions, monkeypatch
):
  monkeypatch.setattr(judged_slice, '_NUMPY_UP_TO', 0)
  weights = evidence_of(predictions).weights.labels_L
  assert isinstance(weights, jax.Array) and weights.dtype == np.float64
