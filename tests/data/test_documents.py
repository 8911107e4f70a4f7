"""Documents are parts of each other, and remember features of all of them."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from xjax.core.types import Ragged
from xjax.data.documents import Documents, SparseDocuments
from xjax.data.schema import Document, Split
from xjax.data.vectors.feature_rows import FeatureRows

DOCUMENTS = [
  Document(f'{i}', {'title': 'ab' * i, 'text': 'b' * (3 - i)}) for i in range(4)
]


class Letters:
  """Counts a and b in documents, and the calls of the function."""

  def __init__(self):
    self.sizes = []

  def __call__(self, documents):
    self.sizes.append(len(documents))
    texts = [documents[row].text() for row in range(len(documents))]
    counts = [[text.count(x) for x in 'ab'] for text in texts]
    return sparse.csr_array(np.array(counts, np.float32).reshape(-1, 2))


@pytest.fixture
def letters():
  return Letters()


@pytest.fixture
def whole():
  return Documents(DOCUMENTS).remembering()


def title(document):
  zones = {'title': document.zones.get('title', '')}
  return dataclasses.replace(document, zones=zones)


def first(document):
  zones = {name: text[:1] for name, text in document.zones.items()}
  return dataclasses.replace(document, zones=zones)


def features(documents, letters, key='letters'):
  return documents.view(key, letters).toarray().tolist()


def directly(documents):
  return Letters()(list(documents)).toarray().tolist()


def test_parts_share_the_features_of_all_documents(letters, whole):
  part = whole.part([3, 0, 3])
  again = part.part(np.array([2, 1]))
  assert [document.id for document in part] == ['3', '0', '3']
  assert [document.id for document in again] == ['3', '0']
  assert len(again) == 2 and again[-1] is DOCUMENTS[0]
  with pytest.raises(IndexError):
    again[2]
  for documents in (again, whole, part, whole.part([])):
    assert features(documents, letters) == directly(documents)
  assert letters.sizes == [4]


def test_features_of_a_part_are_computed_from_parts_of_all_documents(whole):
  def in_halves(documents):
    halves = documents.part([0, 1]), documents.part([2, 3])
    return np.array([x.id for half in halves for x in half])

  assert whole.part([1, 2]).view('ids', in_halves).tolist() == ['1', '2']


def test_views_share_features_with_their_parts_and_equal_views(letters, whole):
  one = whole.part([2, 1]).seen_as(title, 'title')
  other = whole.seen_as(title, 'title').part([3])
  for documents in (one, other):
    assert [set(document.zones) for document in documents][0] == {'title'}
    assert features(documents, letters) == directly(documents)
  assert letters.sizes == [4]
  assert features(whole, letters) == directly(DOCUMENTS)
  assert letters.sizes == [4, 4]


def test_a_view_of_a_view_shows_both_changes(letters, whole):
  both = whole.seen_as(title, 'title').seen_as(first, 'first')
  assert both[2].zones == {'title': 'a'}
  for documents in (whole.seen_as(first, 'first'), both):
    assert features(documents, letters) == directly(documents)
  assert features(both.part([2]), letters) == [[1, 0]]
  assert letters.sizes == [4, 4]


def test_other_features_are_computed_apart(letters, whole):
  other = Letters()
  features(whole, letters)
  whole.view('none', lambda x: 0 * other(x))
  assert features(whole, letters) == directly(DOCUMENTS)
  assert not whole.part([1]).view('none', other).toarray().any()
  assert letters.sizes == other.sizes == [4]
  # Other documents share nothing.
  few = Documents(DOCUMENTS[:2]).remembering()
  assert features(few, letters) == directly(DOCUMENTS[:2])
  assert letters.sizes == [4, 2]


def test_documents_without_memory_compute_their_own_features(letters):
  part = Documents(DOCUMENTS).part([2, 1])
  for _ in range(2):
    assert features(part, letters) == directly(part)
  assert letters.sizes == [2, 2]
  assert Documents(DOCUMENTS).remembering().remembering().memory == {}


def test_blocks_read_each_document_once_and_share_features(letters):
  reads = []

  class Watched(list):
    def __getitem__(self, row):
      reads.append(row)
      return super().__getitem__(row)

  whole = Documents(Watched(DOCUMENTS)).seen_as(title, 'title').part([3, 1, 0])
  for size, lengths in ((2, [2, 1]), (9, [3])):
    reads.clear()
    letters.sizes.clear()
    blocks = list(whole.blocks(size))
    assert np.concatenate([rows for rows, _ in blocks]).tolist() == [0, 1, 2]
    for rows, block in blocks:
      for _ in range(2):
        assert list(block) == [whole[row] for row in rows]
      wanted = directly(block)
      assert features(block, letters) == features(block, letters) == wanted
      for row, inner in block.blocks(1):
        assert features(inner, letters) == [wanted[row[0]]]
    assert letters.sizes == lengths
    assert len(reads) == 3 + 2 * 3  # the test itself reads them twice


def test_blocks_of_documents_that_remember_share_all_features(letters, whole):
  for rows, block in whole.part([3, 2, 0]).blocks(2):
    assert features(block, letters) == directly(block)
    assert len(block) == len(rows)
  assert letters.sizes == [4]


def test_parts_have_the_gold_labels_and_vectors_of_their_documents():
  gold = Ragged.of([[0], [], [1, 2], [3]])
  rows = [np.full(2, row, np.float32) for row in range(4)]
  ids = [document.id for document in DOCUMENTS]
  vectors = FeatureRows.from_arrays('x', ids, rows, 2)
  split = Split('dev', ids, gold, DOCUMENTS, 'digest', vectors)
  whole = Documents.of_split(split)
  assert whole.split is split
  part = whole.part([3, 2]).part([1, 0])
  assert part.split is None
  assert part.numbers.tolist() == part.rows.tolist() == [2, 3]
  assert [part.gold[row].tolist() for row in range(2)] == [[1, 2], [3]]
  assert part.vectors.ids == ['2', '3']
  (_, block), *_ = part.blocks(1)
  assert block.numbers.tolist() == [2] and block.vectors.ids == ['2']
  assert block.without_vectors().vectors is None
  assert Documents.of(part) is part
  assert Documents.of(block.without_vectors(), block.vectors).vectors


def test_sparse_rows_are_documents():
  rows = sparse.csr_array(np.eye(4, 3, dtype=np.float32))
  labels = Ragged.of([[0], [], [1, 2], [3]])
  whole = Documents(SparseDocuments('x.txt', rows, labels))
  part = whole.part([2, 0])
  assert part.sparse.ids == ('2', '0') and part[0].labels == ('1', '2')
  dense = part.sparse.rows.toarray()
  np.testing.assert_array_equal(dense, np.eye(4, 3)[[2, 0]])
  for row, block in part.blocks(1):
    assert block.sparse.ids == (part.sparse.ids[row[0]],)
    assert block.part([]).sparse.rows.shape == (0, 3)
  assert Documents(DOCUMENTS).sparse is None
