"""Batches: contents, order, resume, shards, shapes."""

import contextlib

import jax
import numpy as np
import pytest

from xjax.core.types import PAD, Ragged
from xjax.networks.batch import TokenBatch
from xjax.train.batches.dense import EvalBatches, TrainBatches

BUCKETS = (4, 8, 16)


def corpus(n: int, seed: int = 0) -> tuple[Ragged, Ragged]:
  rng = np.random.default_rng(seed)
  tokens = [rng.integers(2, 90, k) for k in rng.integers(0, 17, n)]
  gold = [np.sort(rng.permutation(40)[:k]) for k in rng.integers(0, 12, n)]
  return Ragged.of(tokens), Ragged.of(gold)


def train(n: int = 50, **changes) -> TrainBatches:
  settings = {'batch_size': 8, 'buckets': BUCKETS, 'seed': 3, **changes}
  return TrainBatches(*corpus(n), **settings)


def reading(batches: TrainBatches) -> contextlib.closing:
  return contextlib.closing(iter(batches.dataset()))


def assert_same(a: TokenBatch, b: TokenBatch):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def take(iterator, n: int) -> list[TokenBatch]:
  return [next(iterator) for _ in range(n)]


def documents(batches) -> list[int]:
  return [int(d) for b in batches for d in b.doc_B if d != PAD]


def test_an_epoch_has_every_document_once():
  batches = train()
  with reading(batches) as iterator:
    for _ in range(3):
      epoch = take(iterator, batches.steps_per_epoch)
      assert sorted(documents(epoch)) == list(range(50))


def test_a_batch_has_what_its_documents_have():
  tokens, gold = corpus(50)
  batches = train()
  for i in range(batches.steps_per_epoch):
    batch = batches[i]
    assert batch.tokens_BT.dtype == batch.positives_BP.dtype == np.int32
    assert batch.lengths_B.dtype == batch.doc_B.dtype == np.int32
    assert batch.mask_B.dtype == bool
    width = batch.tokens_BT.shape[1]
    for row, doc in enumerate(batch.doc_B):
      assert batch.mask_B[row] == (doc != PAD)
      length, ids = batch.lengths_B[row], batch.tokens_BT[row]
      positives = batch.positives_BP[row]
      if doc == PAD:
        assert (positives == PAD).all()
      else:
        np.testing.assert_array_equal(positives[positives != PAD], gold[doc])
        assert width == min(b for b in BUCKETS if b >= len(tokens[doc]))
      words = tokens[doc] if doc != PAD else []
      # A row without tokens is one unknown token, so that no softmax is NaN.
      want = words if len(words) else [1]
      np.testing.assert_array_equal(ids[:length], want)
      assert (ids[length:] == 0).all()


def test_the_longest_gold_fits_and_shapes_are_few():
  tokens, gold = corpus(200)
  batches = train(200)
  seen = {
    (b.tokens_BT.shape[1], b.positives_BP.shape[1])
    for b in map(batches.__getitem__, range(batches.steps_per_epoch))
  }
  assert seen == batches.steps_by_shape.keys() and len(seen) == len(BUCKETS)
  assert {p for _, p in seen} == {16}  # at most 11 positives
  few = TrainBatches(
    tokens, Ragged.of([[1]] * 200), batch_size=8, buckets=BUCKETS, seed=0
  )
  assert {p for _, p in few.steps_by_shape} == {4}


def test_order_differs_by_epoch_and_by_seed_and_is_repeatable():
  batches = train()
  steps = batches.steps_per_epoch
  first, second = (
    documents(batches[e * steps + i] for i in range(steps)) for e in (0, 1)
  )
  other = train(seed=4)
  third = documents(other[i] for i in range(steps))
  assert first != second and first != third
  again = train()
  assert first == documents(again[i] for i in range(steps))
  # Batches are shuffled too: their widths are not in order.
  widths = [batches[i].tokens_BT.shape[1] for i in range(steps)]
  assert widths != sorted(widths)


@pytest.mark.parametrize('workers', [0, 1, 3])
def test_threads_do_not_matter(workers):
  batches = train()
  with reading(train(workers=workers)) as iterator:
    for i in range(2 * batches.steps_per_epoch):
      assert_same(next(iterator), batches[i])


def test_resumes_exactly_from_any_point():
  batches = train(30)
  total = 2 * batches.steps_per_epoch + 1
  with reading(batches) as iterator:
    states, seen = [], []
    for _ in range(total):
      states.append(iterator.get_state())
      seen.append(next(iterator))
  with reading(train(30)) as resumed:
    for at in reversed(range(total)):
      resumed.set_state(states[at])
      for want in seen[at : at + 3]:
        assert_same(next(resumed), want)


@pytest.mark.parametrize('n', [0, 1, 50])
def test_eval_has_every_document_once_by_bucket_then_row(n):
  tokens, gold = corpus(n)
  batches = EvalBatches(tokens, gold, batch_size=8, buckets=BUCKETS)
  seen = list(batches)
  assert len(seen) == len(batches)
  docs = documents(seen)
  buckets = [min(b for b in BUCKETS if b >= len(tokens[d])) for d in docs]
  assert sorted(docs) == list(range(n))
  order = list(zip(buckets, docs, strict=True))
  assert order == sorted(order)
  # It can be gone through again.
  assert documents(batches) == docs
