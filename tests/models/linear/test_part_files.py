"""Parts are kept whole, for the values that decided them, or not at all."""

import dataclasses
import enum

import numpy as np
import pytest
from scipy import sparse

from xjax.models.linear.part_files import PartFiles, digest


class Color(enum.Enum):
  RED = 1
  BLUE = 2


@dataclasses.dataclass
class Setting:
  rate: float
  colors: tuple = ()


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
  parts = PartFiles(tmp_path / 'parts').of(1.5, 'tree')
  assert parts.load('one') is None
  parts.save('one', ARRAYS)
  assert_same(parts.load('one'))
  assert parts.load('other') is None
  parts.save('one', {'b': np.ones(2)})
  assert_same(parts.load('one'), {'b': np.ones(2)})


def test_same_bytes(tmp_path):
  for name in 'ab':
    PartFiles(tmp_path / name, 'k').save('one', ARRAYS)
  one, other = (x / 'one.part.npz' for x in (tmp_path / 'a', tmp_path / 'b'))
  assert one.read_bytes() == other.read_bytes()


def test_a_part_of_other_values_is_redone_and_said(tmp_path, caplog):
  PartFiles(tmp_path).of(1).save('one', ARRAYS)
  assert PartFiles(tmp_path).of(2).load('one') is None
  (record,) = caplog.records
  assert (
    'one.part.npz: was made from other data or settings' in record.getMessage()
  )


def test_no_damage_goes_unseen(tmp_path, caplog):
  parts = PartFiles(tmp_path, 'key')
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
  assert 'damaged' in caplog.records[-1].getMessage()


def test_changed_arrays_with_right_checksums(tmp_path):
  parts = PartFiles(tmp_path, 'key')
  parts.save('one', ARRAYS)
  path = tmp_path / 'one.part.npz'
  with np.load(path) as file:
    arrays = dict(file)
  np.savez(path, **{**arrays, 'a': arrays['a'] + 1})
  assert parts.load('one') is None
  np.savez(path, **ARRAYS)
  assert parts.load('one') is None
  np.savez(path, **{**arrays, 'a': np.array([None])})
  assert parts.load('one') is None


def test_digests_tell_values_apart():
  rows = sparse.csr_array(np.eye(2, dtype=np.float32))
  values = [
    *((1,), (1.0,), ('1',), (True,), (None,), ()),
    *(('a', 'b'), ('ab',), (['a', 'b'],), (['a'], 'b'), ({'a': 'b'},)),
    *((Color.RED,), (Color.BLUE,)),
    *((Setting(1.0),), (Setting(1.0, (Color.RED,)),)),
    *((np.zeros(2),), (np.zeros((2, 1)),), (np.zeros(2, np.float32),)),
    *((np.int32(1),), (rows,), (2 * rows,)),
  ]
  assert len({digest(*each) for each in values}) == len(values)
  assert digest(rows, {'a': 1, 'b': 2}) == digest(
    sparse.csc_array(rows), {'b': 2, 'a': 1}
  )


@pytest.mark.parametrize('value', [object(), np.array([None]), {1, 2}])
def test_what_has_no_digest(value):
  with pytest.raises(TypeError, match='digest'):
    digest(value)
