"""Checks that documents that share rows are all found again, in their place."""

import dataclasses

from hypothesis import given, strategies as st
import jax
import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.core.mesh_config import WHOLE, ProcessShare
from xjax.core.types import PAD, Ragged
from xjax.networks.batch import TokenBatch
from xjax.train.batches.dense import EvalBatches, TrainBatches
from xjax.train.batches.packing import Packing, first_fit

T, PADDING = 16, 3


def corpus(n: int, seed: int = 0) -> tuple[Ragged, Ragged]:
  rng = np.random.default_rng(seed)
  lengths = rng.integers(0, T + 1, n)
  tokens = [rng.integers(100, 10_000, k) for k in lengths]
  gold = [np.sort(rng.permutation(40)[:k]) for k in rng.integers(0, 12, n)]
  return Ragged.of(tokens), Ragged.of(gold)


def train(n: int = 50, **changes) -> TrainBatches:
  settings = {
    'batch_size': 8,
    'buckets': (4, T),
    'seed': 3,
    'padding': PADDING,
    'packing': Packing(),
    **changes,
  }
  return TrainBatches(*corpus(n), **settings)


def packs(batch: TokenBatch, packing: Packing) -> list[TokenBatch]:
  """Returns what each device reads in each micro-batch of the step."""

  def cut(array):
    parts = array.reshape(
      packing.devices, -1, packing.accumulate, *array.shape[1:]
    )
    return [
      part[:, micro] for part in parts for micro in range(packing.accumulate)
    ]

  fields = {
    field.name: cut(value)
    for field in dataclasses.fields(batch)
    if (value := getattr(batch, field.name)) is not None
  }
  return [
    TokenBatch(features_BTD=None, **dict(zip(fields, values)))
    for values in zip(*fields.values(), strict=True)
  ]


def check_pack(pack: TokenBatch, tokens: Ragged) -> list[int]:
  """Every document is whole and alone in its segment; nothing else is there."""
  ids, segments = pack.tokens_BT.ravel(), pack.segments_BT.ravel()
  read = np.zeros(len(ids), bool)
  for document, first, length in zip(
    pack.doc_B, pack.first_B, pack.lengths_B, strict=True
  ):
    words = tokens[document] if document != PAD else []
    span = slice(first, first + length)
    np.testing.assert_array_equal(ids[span], words if len(words) else [1])
    assert first // T == (first + length - 1) // T  # in one row
    row = pack.segments_BT[first // T]
    number = segments[first]
    assert number > 0 and (row == number).sum() == length
    assert (segments[span] == number).all() and not read[span].any()
    read[span] = True
  for row, used in zip(pack.segments_BT, read.reshape(-1, T), strict=True):
    assert list(np.unique(row[used])) == list(
      range(1, row[used].max(initial=0) + 1)
    )
    if not used.any():
      assert row[0] == 1 and (row[1:] == 0).all()
    else:
      assert (row[~used] == 0).all()
  assert (ids[~read] == PADDING).all()
  return list(pack.doc_B[pack.doc_B != PAD])


@pytest.mark.parametrize('accumulate', [1, 2])
@pytest.mark.parametrize('shards', [1, 2, 4])
def test_every_document_is_found_again(shards, accumulate):
  tokens, gold = corpus(50)
  packing = Packing(shards, accumulate)
  batches = train(packing=packing, batch_size=16)
  plain = train(packing=None, buckets=(T,), batch_size=16)
  assert batches.steps_per_epoch == plain.steps_per_epoch == 4
  for i in range(2 * batches.steps_per_epoch):
    batch, apart = batches[i], plain[i]
    # The documents of a batch follow from seed and epoch, packed or not.
    for name in ('doc_B', 'mask_B', 'positives_BP', 'lengths_B'):
      a, b = getattr(batch, name), getattr(apart, name)
      np.testing.assert_array_equal(a, b)
      assert a.dtype == b.dtype
    for name in ('tokens_BT', 'segments_BT', 'first_B'):
      assert getattr(batch, name).dtype == np.int32
    assert len(batch.tokens_BT) <= 16
    found = [check_pack(pack, tokens) for pack in packs(batch, packing)]
    assert sorted(sum(found, [])) == sorted(batch.doc_B[batch.mask_B])


@given(st.lists(st.integers(1, T), min_size=1, max_size=40))
def test_first_fit_decreasing(lengths):
  lengths = np.array(lengths)
  placed = first_fit(lengths, T)
  # This is the plain definition of first-fit decreasing.
  left: list[int] = []
  for at in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
    row = next((r for r, n in enumerate(left) if n >= lengths[at]), len(left))
    left += [T] * (row == len(left))
    assert tuple(placed[at, :2]) == (row, T - left[row])
    left[row] -= lengths[at]


def test_short_documents_cost_what_they_have():
  tokens = Ragged.of([[7, 8]] * 64)
  gold = Ragged.of([()] * 64)
  settings = {'batch_size': 64, 'buckets': (T,), 'packing': Packing()}
  (batch,) = EvalBatches(tokens, gold, **settings)
  assert batch.tokens_BT.shape == (8, T)
  assert (batch.segments_BT == np.arange(T) // 2 + 1).all()


@pytest.mark.parametrize('packing', [None, Packing(4), Packing(4, 2)])
@pytest.mark.parametrize('count', [2, 4])
def test_shares_of_all_processes_make_the_batch(packing, count):
  def read(share):
    return train(batch_size=16, packing=packing, share=share)

  whole = read(WHOLE)
  parts = [read(ProcessShare((i,), count)) for i in range(count)]
  for i in range(2 * whole.steps_per_epoch):
    joined = jax.tree.map(
      lambda *x: np.concatenate(x), *[part[i] for part in parts]
    )
    jax.tree.map(np.testing.assert_array_equal, joined, whole[i])


def test_a_share_of_parts_that_lie_apart():
  def read(*parts):
    share = ProcessShare(parts, 4)
    return train(batch_size=16, packing=Packing(4, 2), share=share)

  whole, apart = read(0, 1, 2, 3), read(0, 2)
  for i in range(whole.steps_per_epoch):
    wanted = jax.tree.map(
      lambda x: np.concatenate(np.split(x, 4)[::2]), whole[i]
    )
    jax.tree.map(np.testing.assert_array_equal, apart[i], wanted)


def test_no_documents():
  empty = Ragged.of([])
  settings = {'batch_size': 2, 'buckets': (T,), 'packing': Packing()}
  assert list(EvalBatches(empty, empty, **settings)) == []
  with pytest.raises(DataError, match='no documents'):
    TrainBatches(empty, empty, seed=0, **settings)
