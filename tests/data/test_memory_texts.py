import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.frames import Column, Frame
from xjax.core.errors import DataError
from xjax.data.in_memory import documents_of
from xjax.data.schema import Document


def texts(documents):
  return [document.text() for document in documents]


@pytest.mark.parametrize(
  'given',
  [
    ['a b', 'c'],
    ('a b', 'c'),
    (text for text in ['a b', 'c']),
    np.array(['a b', 'c']),
    np.array(['a b', 'c'], object),
    Column('a b', 'c'),
    Frame(body=['a b', 'c']),
    {'a b': 0, 'c': 0}.keys(),
  ],
)
def test_texts_of_every_form_become_documents(given):
  documents = documents_of(given)
  assert texts(documents) == ['a b', 'c']
  assert [document.id for document in documents] == ['0', '1']


def test_the_columns_of_a_frame_are_zones():
  (document,) = documents_of(Frame(title=['t'], body=['b']))
  assert document.zones == {'title': 't', 'body': 'b'}


@pytest.mark.parametrize(
  ('name', 'other'),
  [
    ('re\u0301sume\u0301', 'résumé'),
    (' Text\xa0', 'Text'),
    ('\u1112\u1161\u11ab', '한'),
  ],
)
def test_names_of_columns_have_one_form(name, other):
  for given, wanted in ((name, other), (other, name)):
    (document,) = documents_of(Frame(**{given: ['t']}), zones=[wanted])
    assert document.zones == {other: 't'}
  with pytest.raises(DataError, match='must have different names'):
    documents_of(Frame(**{name: ['t'], other: ['t']}))


def test_documents_stay_as_they_are():
  given = [Document('x', {'title': 't'}, ('l',))]
  assert documents_of(given) == given


@pytest.mark.parametrize(
  'make', [sparse.csr_matrix, sparse.coo_array, np.array]
)
def test_a_matrix_becomes_rows_of_features(make):
  dense = np.array([[0, 2.5, 0], [1, 0, 3]])
  documents = documents_of(make(dense))
  np.testing.assert_array_equal(documents.rows.toarray(), dense)
  assert documents.rows.dtype == np.float32
  assert documents.rows.has_sorted_indices


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    (None, 'texts is None; expected a list'),
    (b'a', 'texts is bytes, which must be decoded first'),
    ('a', 'texts is one text; expected a list'),
    (5, 'texts is of type int; expected'),
    ({'text': 'a'}, 'texts is of type dict; expected'),
    ({'a'}, 'texts is of type set; expected'),
    (np.zeros((1, 1, 1)), r'an array of shape \(1, 1, 1\)'),
    (np.array([['a']]), r'an array of shape \(1, 1\)'),
    (['a', None], r"texts\[1\] is None, not text; use '' for a missing text"),
    (['a', float('nan')], r'texts\[1\] is NaN, not text'),
    (['a', b'b'], r'texts\[1\] is bytes'),
    ([['a']], r'texts\[0\] is of type list'),
    (['a\ud800'], r'texts\[0\] holds a broken Unicode character'),
    ([Document('', {}), 'a'], r'texts\[1\] is one text, but texts\[0\] is a'),
    ([Document('', {'t': 3})], r"texts\[0\].zones\['t'\] is of type int"),
    (Column('a', None), r'texts\[1\] is None'),
    (Frame(body=['a', float('nan')]), r"texts\['body'\]\[1\] is NaN"),
    (Frame(), r'texts has the columns \[\]; columns must have'),
    (np.array([[1.0, np.nan]]), r'texts\[0, 1\] is nan; features must be fin'),
    (sparse.csr_array([[0.0], [1e39]]), r'texts\[1, 0\] is 1e\+39'),
    (np.array([[1j]]), r'an array of shape \(1, 1\)'),
  ],
)
def test_a_wrong_text_is_one_error_with_its_position(given, message):
  with pytest.raises(DataError, match=message):
    documents_of(given)
