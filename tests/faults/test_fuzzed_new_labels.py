"""Whatever a file of new labels holds, it is read or a DataError says why."""

import gzip
import pathlib
import tempfile

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.fixtures.fuzzing import fuzzed
from xjax.core.errors import DataError
from xjax.data.new_labels import add_new_labels, read_new_labels
from xjax.data.schema import Label, LabelSpace

SPACE = LabelSpace(
  (Label('a', 'A'), Label('b', 'B')), np.ones(2, np.int32), 3, 1, 1
)
LINES = st.sampled_from(
  [
    b'fish\n',
    b'a\n',
    b'{"name": "law of the sea", "id": "l"}\n',
    b'{"name": "x", "alt": ["y"], "parents": ["a"]}\n',
    b'{"name": 3}\n',
    b'{"name": "\\ud800"}\n',
    b'\xff\xfe\n',
    b'\xef\xbb\xbf',
    b'\x00\n',
    b'{',
    b'\n',
    b'[' * 9999,
  ]
)


@fuzzed(400)
@hypothesis.given(
  st.lists(st.one_of(LINES, st.binary(max_size=20)), max_size=4).map(b''.join),
  st.sampled_from(['n.txt', 'n.jsonl', 'n.jsonl.gz']),
  st.integers(0, 40),
)
def test_new_labels(data, name, cut):
  if name.endswith('.gz'):
    data = gzip.compress(data)[: 200 - cut]
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / name
    path.write_bytes(data)
    try:
      labels = read_new_labels(path, SPACE)
    except DataError as error:
      assert name in str(error)
      return
  assert labels and all(label.id and label.name for label in labels)
  assert add_new_labels(SPACE, labels).n_new == len(labels)
