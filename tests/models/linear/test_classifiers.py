"""Classifiers are ranked last and kept, and parts are saved as a whole."""

import numpy as np
import pytest

from xjax.models.linear.classifiers import Classifiers, PartFiles

WEIGHTS_DL = np.array(
  [[0.5, 0, 0.01], [-0.009, 0, -3], [0, 0, 0], [-0.01, 0, 0.002]]
)
BIAS_L = np.array([-1, 0.001, 2.5])


def assert_equal(one, other):
  for name, array in one.arrays().items():
    np.testing.assert_array_equal(array, other.arrays()[name])
    assert array.dtype == other.arrays()[name].dtype


@pytest.mark.parametrize('n_labels', [0, 3])
def test_arrays_make_the_same(n_labels):
  weights_DL, bias_L = WEIGHTS_DL[:, :n_labels], BIAS_L[:n_labels]
  classifiers = Classifiers.from_dense(weights_DL, bias_L, 0.0)
  assert_equal(Classifiers.of_arrays(classifiers.arrays()), classifiers)


ARRAYS = {
  'a': np.arange(6, dtype=np.float32).reshape(2, 3),
  'empty': np.zeros((0, 4), np.int32),
  'number': np.int64(7),
}


def assert_same(arrays, wanted=ARRAYS):
  assert arrays.keys() == wanted.keys()
  for name, array in wanted.items():
    assert arrays[name].dtype == array.dtype
    np.testing.assert_array_equal(arrays[name], array)


def test_what_was_saved_is_loaded(tmp_path):
  parts = PartFiles(tmp_path / 'parts')
  assert parts.load('one') is None
  parts.save('one', ARRAYS)
  assert_same(parts.load('one'))
  assert parts.load('other') is None
  parts.save('one', {'b': np.ones(2)})
  assert_same(parts.load('one'), {'b': np.ones(2)})


def test_parts_of_other_arrays_are_not_taken(tmp_path):
  parts, tree = PartFiles(tmp_path), np.arange(4)
  parts.begin(tree=tree)
  parts.save('one', ARRAYS)
  parts.begin(tree=tree.copy())
  assert_same(parts.load('one'))
  parts.begin(tree=tree[::-1])
  assert parts.load('one') is None


def test_no_damage_goes_unseen(tmp_path, caplog):
  parts = PartFiles(tmp_path)
  parts.save('one', ARRAYS)
  path = tmp_path / 'one.part.npz'
  whole = path.read_bytes()
  refused = 0
  places = range(0, len(whole), 7)
  for at in places:
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    arrays = parts.load('one')
    if arrays is not None:
      assert_same(arrays)  # dates and the like
    else:
      refused += 1
  assert refused > len(places) / 2
  assert len(caplog.records) == refused
  for cut in (b'', whole[:100], whole[:-1], b'no zip'):
    path.write_bytes(cut)
    assert parts.load('one') is None
  np.savez(path, a=np.array([None]))  # needs pickle
  assert parts.load('one') is None
  assert 'damaged' in caplog.records[-1].getMessage()
