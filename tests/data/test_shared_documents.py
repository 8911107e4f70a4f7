"""Features of documents are computed once for all models that share them."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from xjax.data.schema import Document
from xjax.data.shared_documents import SharedDocuments

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


def title(document):
  return dataclasses.replace(
    document, zones={'title': document.zones.get('title', '')}
  )


def first(document):
  zones = {name: text[:1] for name, text in document.zones.items()}
  return dataclasses.replace(document, zones=zones)


def features(documents, letters, key='letters'):
  return documents.features(key, letters).toarray().tolist()


def directly(documents):
  return Letters()(list(documents)).toarray().tolist()


def test_parts_share_the_features_of_all_documents(letters):
  whole = SharedDocuments(DOCUMENTS)
  part = whole.part([3, 0, 3])
  again = part.part(np.array([2, 1]))
  assert [document.id for document in part] == ['3', '0', '3']
  assert [document.id for document in again] == ['3', '0']
  assert len(again) == 2 and again[-1] is DOCUMENTS[0]
  for documents in (again, whole, part, whole.part([])):
    assert features(documents, letters) == directly(documents)
  assert letters.sizes == [4]


def test_views_share_features_with_their_parts_and_equal_views(letters):
  whole = SharedDocuments(DOCUMENTS)
  one = whole.part([2, 1]).seen_as(title, 'title')
  other = whole.seen_as(title, 'title').part([3])
  for documents in (one, other):
    assert [set(document.zones) for document in documents][0] == {'title'}
    assert features(documents, letters) == directly(documents)
  assert letters.sizes == [4]
  assert features(whole, letters) == directly(DOCUMENTS)
  assert letters.sizes == [4, 4]


def test_a_view_of_a_view_shows_both_changes(letters):
  whole = SharedDocuments(DOCUMENTS)
  both = whole.seen_as(title, 'title').seen_as(first, 'first')
  assert both[2].zones == {'title': 'a'}
  for documents in (whole.seen_as(first, 'first'), both):
    assert features(documents, letters) == directly(documents)
  assert features(both.part([2]), letters) == [[1, 0]]
  assert letters.sizes == [4, 4]


def test_other_features_are_computed_apart(letters):
  documents, other = SharedDocuments(DOCUMENTS), Letters()
  features(documents, letters)
  documents.features('none', lambda x: 0 * other(x))
  assert features(documents, letters) == directly(DOCUMENTS)
  assert not documents.part([1]).features('none', other).toarray().any()
  assert letters.sizes == other.sizes == [4]


def test_other_documents_share_nothing(letters):
  features(SharedDocuments(DOCUMENTS), letters)
  few = SharedDocuments(DOCUMENTS[:2])
  assert features(few, letters) == directly(DOCUMENTS[:2])
  assert letters.sizes == [4, 2]


def test_rows_that_do_not_exist_are_an_error():
  part = SharedDocuments(DOCUMENTS).part([1])
  with pytest.raises(IndexError):
    part[1]
