"""Broken scores, gold and filters: one clear error, with line or row."""

import gzip
import pathlib
import pickle
import re

import numpy as np
import pytest

from tests.faults.damage import matrix, npz
from xjax.core.errors import DataError
from xjax.judge.files.judge_files import JudgeFiles, read_judged

TEXT = b'3 4\n0:0.5 2:0.25\n\n3:1.0\n'
LISTS = (
  b'{"id": "a", "labels": [{"id": "x", "name": "X", "score": 0.5}]}\n'
  b'{"id": "b", "labels": []}\n'
)
DOCUMENTS = (
  b'{"id": "a", "text": "t", "labels": ["x"]}\n'
  b'{"id": "b", "text": "t", "labels": ["y", "z"]}\n'
)
GOLD = b'3 2 4\n0,3 1:1\n 0:0.5\n\n'

UNKNOWN = (
  ' does not contain predictions in a known format; known formats are: a '
  'sparse matrix saved by scipy (.npz: csr, csc or coo); '
  'rows `label:score` under a header `N L`; predictions.npz; JSON lines with '
  'labels; a table with labels (CSV, TSV, Parquet, JSON, fastText)'
)
DENSE = (
  '; save a dense array of NumPy with scipy.sparse.save_npz(PATH, '
  'scipy.sparse.csr_array(ARRAY))'
)
NOT_FINITE = '1: the score of labels[0] is not a finite number'

# Predictions, and what the error says of them.
PREDICTIONS: list[tuple[bytes, str]] = [
  (b'', ' is empty'),
  (bytes(range(250, 0, -1)) * 9, UNKNOWN),
  (b'{"a": 1}\n', UNKNOWN),
  (npz(a=np.zeros(2)), UNKNOWN + DENSE),
  (TEXT.replace(b'1.0', b'nan'), '4: the score of label 3 is NaN'),
  (TEXT.replace(b'0.25', b'1e39'), '2: the score of label 2 is infinite'),
  (
    TEXT[4:].replace(b'0:', b'3:'),
    '1: the header `N L` (numbers of documents and labels) is missing; a score '
    'file must start with this header',
  ),
  (b'0 4\n', ' has no document'),
  (
    b'1 2000000000\n\n',
    ' has 2000000000 labels; at most 100000000 are allowed',
  ),
  (
    b'3 100000000\n0:1\n1:1\n2:1\n',
    ' has 100000000 labels, but only 3 entries; at most 4194304 labels are '
    'believed then. Correct the header, or number the labels without gaps',
  ),
  (
    gzip.compress(matrix(), mtime=0),
    ' is a gzipped .npz; unpack it with gunzip',
  ),
  (LISTS.replace(b'0.5', b'-1e999'), NOT_FINITE),
  (LISTS.replace(b'0.5', b'1e39'), "1: the score of label 'x' is infinite"),
  (
    LISTS.replace(b'"id": "x"', b'"i": "x"'),
    '1: the id of labels[0] is null, not text or an integer',
  ),
  (
    LISTS + DOCUMENTS.replace(b'"a"', b'"c"')[:42],
    "3: label 'x' has no score, but others have",
  ),
  (
    LISTS.replace(b'[]', b'[{"id": "x", "score": 1}, {"id": "x", "score": 2}]'),
    "2: label 'x' occurs twice",
  ),
  (LISTS + LISTS[:64], "3: duplicate document 'a'"),
]

NO_MATRIX = ' cannot be read as a sparse matrix of scipy ('
MATRICES: list[tuple[bytes, str]] = [
  (matrix(data=[1, np.nan, 2]), ' row 0: the score of label 2 is NaN'),
  (
    matrix('coo', data=[1, 2, np.inf]),
    ' row 2: the score of label 3 is infinite',
  ),
  (matrix(indices=[2, 2, 3]), ' row 0: label 2 occurs twice'),
  (matrix(indices=[0, 4, 3]), f'{NO_MATRIX}indices must be < 4'),
  (matrix('csc', indices=[0, 3, 2]), f'{NO_MATRIX}indices must be < 3'),
  (matrix('coo', col=[0, -1, 2]), f'{NO_MATRIX}negative'),
  (
    matrix('coo', shape=[2_000_000_000, 4]),
    ' has 2000000000 rows, but only 3 entries; at most 4194304 rows are '
    'believed then. Correct the header, or number the rows without gaps',
  ),
  (matrix('coo', shape=[2**40, 4]), f'{NO_MATRIX}its shape is ['),
  (matrix(indptr=[0, 2, 1, 3]), f'{NO_MATRIX}indptr must be'),
  (matrix('csc', indptr=[0, 3]), f'{NO_MATRIX}index pointer size 2'),
  (matrix(data=[1, 1]), f'{NO_MATRIX}indices and data should have'),
  (matrix('bsr'), f'{NO_MATRIX}its format is bsr'),
  (matrix(data=[1j] * 3), f'{NO_MATRIX}its values are complex128'),
]


def told(
  folder: pathlib.Path, files: dict[str, bytes], **more: object
) -> str | None:
  """The one error of these files, without the folder."""
  for name, data in files.items():
    (folder / name).write_bytes(data)
  paths = {name: folder / name for name in files}
  try:
    read_judged(JudgeFiles(**paths, **more))
  except DataError as error:
    return str(error).replace(f'{folder}/', '')
  return None


@pytest.mark.parametrize(
  ('data', 'message'),
  [*PREDICTIONS, *MATRICES],
  ids=[message for _, message in (*PREDICTIONS, *MATRICES)],
)
def test_broken_predictions(tmp_path, data, message):
  error = told(tmp_path, {'predictions': data})
  if message.startswith(NO_MATRIX):  # the rest is SciPy's
    assert error.startswith(f'predictions:{message}')
  else:
    assert error == f'predictions:{message}'


def test_files_that_are_cut_short(tmp_path):
  for data in (matrix(), matrix('coo')):
    for length in (4, len(data) // 2, len(data) - 30):
      message = told(tmp_path, {'predictions': data[:length]})
      assert message.startswith('predictions: cannot be read')
      assert re.search('damaged,? or cut short', message)


def test_nothing_is_unpickled(tmp_path):
  class Trap:
    def __reduce__(self):
      return pathlib.Path.touch, (tmp_path / 'sprung',)

  trap = np.array([Trap()] * 3, object)
  assert pickle.dumps(trap) and not (tmp_path / 'sprung').exists()
  message = told(tmp_path, {'predictions': matrix(data=trap)})
  assert message.startswith(f'predictions:{NO_MATRIX}Object arrays')
  message = told(tmp_path, {'predictions': npz(schema=trap)})
  assert message.startswith('predictions: schema: cannot be read (Object')
  assert not (tmp_path / 'sprung').exists()


def test_files_that_are_none(tmp_path):
  with pytest.raises(DataError, match='no: cannot be read: No such file'):
    read_judged(JudgeFiles(tmp_path / 'no'))
  with pytest.raises(DataError, match='cannot be read: Is a directory'):
    read_judged(JudgeFiles(tmp_path))


NO_LABEL = (
  'has no label; if its rows are `label:value`, add the header `N L`, the '
  'numbers of documents and labels'
)
# Predictions, another file and its contents, and what the error says of it.
# Ids that do not fit are in tests/judge/files/test_matching.py.
PAIRS: list[tuple[bytes, str, bytes, str]] = [
  (TEXT, 'gold', b'2 4\n\n\n', ' has 2 documents, but predictions has 3'),
  (TEXT, 'gold', b'3 5\n\n\n\n', ' has 5 labels, but predictions has 4'),
  (
    *(TEXT, 'train_labels', b'9 3\n0:1\n' + b'\n' * 8),
    ' has 3 labels, but predictions has 4',
  ),
  (
    *(LISTS, 'gold', LISTS),
    '1: labels[0] is an object, not text or an integer',
  ),
  (
    *(TEXT, 'gold', TEXT),
    '2: the value of gold label 0 must be 0 or 1; scores are not gold labels',
  ),
  (TEXT, 'gold', b'0:1.0 2:1.0\n\n3:1.0\n', f' {NO_LABEL}'),
  (TEXT, 'gold', b'3 5 4\n 0:1\n\n 3:1\n', f' {NO_LABEL}'),
  (TEXT, 'inv_prop', b'1\n2\n3\n', ' has 3 labels, but predictions has 4'),
  (TEXT, 'filter', b'0 1\n3 1\n', '2: document 3 is not in 0..2'),
  (TEXT, 'filter', b'0 4\n', '1: label 4 is not in 0..3'),
]


@pytest.mark.parametrize(('predictions', 'name', 'data', 'message'), PAIRS)
def test_files_that_do_not_fit(tmp_path, predictions, name, data, message):
  error = told(tmp_path, {'predictions': predictions, name: data})
  assert error == f'{name}:{message}'


def test_sound_files_are_read(tmp_path):
  """So that what the tests above break is what breaks."""
  kinds = map(matrix, ('csr', 'csc', 'coo'))
  for data in (TEXT, LISTS, *kinds, gzip.compress(TEXT)):
    assert told(tmp_path, {'predictions': data}) is None
  assert told(tmp_path, {'predictions': TEXT, 'gold': GOLD}) is None
  assert told(tmp_path, {'predictions': LISTS, 'gold': DOCUMENTS}) is None
