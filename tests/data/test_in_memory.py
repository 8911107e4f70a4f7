import json

import numpy as np
import pytest
from scipy import sparse

from tests.fixtures.frames import Column, Frame
from xjax.core.errors import DataError
from xjax.data.in_memory import documents_of, labels_of, warn_of_joined
from xjax.data.memory_folder import labelled_documents, write_folder
from xjax.data.schema import Document, Label


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


class NAType:
  """Stands for pandas.NA, which cannot be compared."""

  def __eq__(self, other):
    return self

  def __bool__(self):
    raise TypeError('boolean value of NA is ambiguous')


GOLD = [('a', 'c'), (), ('b',)]
HOT = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize(
  'given',
  [
    [['c', 'a'], [], ['b']],
    (({'a', 'c'}, (), np.array(['b']))),
    ({'c', 'a'} if i == 0 else {'b'} if i == 2 else set() for i in range(3)),
    Column(['a', 'c'], [], ['b']),
    [Column('a', 'c'), Column(), Column('b')],
  ],
)
def test_lists_of_every_form_give_the_same_labels(given):
  gold = labels_of(given)
  assert gold.rows == GOLD
  assert gold.labels is None


@pytest.mark.parametrize(
  'given',
  [
    *map(HOT.astype, (int, bool, float, 'O', str)),
    HOT.astype(float).astype(str),
    HOT.astype(bool).astype(str),
    sparse.coo_array(HOT),
    HOT.tolist(),
    [[1, '0', True], (False, 0.0, 'false'), np.array([0, 1, 0])],
  ],
)
def test_an_indicator_matrix_has_a_column_for_each_label(given):
  """Zeros and ones in any spelling; lists with a value twice are no ids."""
  gold = labels_of(given, ['a', 'b', 'c'])
  assert gold.rows == GOLD
  assert [label.id for label in gold.labels] == ['a', 'b', 'c']
  assert labels_of(given).rows == [('0', '2'), (), ('1',)]


@pytest.mark.parametrize(
  ('given', 'wanted'),
  [
    (['b', 'a'], [('b',), ('a',)]),  # one label for each document
    (np.array([10, 9]), [('10',), ('9',)]),
    ([[3, '3x'], [np.int32(3)]], [('3', '3x'), ('3',)]),
    # pandas has integers as floats if one is missing.
    (Column(3.0, float('nan'), np.float32(7)), [('3',), (), ('7',)]),
    ([None, 'a', NAType()], [(), ('a',), ()]),
    ([[1.0, 2], []], [('1', '2'), ()]),
    ([[0, 1], [1, 0], [1]], [('0', '1'), ('0', '1'), ('1',)]),  # ids
    ([[0, 1], [1, 0]], [('1',), ('0',)]),  # one has the second of two labels
  ],
)
def test_one_label_is_a_list_and_an_integer_stands_for_its_digits(
  given, wanted
):
  assert labels_of(given).rows == wanted


def test_a_frame_of_texts_is_an_indicator_matrix():
  gold = labels_of(Frame(a=['0', '1'], b=['1', 'True']))
  assert gold.rows == [('b',), ('a', 'b')]


def test_given_labels_keep_their_order_and_names():
  names = [Label('b', 'bee'), 'a']
  gold = labels_of([['a'], ['b', 'a']], names)
  assert [label.name for label in gold.labels] == ['bee', 'a']
  assert gold.rows == [('a',), ('b', 'a')]


@pytest.mark.parametrize(
  ('given', 'names', 'message'),
  [
    (None, None, 'labels is None; expected a list of labels'),
    ('ab', None, 'labels is one text; expected'),
    ({'a': 1}, None, 'labels is of type dict; expected'),
    ([['a'], None], None, r'labels\[1\] is None; use \[\] for a document'),
    ([['a'], float('nan')], None, r'labels\[1\] is NaN; use \[\]'),
    ([['a'], 'b'], None, r'labels\[1\] is one text, but labels\[0\] is'),
    (['a', ['b']], None, r'labels\[1\] is of type list, but labels\[0\]'),
    ([['a', None]], None, r'labels\[0\]\[1\] is None; a label must be'),
    ([['a', 1.5]], None, r'labels\[0\]\[1\] is of type float'),
    ([[True]], None, r'labels\[0\]\[0\] is of type bool'),
    ([['a', '']], None, r'labels\[0\]\[1\] is empty'),
    ([['a', '\u200b\xad ']], None, r'labels\[0\]\[1\] is empty'),
    ([['a', 'b ']], None, r"labels\[0\]\[1\] 'b ' has spaces around it"),
    ([['a', 'a']], None, r"labels\[0\]: the label 'a' occurs twice"),
    ([['a'], ['x']], ['a'], r"labels\[1\]: 'x' is not in label_names"),
    ([['a']], ['a', 'a'], r"label_names\[1\]: 'a' occurs twice"),
    ([['a']], [], 'label_names is empty'),
    (HOT, ['a'], 'labels has 3 columns, but label_names has 1 labels'),
    (HOT * 0.5, None, 'other values than 0 and 1, such as 0.5 in row 0;'),
    (Frame(a=[1, 0], b=[0, NAType()]), None, 'such as <.*NAType.* in row 1'),
    ([[0, 1, 0], [1, 1]], None, r"labels\[0\]: the label '0' occurs twice"),
    (sparse.csr_array(HOT * 3), None, 'labels has other values than 0 and 1'),
    (np.array([['a', 'b']]), None, r'labels is an array of shape \(1, 2\)'),
    (np.zeros((2, 2, 2)), None, r'labels is an array of shape \(2, 2, 2\)'),
  ],
)
def test_a_wrong_label_is_one_error_with_its_position(given, names, message):
  with pytest.raises(DataError, match=message):
    labels_of(given, names)


@pytest.mark.parametrize(
  ('texts', 'shown'),
  [
    (['a;b', 'b;c', 'a', 'c'], 'a;b'),
    (['рыба, право', 'право, рыба', 'рыба'], 'рыба, право'),
    (["['a', 'b']", "['b']", '[]'], r"\['a', 'b'\]"),
    ([f'{i} {i + 1} {i + 2}' for i in range(900, 930)], '900 901 902'),
  ],
)
def test_single_labels_that_look_like_several_are_a_warning(texts, shown):
  with pytest.raises(UserWarning, match=f'texts such as .{shown}. look'):
    warn_of_joined(texts, 'y')
  with pytest.raises(UserWarning, match='give a list for each document'):
    labels_of(Column(*texts))
  assert len(labels_of(texts, sorted({*texts})).rows) == len(texts)


@pytest.mark.parametrize(
  'texts', [['R&D; ops'] * 3 + ['sales'], ['own label', 'other label'] * 9]
)
def test_single_labels_may_have_separators(texts):
  assert labels_of(texts).rows == [(text,) for text in texts]


def test_a_matrix_may_be_read_only():
  matrix = sparse.csr_array(np.eye(2, dtype=int))
  matrix.data[0] = 0
  for array in (matrix.data, matrix.indices, matrix.indptr):
    array.flags.writeable = False  # as in the processes of joblib
  assert labels_of(matrix).rows == [(), ('1',)]


def test_numbers_of_texts_and_labels_must_be_equal():
  with pytest.raises(DataError, match='x has 3 documents, but y has'):
    labelled_documents(['a', 'b', 'c'], [[], []], names=('x', 'y'))


def test_splits_of_features_share_their_labels(tmp_path):
  splits = {
    name: labelled_documents(np.eye(2), labels)
    for name, labels in (('train', [['b'], []]), ('dev', [['a'], ['b', 'a']]))
  }
  write_folder(tmp_path / 'data', splits)
  labels = (tmp_path / 'data' / 'labels.jsonl').read_text().splitlines()
  assert [json.loads(line)['id'] for line in labels] == ['a', 'b']
  dev = (tmp_path / 'data' / 'dev.txt').read_text()
  assert dev == '2 2 2\n0 0:1.0\n0,1 1:1.0\n'


@pytest.mark.parametrize(
  'given',
  [
    [['sante\u0301', 'santé'], ['santé\xa0']],
    (x for x in [{'san\u200bté'}, ('sante\u0301\u3000',)]),
    ['santé', 'sante\u0301\xa0'],
  ],
)
def test_names_have_one_form(given):
  assert labels_of(given).rows == [('santé',)] * 2


def test_names_of_labels_have_one_form_and_ids_stay():
  given = [['sante\u0301'], ['a\xa0b']]
  names = ['a  b', 'santé']
  assert labels_of(given, names).rows == [('santé',), ('a b',)]
  assert [x.id for x in labels_of(given, names).labels] == ['a b', 'santé']
  ids = [Label('sante\u0301'), Label('santé'), Label('a\xa0b')]
  assert labels_of(given, ids).rows == [tuple(row) for row in given]
  assert labels_of(given, None, known_ids=given[0]).rows == [
    ('sante\u0301',),
    ('a b',),
  ]
