"""Batches of sparse features: every document once, whatever the shares."""

from hypothesis import given, strategies as st
import numpy as np
import pytest
from scipy import sparse

from xjax.core.errors import ConfigError
from xjax.core.mesh_config import Share
from xjax.core.types import PAD, Ragged
from xjax.data.sparse_documents import SparseBatches, batch_rows

TEXTS = ['aab', '', 'c', 'abcd', 'b', '', 'dd']
GOLD = Ragged.of([(0, 1, 2), (), (1,), (2,), (), (0,), (3, 4)])


def letters(at):
  """Ids are places in the alphabet, weights how often a letter is there."""
  texts = [TEXTS[row] for row in at]
  rows = [sorted(set(text)) for text in texts]
  counts = [text.count(x) for text, row in zip(texts, rows) for x in row]
  ids = Ragged.of([[ord(x) - ord('a') for x in row] for row in rows])
  parts = np.array(counts, np.float32), ids.values, ids.indptr
  return sparse.csr_array(parts, shape=(len(texts), 26))


def batches(size, index=0, count=1):
  return SparseBatches(
    letters, GOLD, batch_size=size, share=Share((index,), count)
  )


def documents(found):
  """Row -> (letters with their counts, gold), and the rows in order."""
  rows = []
  for batch in found:
    for i, row in enumerate(batch.doc_B):
      n = batch.lengths_B[i]
      ids, weights = batch.tokens_BT[i], batch.weights_BT[i]
      assert not ids[n:].any() and not weights[n:].any()
      assert batch.mask_B[i] == (row != PAD)
      gold = batch.positives_BP[i]
      counts = dict(zip(ids[:n].tolist(), weights[:n].tolist(), strict=True))
      rows.append((int(row), counts, gold[gold != PAD].tolist()))
  return rows


EXPECTED = [
  (row, {ord(x) - ord('a'): text.count(x) for x in text}, GOLD[row].tolist())
  for row, text in enumerate(TEXTS)
]


@pytest.mark.parametrize('size', [1, 2, 3, 7, 16])
def test_every_document_once_in_order(size):
  found = list(batches(size))
  assert len(found) == len(batches(size)) == -(-len(TEXTS) // size)
  assert all(len(batch.doc_B) == size for batch in found)
  rows = documents(found)
  assert [row for row in rows if row[0] != PAD] == EXPECTED
  assert all(row[1:] == ({}, []) for row in rows if row[0] == PAD)


def test_types():
  (batch,) = batches(8)
  assert batch.tokens_BT.dtype == np.int32
  assert batch.weights_BT.dtype == np.float32
  assert batch.lengths_B.dtype == batch.doc_B.dtype == np.int32


def test_no_wider_than_the_longest_row():
  assert [b.tokens_BT.shape[1] for b in batches(2)] == [2, 4, 1, 1]


def test_processes_share_each_batch():
  shares = [list(batches(4, index, 2)) for index in range(2)]
  assert len(shares[0]) == len(shares[1]) == 2
  both = [batch for pair in zip(*shares, strict=True) for batch in pair]
  rows = documents(both)
  assert [row for row in rows if row[0] != PAD] == EXPECTED


@pytest.mark.parametrize(('size', 'count'), [(0, 1), (3, 2)])
def test_shares_must_be_whole(size, count):
  with pytest.raises(ConfigError, match=f'a batch of {size} documents'):
    batches(size, 0, count)


def test_nothing_to_read():
  empty = SparseBatches(letters, Ragged.of([]), batch_size=4)
  assert len(empty) == 0 and list(empty) == []


def the_same(one, other):
  return one.shape == other.shape and all(
    np.array_equal(getattr(one, name), getattr(other, name))
    for name in ('indptr', 'indices', 'data')
  )


matrices = st.lists(
  st.dictionaries(
    st.integers(0, 8), st.floats(-9, 9, width=32) | st.just(0.0), max_size=6
  ),
  min_size=1,
  max_size=9,
)


@given(matrices, st.integers(1, 4))
def test_padding_has_an_inverse(rows, size):
  # Weights of 0 are entries like others.
  ids = Ragged.of([sorted(row) for row in rows])
  weights = [row[id_] for row in rows for id_ in sorted(row)]
  parts = np.array(weights, np.float32), ids.values, ids.indptr
  matrix = sparse.csr_array(parts, shape=(len(rows), 9))
  gold = Ragged.of([()] * len(rows))
  found = SparseBatches(matrix.__getitem__, gold, batch_size=size)
  rows = [batch_rows(batch, 9) for batch in found]
  assert all(row.indices.dtype == row.indptr.dtype == np.int32 for row in rows)
  joined = sparse.vstack(rows, format='csr')
  assert the_same(joined[: len(gold)], matrix)
  assert joined[len(gold) :].nnz == 0
